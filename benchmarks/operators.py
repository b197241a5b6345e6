"""Figures of the operator inventory: every causal model type that transformers knows, and one at 671B.

    python benchmarks/operators.py types [--shards N] [--seconds S] [--write] [TYPE...]
    python benchmarks/operators.py model PATH-OF-A-CONFIG

`types` captures each model type of `MODEL_FOR_CAUSAL_LM_MAPPING_NAMES` at full size from a config (class
defaults, completed by `causal_configs`), each in a process of its own, forked from one that has imported
torch and transformers; seconds are that process's CPU time without imports. `--write` puts the rows into
`docs/operators-model-types.md`, where those of other types stay as they are. `model` runs `day0 ops` cold and
tells CPU time and peak memory of it and its children, imports included, in both modes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from causal_configs import config_of

CLASSES = (
    ("needs the repository's code", ("repository's code", "no model for the type")),
    ("a package is missing", ("ImportError", "requires the")),
    (
        "needs inputs of its own",
        ("cannot be None", "must be specified", "required positional argument", "unknown"),
    ),
    ("does not go on from its own cache", ("phase decode",)),
    ("defaults do not build", ("does not build", "does not parse")),
    ("takes too long", ("not done within",)),
    ("defaults do not run", ("phase prefill",)),
    ("only a shorter prefill runs", ("phase long_prefill",)),
)
"""Reason class -> words of the first anomaly that tell it."""
PART = "part_not_captured"
"""Of images and audio: the text may be captured all the same."""
HOLES = frozenset({"phase_not_captured", "model_not_built", "capture_ended"})


DOCUMENT = Path(__file__).parents[1] / "docs/operators-model-types.md"
HEAD = """# Causal-LM model types whose operators are captured

Every type of transformers' `MODEL_FOR_CAUSAL_LM_MAPPING_NAMES`, at full size from a config. Written by
`python benchmarks/operators.py types --write`; with names behind it, the rows of those types alone. Seconds
are CPU time without imports; peak memory includes them (torch and transformers: 0.25 GB). A type counts as
captured where all phases of its text are; `how` tells what was captured otherwise than by the usual calls.
"""


def main() -> None:
    """Runs the part that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", choices=("types", "model"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--shards", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_intermixed_args()
    if asked.part == "model":
        for line in _model(asked.names[0]):
            print(line)
        return
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    names = asked.names or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    rows = sweep(names, asked.shards, asked.seconds)
    if not asked.write:
        print("\n".join(table(rows)))
        return
    before = written(DOCUMENT.read_text()) if DOCUMENT.exists() else []
    kept = [row for row in before if row["type"] not in names]
    whole = sorted([*kept, *rows], key=lambda row: str(row["type"]))
    DOCUMENT.write_text("\n".join([HEAD, *table(whole), ""]))


def sweep(names: Sequence[str], shards: int, seconds: float) -> list[dict[str, Any]]:
    """One row a type, in the order of the names."""
    import torch
    from transformers import PreTrainedModel  # noqa: F401  # children inherit what is imported here

    torch.set_num_threads(1)
    with ThreadPoolExecutor(shards) as pool:
        return list(pool.map(lambda name: _bounded(name, seconds), names))


def _bounded(name: str, seconds: float) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    answers, answer = context.Pipe(duplex=False)
    process = context.Process(target=_capture, args=(name, answer))
    process.start()
    answer.close()
    row = {
        "type": name,
        "reason": f"not done within {seconds:g} s",
        "how": "",
        "calls": 0,
        "operators": 0,
        "cpu": seconds,
        "mb": 0,
    }
    try:
        if answers.poll(seconds):
            row = answers.recv()
    except EOFError:
        row |= {"reason": "its process died"}
    process.kill()
    process.join()
    print(f"{name}: {row['reason'] or 'captured'}", file=sys.stderr, flush=True)
    return row


def _capture(name: str, answer: Any) -> None:
    from day0.adapters.base.operator_capture import CaptureRequest
    from day0.adapters.models.capture_model import capture_model

    before = time.process_time()
    capture = capture_model(config_of(name), CaptureRequest())
    answer.send(
        {
            "type": name,
            "reason": next((item.message for item in capture.undecided if item.code != PART), ""),
            "how": ", ".join(
                dict.fromkeys(item.code for item in capture.anomalies if item.code not in HOLES)
            ),
            "calls": len(capture.calls),
            "operators": len({call.op for call in capture.calls}),
            "cpu": time.process_time() - before,
            "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }
    )


def reason_class(reason: str) -> str:
    """The class of a reason; `other` for none of them."""
    return next((name for name, words in CLASSES if any(word in reason for word in words)), "other")


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Markdown: the share, each class of reasons, then every type."""
    whole = [row for row in rows if not row["reason"]]
    yield f"{len(whole)} of {len(rows)} types captured ({len(whole) / len(rows):.1%})"
    yield ""
    for name, count in Counter(reason_class(row["reason"]) for row in rows if row["reason"]).most_common():
        yield f"- {name}: {count} ({count / len(rows):.1%})"
    yield ""
    yield "| type | operators | distinct calls | CPU s | peak MB | how | why not |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        numbers = [row["operators"], row["calls"], f"{row['cpu']:.1f}", f"{row['mb']:.0f}"]
        why = " ".join(row["reason"][:160].replace("|", "/").split())
        yield f"| {' | '.join(map(str, [row['type'], *numbers, row['how'], why]))} |"


def written(text: str) -> list[dict[str, Any]]:
    """The rows of a table as `table` writes it."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 7 and cells[1].isdigit():
            name, operators, calls, cpu, peak, how, reason = cells
            found.append(
                {
                    "type": name, "operators": int(operators), "calls": int(calls), "cpu": float(cpu),
                    "mb": float(peak), "how": how, "reason": reason,
                }
            )  # fmt: skip
    return found


def _model(path: str) -> Iterator[str]:
    yield "| mode | operators | distinct calls | CPU s | peak MB |"
    yield "|---|---|---|---|---|"
    for mode in ((), ("--graph",)):
        with tempfile.TemporaryDirectory() as store:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "day0.flows.cli", "ops", path, "--json", "--store", store, *mode]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads(done.stdout)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield (
            f"| {mode[0] if mode else 'eager'} | {found['overloads']} | {found['signatures']} | {cpu:.1f} | "
            f"{after.ru_maxrss / 1e3:.0f} |"
        )


if __name__ == "__main__":
    main()
