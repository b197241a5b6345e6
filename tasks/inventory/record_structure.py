"""What inventory knows of a release's structure: tokenizer, precision, norms, attention, routing, support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from day0.adapters.base.values import Value


class SpecialToken(Value):
    """One token with a meaning of its own.

    Attributes:
        text: as the tokenizer writes it.
        id: its number; None where no file gives one.
        use: `bos`, `eos`, `pad`, `unk`, `sep`, `cls`, `mask`; empty for one that is only added.
        sources: files that name it.
    """

    text: str
    id: int | None
    use: str = ""
    sources: Sequence[str] = ()


class StatedIds(Value):
    """The ids that one place states for one use.

    Attributes:
        use: `bos`, `eos` or `pad`.
        source: e.g. `generation_config.json#/eos_token_id`.
        ids: one, several (a list is legal for the end of a text), or none where it states null.
    """

    use: str
    source: str
    ids: Sequence[int]


class ChatTemplate(Value):
    """One chat template, parsed and never rendered.

    Attributes:
        name: `default` unless the release names several.
        source: file, with the key inside it.
        sha256: of its UTF-8 text.
        characters: its length.
        mentions: what it asks for, of `tools thinking system images video audio documents`.
        error: why Jinja's parser refuses it; empty where it does not.
    """

    name: str
    source: str
    sha256: str
    characters: int
    mentions: Sequence[str] = ()
    error: str = ""


class Tokenizer(Value):
    """The tokenizer as its files describe it.

    Attributes:
        kind: `bpe unigram wordpiece wordlevel sentencepiece tiktoken tekken bytes`; empty for none.
        tokenizer_class: as tokenizer_config.json names it.
        files: that belong to it.
        base_tokens: entries of the vocabulary itself; 0 where unknown.
        added_tokens: tokens beside the vocabulary, with an id of their own.
        tokens: distinct ids of both.
        ids: one more than the highest id: rows that an embedding must have.
        embedding_rows: of the stored token embedding; 0 where none is stored.
        head_rows: of the stored head; 0 where none is stored.
        config_vocab_size: as the config states it.
        special_tokens: in the order of their ids.
        stated_ids: what each file says of beginning, end and padding.
        chat_templates: by name.
    """

    kind: str = ""
    tokenizer_class: str = ""
    files: Sequence[str] = ()
    base_tokens: int = 0
    added_tokens: int = 0
    tokens: int = 0
    ids: int = 0
    embedding_rows: int = 0
    head_rows: int = 0
    config_vocab_size: int = 0
    special_tokens: Sequence[SpecialToken] = ()
    stated_ids: Sequence[StatedIds] = ()
    chat_templates: Sequence[ChatTemplate] = ()


class PrecisionNeed(Value):
    """A tensor pattern whose numbers a stack must not round.

    Attributes:
        pattern: as in the table of patterns.
        role: word of the design's vocabulary.
        stored: dtype in the headers.
        need: dtype that it must keep, in the file and at run time.
        tensors: how many.
        reason: what goes wrong otherwise.
    """

    pattern: str
    role: str
    stored: str
    need: str
    tensors: int
    reason: str


class Norms(Value):
    """Normalisation.

    Attributes:
        kind: `rms` or `layer`; empty where neither config nor tensors tell.
        eps: 0 where the config does not say.
        qk: whether queries or keys have norms of their own, by the tensors.
        biases: whether norms store a bias.
        dtypes: stored dtype -> tensors.
    """

    kind: str = ""
    eps: float = 0.0
    qk: bool = False
    biases: bool = False
    dtypes: Mapping[str, int] = {}


class Activation(Value):
    """The feed-forward's activation.

    Attributes:
        word: as the config writes it.
        kind: `swiglu geglu reglu swiglu_oai silu gelu relu relu2` and the like.
        limit: at which it is clamped; 0 for nowhere.
    """

    word: str = ""
    kind: str = ""
    limit: float = 0.0


class Position(Value):
    """How positions enter.

    Attributes:
        kind: `rope alibi learned relative none`; empty where nothing is stated.
        theta: base of the rotation.
        local_theta: base in the sliding layers, where it is another.
        scaling: `yarn linear dynamic llama3 longrope mrope` and the like; empty for none.
        factor: of the scaling.
        original_positions: before scaling.
        rotary_dim: elements of a head that are rotated.
        partial: their share of the head, 1 for all.
        sections: of multimodal rotation.
        nope_layers: exact set of layers without positions.
    """

    kind: str = ""
    theta: float = 0.0
    local_theta: float = 0.0
    scaling: str = ""
    factor: float = 0.0
    original_positions: int = 0
    rotary_dim: int = 0
    partial: float = 0.0
    sections: Sequence[int] = ()
    nope_layers: str = ""


class Attention(Value):
    """Attention in numbers; 0 where the config does not say.

    Attributes:
        heads: of queries.
        kv_heads: of keys and values.
        head_dim: of queries and keys.
        value_dim: of values, where it is another.
        nope_dim: part of a latent head that is not rotated.
        rope_dim: part that is.
        q_rank: of compressed queries.
        kv_rank: of the latent cache.
        sinks: whether layers store attention sinks.
        biases: projections that store a bias, e.g. `q`, `k`, `v`, `o`, `qkv`.
        config_bias: what the config says of them; None where it does not.
        soft_cap: of the logits; 0 for none.
    """

    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    sinks: bool = False
    biases: Sequence[str] = ()
    config_bias: bool | None = None
    soft_cap: float = 0.0


class Router(Value):
    """How tokens choose experts.

    Attributes:
        scoring: `softmax` or `sigmoid`, as stated; empty where the config does not say.
        groups: of experts.
        top_groups: of them that a token may use.
        top_k: experts a token.
        normalised: whether the chosen weights are made to add up to one; None where not stated.
        scaling: factor on the routed experts' output; 0 where not stated.
        bias: name of the stored correction; empty for none.
    """

    scoring: str = ""
    groups: int = 0
    top_groups: int = 0
    top_k: int = 0
    normalised: bool | None = None
    scaling: float = 0.0
    bias: str = ""


class LayerGroup(Value):
    """Layers of one kind.

    Attributes:
        kind: attention word, empty for none.
        feed_forward: `dense`, `moe` or empty.
        layers: exact set.
    """

    kind: str
    feed_forward: str
    layers: str


class LayerPattern(Value):
    """How kinds of layers follow each other.

    Attributes:
        text: e.g. `3x linear + 1x full, repeated 12`.
        groups: exact sets.
    """

    text: str = ""
    groups: Sequence[LayerGroup] = ()


class DtypeStatement(Value):
    """The config's dtype against the headers'.

    Attributes:
        config: as stated, short name; empty where it is not.
        source: key that states it, e.g. `config.json#/torch_dtype`.
        headers: dtype of most plain weights; empty where there are none.
        verdict: `agrees`, `absent`, `contradicts`, `both` (the two keys disagree) or `unknown`.
    """

    config: str = ""
    source: str = ""
    headers: str = ""
    verdict: str = "unknown"


class Structure(Value):
    """The text model's structure by config and tensors."""

    norms: Norms = Norms()
    activation: Activation = Activation()
    position: Position = Position()
    attention: Attention = Attention()
    router: Router | None = None
    layer_pattern: LayerPattern = LayerPattern()
    dtype: DtypeStatement = DtypeStatement()


class TransformersSupport(Value):
    """Which transformers release first knew the model type.

    Attributes:
        model_type: as the config states it.
        known_since: first minor release that has it, e.g. `4.51`; empty for none up to `newest_checked`.
        newest_checked: newest release that the shipped table covers.
        native: whether that release can build it without code of the repository.
        needs_custom_code: whether only the repository's own code could.
    """

    model_type: str = ""
    known_since: str = ""
    newest_checked: str = ""
    native: bool = False
    needs_custom_code: bool = False
