"""The process that runs a release by stock transformers: `python -m day0.adapters.models.stock_worker`.

Standard input holds one JSON object: `folder` (config.json and safetensors), `architecture` (class of
transformers), `out` (file for the result, raw fp32) and either `tokens` (ids) or `entry` (path of a function
of the model) with `given` (file of its arguments, as blobs). Standard output gets one JSON line: `{"shape":
[length, vocabulary]}` of the logits, `{"shapes": [[...], ...]}` of the features that the function made, or
`{"reason": TEXT}`; then `null`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Answers the one question on standard input."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not enter the answer
    question = json.load(sys.stdin)
    try:
        found: dict[str, Any] = _run(question)
    except Exception as error:  # third-party loaders: whatever they raise is the reason that is told
        text = " ".join(str(error).split())[:300]
        found = {"reason": f"stock transformers does not load it: {type(error).__name__}: {text}"}
    answer.write(json.dumps(found) + "\nnull\n")
    answer.close()


def _run(question: dict[str, Any]) -> dict[str, Any]:
    import torch

    model = _loaded(question)
    with torch.no_grad():
        if "entry" in question:
            features = _features(model, question)
            _write(features, question["out"])
            return {"shapes": [list(tensor.shape) for tensor in features]}
        output = model(input_ids=torch.tensor([question["tokens"]]), use_cache=False)
    logits = output.logits[0]
    _write([logits], question["out"])
    return {"shape": list(logits.shape)}


def _features(model: Any, question: dict[str, Any]) -> list[Any]:
    from day0_worker import blobs

    from .image_features import feature_tensors, function_at

    with open(question["given"], "rb") as file:
        given = blobs.load(bytearray(file.read()))
    made = feature_tensors(function_at(model, question["entry"])(**given))
    return [tensor for tensor in made if tensor.is_floating_point()]


def _write(tensors: list[Any], path: str) -> None:
    import torch

    with open(path, "wb") as file:
        for tensor in tensors:
            file.write(tensor.to(torch.float32).contiguous().numpy().tobytes())


def _loaded(question: dict[str, Any]) -> Any:
    import torch
    import transformers

    kind: Any = getattr(transformers, question["architecture"])
    # What the release does not name is left to transformers, apart from dtype and attention, whose defaults
    # (the release's own dtype, sdpa) would round otherwise than the reference does.
    model, said = kind.from_pretrained(
        question["folder"],
        dtype=torch.float32,
        attn_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    missing = sorted(said["missing_keys"])
    if missing:
        raise ValueError(f"it finds no tensor for {len(missing)} parameters, among them {missing[0]}")
    return model.eval().float()


if __name__ == "__main__":
    main()
