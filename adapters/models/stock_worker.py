"""The process that runs a release by stock transformers: `python -m day0.adapters.models.stock_worker`.

Standard input holds one JSON object: `folder` (config.json and safetensors), `architecture` (class of
transformers), `tokens` (ids) and `out` (file for the logits, raw fp32). Standard output gets one JSON line,
`{"shape": [length, vocabulary]}` or `{"reason": TEXT}`, then `null`.
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
        found: dict[str, Any] = {"shape": _run(question)}
    except Exception as error:  # third-party loaders: whatever they raise is the reason that is told
        text = " ".join(str(error).split())[:300]
        found = {"reason": f"stock transformers does not load it: {type(error).__name__}: {text}"}
    answer.write(json.dumps(found) + "\nnull\n")
    answer.close()


def _run(question: dict[str, Any]) -> list[int]:
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
    model = model.eval().float()
    with torch.no_grad():
        output = model(input_ids=torch.tensor([question["tokens"]]), use_cache=False)
    logits = output.logits[0].to(torch.float32).contiguous()
    with open(question["out"], "wb") as file:
        file.write(logits.numpy().tobytes())
    return list(logits.shape)


if __name__ == "__main__":
    main()
