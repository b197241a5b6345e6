"""A checkpoint folder loaded by transformers' own loader, scored and continued greedily."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from day0_worker.dtypes import torch_dtype
from day0_worker.stack import StackError
from day0_worker.trees import storage_of
from day0_worker.workarounds import apply_all

if TYPE_CHECKING:
    import torch


def load_folder(
    folder: str, dtype: str, device: str, options: Mapping[str, str]
) -> Tuple["torch.nn.Module", Dict[str, Any]]:
    """The model of a local folder on the device, and what the loader said of its keys.

    Code and pickles of the folder are not run, and nothing is fetched.

    Args:
        folder: with config.json and safetensors files.
        dtype: short name in which weights are held.
        device: torch device type.
        options: `attn` and `experts` choose the implementations, `with` names ways around.

    Returns:
        The model and `missing`, `unexpected`, `mismatched`, `seconds`, `weight_bytes`.

    Raises:
        StackError: `import` without transformers, `unsupported` where it does not know the class.
    """
    model_class = _model_class(folder)
    chosen = {f"{key}_implementation": options[key] for key in ("attn", "experts") if key in options}
    began = time.perf_counter()
    model, said = model_class.from_pretrained(
        folder,
        dtype=torch_dtype(dtype),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        **chosen,
    )
    apply_all(model, options)
    model = model.eval().to(device)
    report = {
        "missing": sorted(said["missing_keys"]),
        "unexpected": sorted(said["unexpected_keys"]),
        "mismatched": sorted(
            f"{name}: {list(stored)} in the checkpoint, {list(wanted)} in the model"
            for name, stored, wanted in said["mismatched_keys"]
        ),
        "seconds": time.perf_counter() - began,
        "weight_bytes": weight_bytes(model),
    }
    return model, report


def logits(model: Any, tokens: List[List[int]], device: str) -> "torch.Tensor":
    """Logits [batch, length, vocabulary], teacher-forced, without a cache."""
    import torch

    with torch.no_grad():
        output: torch.Tensor = model(input_ids=torch.tensor(tokens, device=device), use_cache=False).logits
    return output


def continue_greedily(model: Any, tokens: List[List[int]], new_tokens: int, device: str) -> Dict[str, Any]:
    """Exactly so many new tokens per sequence by the model's own `generate`, whatever ends a text.

    Returns:
        `tokens` (new ones only), `first_token_seconds`, `seconds`.
    """
    import torch
    from transformers import GenerationConfig

    prompt = torch.tensor(tokens, device=device)
    greedy = GenerationConfig(
        do_sample=False,
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    own = model.generation_config
    clock = _FirstToken()
    model.generation_config = greedy  # the folder's own may sample or end early
    try:
        began = time.perf_counter()
        with torch.no_grad():
            texts = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), generation_config=greedy, streamer=clock
            )
        rows = texts[:, prompt.shape[1] :].tolist()
        ended = time.perf_counter()
    finally:
        model.generation_config = own
    return {"tokens": rows, "first_token_seconds": clock.seconds(began), "seconds": ended - began}


class _FirstToken:
    """Told of the prompt and then of each token by `generate`; keeps the time of the first."""

    def __init__(self) -> None:
        self._times: List[float] = []

    def put(self, value: "torch.Tensor") -> None:
        if len(self._times) < 2:
            value.cpu()
            self._times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to be told."""

    def seconds(self, began: float) -> float:
        return self._times[1] - began if len(self._times) > 1 else 0.0


def _model_class(folder: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise StackError(f"transformers cannot be imported: {error}", "import") from error
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        names = json.load(file).get("architectures") or ["AutoModelForCausalLM"]
    found = getattr(transformers, str(names[0]), None)
    if not hasattr(found, "from_pretrained"):
        raise StackError(f"transformers {transformers.__version__} has no model {names[0]!r}", "unsupported")
    return found


def weight_bytes(model: "torch.nn.Module") -> int:
    """Bytes of parameters and buffers, each storage once (tied weights share one)."""
    # Not detached, which would make new tensors of one parameter that two modules share.
    held = model.state_dict(keep_vars=True).values()
    return sum({storage_of(tensor): _bytes_behind(tensor) for tensor in held}.values())


def _bytes_behind(tensor: "torch.Tensor") -> int:
    try:
        return int(tensor.untyped_storage().nbytes())
    except RuntimeError:  # NotImplementedError among them: the tensor is a handle without a storage
        return tensor.numel() * tensor.element_size()
