"""Published tensor names of many families and the role of each: nothing is dropped, nothing misattributed."""

from __future__ import annotations

import pytest

from day0.tasks.inventory.patterns import list_tensors
from day0.tasks.inventory.roles import look_around, place_of
from support.layouts import make_tensor

# Family -> lines of role and names, each name as published; all of a family stand in one release.
FAMILIES = {
    "llama 3": """
        embedding  model.embed_tokens.weight
        attention  model.layers.0.self_attn.q_proj.weight model.layers.0.self_attn.o_proj.weight
        dense_mlp  model.layers.0.mlp.gate_proj.weight model.layers.0.mlp.down_proj.weight
        norm       model.layers.0.input_layernorm.weight model.layers.0.post_attention_layernorm.weight
        norm       model.norm.weight
        head       lm_head.weight
    """,
    "llama, as Meta names it": """
        embedding  tok_embeddings.weight
        attention  layers.0.attention.wq.weight layers.0.attention.wo.weight
        dense_mlp  layers.0.feed_forward.w1.weight layers.0.feed_forward.w2.weight
        dense_mlp  layers.0.feed_forward.w3.weight
        norm       layers.0.attention_norm.weight layers.0.ffn_norm.weight norm.weight
        buffer     rope.freqs
        head       output.weight
    """,
    "gpt2": """
        embedding  wte.weight wpe.weight
        attention  h.0.attn.c_attn.weight h.0.attn.c_attn.bias h.0.attn.c_proj.weight
        dense_mlp  h.0.mlp.c_fc.weight h.0.mlp.c_proj.bias
        norm       h.0.ln_1.weight h.0.ln_2.bias ln_f.weight
    """,
    "gpt-neox (Pythia)": """
        embedding  gpt_neox.embed_in.weight
        attention  gpt_neox.layers.0.attention.query_key_value.weight gpt_neox.layers.0.attention.dense.bias
        buffer     gpt_neox.layers.0.attention.rotary_emb.inv_freq gpt_neox.layers.0.attention.masked_bias
        dense_mlp  gpt_neox.layers.0.mlp.dense_h_to_4h.weight gpt_neox.layers.0.mlp.dense_4h_to_h.bias
        norm       gpt_neox.layers.0.input_layernorm.bias gpt_neox.final_layer_norm.weight
        head       embed_out.weight
    """,
    "falcon": """
        embedding  transformer.word_embeddings.weight
        attention  transformer.h.0.self_attention.query_key_value.weight
        attention  transformer.h.0.self_attention.dense.weight
        dense_mlp  transformer.h.0.mlp.dense_h_to_4h.weight
        norm       transformer.h.0.ln_attn.weight transformer.h.0.ln_mlp.bias transformer.ln_f.weight
        head       lm_head.weight
    """,
    "mpt": """
        embedding  transformer.wte.weight
        attention  transformer.blocks.0.attn.Wqkv.weight transformer.blocks.0.attn.out_proj.weight
        dense_mlp  transformer.blocks.0.ffn.up_proj.weight transformer.blocks.0.ffn.down_proj.weight
        norm       transformer.blocks.0.norm_1.weight transformer.norm_f.weight
    """,
    "bloom": """
        embedding  word_embeddings.weight
        norm       word_embeddings_layernorm.weight h.0.input_layernorm.bias
        attention  h.0.self_attention.query_key_value.weight
        dense_mlp  h.0.mlp.dense_4h_to_h.weight
    """,
    "opt": """
        embedding  model.decoder.embed_tokens.weight model.decoder.embed_positions.weight
        attention  model.decoder.layers.0.self_attn.out_proj.bias
        dense_mlp  model.decoder.layers.0.fc1.weight model.decoder.layers.0.fc2.bias
        norm       model.decoder.layers.0.self_attn_layer_norm.weight model.decoder.final_layer_norm.bias
    """,
    "chatglm": """
        embedding  transformer.embedding.word_embeddings.weight
        buffer     transformer.rotary_pos_emb.inv_freq
        attention  transformer.encoder.layers.0.self_attention.query_key_value.weight
        dense_mlp  transformer.encoder.layers.0.mlp.dense_h_to_4h.weight
        norm       transformer.encoder.layers.0.input_layernorm.weight
        norm       transformer.encoder.final_layernorm.weight
        head       transformer.output_layer.weight
    """,
    "internlm2": """
        embedding  model.tok_embeddings.weight
        attention  model.layers.0.attention.wqkv.weight model.layers.0.attention.wo.weight
        dense_mlp  model.layers.0.feed_forward.w1.weight
        norm       model.layers.0.attention_norm.weight model.layers.0.ffn_norm.weight
        head       output.weight
    """,
    "baichuan": """
        embedding  model.embed_tokens.weight
        attention  model.layers.0.self_attn.W_pack.weight
        head       lm_head.weight
    """,
    "qwen, the first": """
        embedding  transformer.wte.weight
        attention  transformer.h.0.attn.c_attn.weight
        dense_mlp  transformer.h.0.mlp.w1.weight transformer.h.0.mlp.w2.weight
        dense_mlp  transformer.h.0.mlp.c_proj.weight
        norm       transformer.h.0.ln_1.weight transformer.ln_f.weight
    """,
    "phi-3": """
        attention  model.layers.0.self_attn.qkv_proj.weight
        dense_mlp  model.layers.0.mlp.gate_up_proj.weight
    """,
    "gemma 3n": """
        embedding  language_model.embed_tokens.weight language_model.embed_tokens_per_layer.weight
        embedding  language_model.per_layer_model_projection.weight
        norm       language_model.layers.0.pre_feedforward_layernorm.weight
        norm       language_model.per_layer_projection_norm.weight
        dense_mlp  language_model.layers.0.per_layer_input_gate.weight
    """,
    "deepseek v3.2": """
        attention  model.layers.3.self_attn.q_a_proj.weight
        attention  model.layers.3.self_attn.kv_a_proj_with_mqa.weight
        attention  model.layers.3.self_attn.kv_b_proj.weight model.layers.3.self_attn.indexer.wq_b.weight
        attention  model.layers.3.self_attn.indexer.weights_proj.weight
        attention  model.layers.3.self_attn.indexer.wk.weight
        norm       model.layers.3.self_attn.q_a_layernorm.weight
        norm       model.layers.3.self_attn.indexer.k_norm.weight
        router     model.layers.3.mlp.gate.weight model.layers.3.mlp.gate.e_score_correction_bias
        expert     model.layers.3.mlp.experts.7.gate_proj.weight
        shared_expert  model.layers.3.mlp.shared_experts.up_proj.weight
        dense_mlp  model.layers.0.mlp.up_proj.weight
    """,
    "deepseek v4": """
        embedding  embed.weight
        attention  layers.3.attn.wq_a.weight layers.3.attn.wkv.weight layers.3.attn.wo_a.weight
        attention  layers.3.attn.attn_sink
        attention  layers.3.attn.compressor.wkv.weight layers.3.attn.compressor.wgate.weight
        attention  layers.3.attn.compressor.ape
        attention  layers.3.attn.indexer.wq_b.weight layers.3.attn.indexer.compressor.wgate.weight
        norm       layers.3.attn.q_norm.weight layers.3.attn.compressor.norm.weight
        norm       layers.3.attn_norm.weight
        router     layers.3.ffn.gate.weight layers.3.ffn.gate.bias layers.0.ffn.gate.tid2eid
        expert     layers.3.ffn.experts.7.w1.weight
        shared_expert  layers.3.ffn.shared_experts.w2.weight
        unknown    layers.3.hc_attn_fn layers.3.hc_ffn_base layers.3.hc_attn_scale hc_head_fn
        mtp        mtp.0.e_proj.weight mtp.0.attn.wkv.weight mtp.0.hc_head_base
        head       head.weight
    """,
    "kimi-linear": """
        attention  model.layers.0.self_attn.q_conv1d.weight model.layers.0.self_attn.A_log
        attention  model.layers.0.self_attn.dt_bias
        attention  model.layers.0.self_attn.f_a_proj.weight model.layers.0.self_attn.g_b_proj.weight
        attention  model.layers.0.self_attn.b_proj.weight
        norm       model.layers.0.self_attn.o_norm.weight
        router     model.layers.1.block_sparse_moe.gate.weight
        router     model.layers.1.block_sparse_moe.gate.e_score_correction_bias
        expert     model.layers.1.block_sparse_moe.experts.3.w1.weight
        shared_expert  model.layers.1.block_sparse_moe.shared_experts.gate_proj.weight
        dense_mlp  model.layers.0.mlp.gate_proj.weight
    """,
    "qwen3-next": """
        attention  model.layers.0.linear_attn.in_proj_qkvz.weight
        attention  model.layers.0.linear_attn.in_proj_ba.weight
        attention  model.layers.0.linear_attn.conv1d.weight model.layers.0.linear_attn.A_log
        attention  model.layers.0.linear_attn.dt_bias model.layers.0.linear_attn.out_proj.weight
        norm       model.layers.0.linear_attn.norm.weight
        router     model.layers.0.mlp.gate.weight
        shared_expert model.layers.0.mlp.shared_expert.up_proj.weight
        shared_expert model.layers.0.mlp.shared_expert_gate.weight
        expert     model.layers.0.mlp.experts.511.down_proj.weight
        mtp        mtp.fc.weight mtp.layers.0.mlp.experts.3.up_proj.weight mtp.pre_fc_norm_hidden.weight
    """,
    "minimax-m1": """
        attention  model.layers.0.self_attn.qkv_proj.weight model.layers.0.self_attn.output_gate.weight
        norm       model.layers.0.self_attn.norm.weight
        router     model.layers.0.block_sparse_moe.gate.weight
        expert     model.layers.0.block_sparse_moe.experts.0.w1.weight
        expert     model.layers.0.block_sparse_moe.experts.0.w3.weight
    """,
    "mixtral": """
        router     model.layers.0.block_sparse_moe.gate.weight
        expert     model.layers.0.block_sparse_moe.experts.7.w2.weight
    """,
    "mixtral, as Mistral names it": """
        embedding  tok_embeddings.weight
        router     layers.0.feed_forward.gate.weight
        expert     layers.0.feed_forward.experts.3.w1.weight
        attention  layers.0.attention.wk.weight
        norm       layers.0.ffn_norm.weight
        head       output.weight
    """,
    "llama 4": """
        router     language_model.model.layers.0.feed_forward.router.weight
        expert     language_model.model.layers.0.feed_forward.experts.gate_up_proj
        expert     language_model.model.layers.0.feed_forward.experts.down_proj
        shared_expert  language_model.model.layers.0.feed_forward.shared_expert.down_proj.weight
        attention  language_model.model.layers.0.self_attn.q_proj.weight
        projector  multi_modal_projector.linear_1.weight
        vision     vision_model.patch_embedding.linear.weight vision_model.model.layers.0.mlp.fc1.weight
    """,
    "gpt-oss": """
        attention  model.layers.0.self_attn.sinks model.layers.0.self_attn.q_proj.bias
        router     model.layers.0.mlp.router.weight model.layers.0.mlp.router.bias
        expert     model.layers.0.mlp.experts.gate_up_proj_bias model.layers.0.mlp.experts.down_proj_bias
    """,
    "dbrx": """
        attention  transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight
        norm       transformer.blocks.0.norm_attn_norm.norm_1.weight
        router     transformer.blocks.0.ffn.router.layer.weight
        expert     transformer.blocks.0.ffn.experts.mlp.w1 transformer.blocks.0.ffn.experts.mlp.v1
    """,
    "grok-1": """
        router     model.layers.0.moe_block.gate.weight
        expert     model.layers.0.moe_block.experts.0.linear_v.weight
    """,
    "ernie 4.5": """
        router     model.layers.1.mlp.gate.weight model.layers.1.mlp.moe_statics.e_score_correction_bias
        expert     model.layers.1.mlp.experts.0.gate_proj.weight
        shared_expert  model.layers.1.mlp.shared_experts.gate_proj.weight
    """,
    "hunyuan": """
        router     model.layers.1.mlp.gate.wg.weight
        expert     model.layers.1.mlp.experts.0.gate_proj.weight
        shared_expert  model.layers.1.mlp.shared_mlp.gate_proj.weight
        norm       model.layers.1.self_attn.query_layernorm.weight
    """,
    "granite moe": """
        router     model.layers.0.block_sparse_moe.router.layer.weight
        expert     model.layers.0.block_sparse_moe.input_linear.weight
        expert     model.layers.0.block_sparse_moe.output_linear.weight
        attention  model.layers.1.mamba.in_proj.weight
        shared_expert  model.layers.0.shared_mlp.input_linear.weight
    """,
    "jamba": """
        attention  model.layers.0.mamba.A_log model.layers.0.mamba.x_proj.weight
        attention  model.layers.0.mamba.conv1d.bias
        norm       model.layers.0.mamba.dt_layernorm.weight model.layers.0.pre_ff_layernorm.weight
        router     model.layers.1.feed_forward.router.weight
        expert     model.layers.1.feed_forward.experts.0.down_proj.weight
        dense_mlp  model.layers.0.feed_forward.down_proj.weight
        attention  model.layers.4.self_attn.q_proj.weight
    """,
    "mamba 2": """
        embedding  backbone.embeddings.weight
        attention  backbone.layers.0.mixer.A_log backbone.layers.0.mixer.D backbone.layers.0.mixer.dt_bias
        attention  backbone.layers.0.mixer.conv1d.weight backbone.layers.0.mixer.out_proj.weight
        norm       backbone.layers.0.norm.weight backbone.layers.0.mixer.norm.weight backbone.norm_f.weight
        head       lm_head.weight
    """,
    "nemotron-h": """
        attention  backbone.layers.0.mixer.in_proj.weight backbone.layers.7.mixer.q_proj.weight
        dense_mlp  backbone.layers.1.mixer.up_proj.weight backbone.layers.1.mixer.down_proj.weight
        norm       backbone.layers.0.mixer.norm.weight
    """,
    "nemotron 3, with experts": """
        router     backbone.layers.1.mixer.gate.weight backbone.layers.1.mixer.gate.e_score_correction_bias
        expert     backbone.layers.1.mixer.experts.5.up_proj.weight
        shared_expert  backbone.layers.1.mixer.shared_experts.down_proj.weight
        attention  backbone.layers.0.mixer.in_proj.weight
    """,
    "falcon-h1": """
        attention  model.layers.0.mamba.in_proj.weight model.layers.0.self_attn.k_proj.weight
        dense_mlp  model.layers.0.feed_forward.gate_proj.weight
        norm       model.layers.0.pre_ff_layernorm.weight model.final_layernorm.weight
    """,
    "rwkv 4": """
        embedding  rwkv.embeddings.weight
        attention  rwkv.blocks.0.attention.time_decay rwkv.blocks.0.attention.receptance.weight
        dense_mlp  rwkv.blocks.0.feed_forward.key.weight rwkv.blocks.0.feed_forward.time_mix_key
        norm       rwkv.blocks.0.ln1.weight rwkv.blocks.0.pre_ln.bias rwkv.ln_out.weight
        head       head.weight
    """,
    "rwkv 7": """
        embedding  model.embeddings.weight
        attention  model.layers.0.attn.r_proj.weight model.layers.0.attn.w_lora.lora.0.weight
        attention  model.layers.0.attn.x_r
        attention  model.layers.0.attn.k_k model.layers.0.attn.r_k
        dense_mlp  model.layers.0.ffn.key.weight model.layers.0.ffn.x_k
        norm       model.layers.0.attn_norm.weight model.layers.0.attn.g_norm.weight
    """,
    "xlstm": """
        embedding  backbone.embeddings.weight
        attention  backbone.blocks.0.mlstm_layer.q.weight backbone.blocks.0.mlstm_layer.igate_preact.bias
        dense_mlp  backbone.blocks.0.ffn.proj_up_gate.weight backbone.blocks.0.ffn.proj_down.weight
        norm       backbone.blocks.0.norm_mlstm.weight backbone.out_norm.weight
        head       lm_head.weight
    """,
    "recurrent gemma": """
        attention  model.layers.0.temporal_block.conv_1d.weight
        attention  model.layers.0.temporal_block.rg_lru.recurrent_param
        dense_mlp  model.layers.0.mlp_block.gate_proj.weight
        norm       model.layers.0.temporal_pre_norm.weight model.layers.0.channel_pre_norm.weight
    """,
    "lfm2": """
        attention  model.layers.0.conv.conv.weight model.layers.0.conv.in_proj.weight
        attention  model.layers.2.self_attn.out_proj.weight
        dense_mlp  model.layers.0.feed_forward.w1.weight
        norm       model.layers.0.operator_norm.weight model.layers.2.self_attn.q_layernorm.weight
        norm       model.embedding_norm.weight
    """,
    "bitnet": """
        attention  model.layers.0.self_attn.q_proj.weight
        norm       model.layers.0.self_attn.attn_sub_norm.weight model.layers.0.mlp.ffn_sub_norm.weight
    """,
    "t5": """
        embedding  shared.weight
        attention  encoder.block.0.layer.0.SelfAttention.q.weight
        attention  decoder.block.0.layer.1.EncDecAttention.k.weight
        attention  encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight
        dense_mlp  encoder.block.0.layer.1.DenseReluDense.wi_0.weight
        dense_mlp  decoder.block.0.layer.2.DenseReluDense.wo.weight
        norm       encoder.block.0.layer.0.layer_norm.weight encoder.final_layer_norm.weight
        head       lm_head.weight
    """,
    "bart": """
        embedding  model.shared.weight model.encoder.embed_positions.weight
        attention  model.decoder.layers.0.encoder_attn.k_proj.weight
        dense_mlp  model.encoder.layers.0.fc1.weight
        norm       model.decoder.layers.0.encoder_attn_layer_norm.bias
        norm       model.encoder.layernorm_embedding.weight
        buffer     final_logits_bias
    """,
    "whisper": """
        attention  model.encoder.layers.0.self_attn.k_proj.weight
        attention  model.decoder.layers.0.encoder_attn.q_proj.bias
        embedding  model.decoder.embed_tokens.weight model.encoder.embed_positions.weight
        embedding  model.encoder.conv1.weight
        dense_mlp  model.decoder.layers.0.fc2.weight
        norm       model.encoder.layer_norm.weight
        head       proj_out.weight
    """,
    "bert": """
        embedding  bert.embeddings.word_embeddings.weight bert.embeddings.token_type_embeddings.weight
        buffer     bert.embeddings.position_ids
        attention  bert.encoder.layer.0.attention.self.query.weight
        attention  bert.encoder.layer.0.attention.output.dense.weight
        dense_mlp  bert.encoder.layer.0.intermediate.dense.weight bert.encoder.layer.0.output.dense.bias
        norm       bert.encoder.layer.0.attention.output.LayerNorm.weight bert.embeddings.LayerNorm.weight
        head       bert.pooler.dense.weight cls.predictions.decoder.weight cls.predictions.bias
    """,
    "modernbert": """
        embedding  model.embeddings.tok_embeddings.weight
        attention  model.layers.0.attn.Wqkv.weight model.layers.0.attn.Wo.weight
        dense_mlp  model.layers.0.mlp.Wi.weight model.layers.0.mlp.Wo.weight
        norm       model.layers.1.attn_norm.weight model.embeddings.norm.weight
        head       decoder.bias head.dense.weight
    """,
    "vit": """
        vision     vit.embeddings.cls_token vit.encoder.layer.0.attention.attention.query.weight
        vision     vit.layernorm.weight
        head       classifier.weight
    """,
    "qwen2-vl": """
        vision     visual.blocks.0.attn.qkv.weight visual.patch_embed.proj.weight
        vision     visual.blocks.0.norm1.weight
        projector  visual.merger.mlp.0.weight visual.merger.ln_q.weight
        attention  model.layers.0.self_attn.q_proj.weight
    """,
    "internvl": """
        vision     vision_model.encoder.layers.0.attn.qkv.weight vision_model.embeddings.class_embedding
        projector  mlp1.1.weight
        attention  language_model.model.layers.0.self_attn.q_proj.weight
        embedding  language_model.model.embed_tokens.weight
        head       language_model.lm_head.weight
    """,
    "longcat": """
        norm       model.layers.0.input_layernorm.1.weight
        attention  model.layers.0.self_attn.1.kv_b_proj.weight
        dense_mlp  model.layers.0.mlps.0.up_proj.weight
        router     model.layers.0.mlp.router.classifier.weight
        expert     model.layers.0.mlp.experts.5.up_proj.weight
    """,
    "a vision transformer beside diffusion": """
        attention  transformer_blocks.0.attn.to_q.weight transformer_blocks.0.attn.to_out.0.weight
        dense_mlp  transformer_blocks.0.ff.net.0.proj.weight
        norm       transformer_blocks.0.norm1.linear.weight
        attention  single_transformer_blocks.0.attn.to_k.weight
        unknown    x_embedder.proj_x.weight
    """,
    "gguf": """
        embedding  token_embd.weight
        attention  blk.0.attn_q.weight blk.0.attn_output.weight blk.0.ssm_conv1d.weight
        dense_mlp  blk.0.ffn_up.weight
        router     blk.1.ffn_gate_inp.weight blk.1.exp_probs_b.bias
        expert     blk.1.ffn_down_exps.weight
        shared_expert  blk.1.ffn_up_shexp.weight
        norm       blk.0.attn_norm.weight output_norm.weight
        head       output.weight
    """,
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_roles_of_a_family(family: str) -> None:
    wanted: dict[str, str] = {}
    for line in filter(None, map(str.strip, FAMILIES[family].splitlines())):
        role, *names = line.split()
        wanted |= dict.fromkeys(names, role)
    infos = {name: make_tensor(name, "bf16", (8, 8)) for name in wanted}
    groups = list_tensors(infos).groups
    around = look_around(groups, 0, False)
    found = {group.example: place_of(group, around).role for group in groups}
    assert found == wanted
