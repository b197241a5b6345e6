"""False alarms and detection of numerics: correct targets whose kernels differ, and canonical bugs.

    python benchmarks/numerics_calibration.py [--dtype bf16] [--stacks] [MODEL_TYPE...]

Random models of fifteen families (`tests/support/wide_models.py`). For each: how far correct targets come in
units of noise, and how many nodes would be called faulty; and which bugs are found, misses included. The
families of `SETTING` set the thresholds of `tasks/thresholds.py`, the others judge them. `--stacks` adds
inductor and onnxruntime, which compile some minutes. One thread, but where the number of threads is what
differs; some 15 minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch

from day0.adapters.base.target import Call, Paused
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.target import WorkerTarget
from day0.tasks.numerics.record_parts import BugResult
from day0.tasks.numerics.self_test.bug_runs import BugArm, Ran, on_target
from day0.tasks.numerics.self_test.self_test import Bench, Wide, matrix, nodes_to_try, try_bugs
from day0.tasks.numerics.self_test.visit_judge import VisitJudge, own_yardstick
from day0.tasks.numerics.walk.expert_runs import Waiting, through_experts
from day0.tasks.numerics.walk.visit import Visit
from day0.tasks.reference_arm import Arm
from day0.tasks.target_nodes import TargetNodes
from day0_worker.dtypes import torch_dtype
from support.in_process_target import InProcessTarget
from support.tiny_releases import TinyRelease
from support.visits import prompts, visits
from support.wide_models import WIDE, save_wide

SETTING = ("llama", "olmo2", "gemma3_text", "deepseek_v3", "qwen3_moe", "mamba2", "stablelm")
"""Families by which the thresholds were set."""
EAGER_ONLY = ("gpt_oss", "gemma2", "mamba2")
"""Families without another attention."""
COMPILED = ("llama", "qwen2")
"""Families on which `--stacks` tries other stacks: each kind takes some 15 s to compile."""
METRICS = ("ratio", "token_ratio", "worst_ratio", "channel_ratio", "gain_score", "outliers")
CLAIMS = ("op", "fragment", "parts")


@dataclass
class Alarms:
    """What correct targets came to.

    Attributes:
        largest: measure -> largest value.
        where: measure -> variant, node and prompt of it.
        judged: variant -> nodes judged.
        faulty: `VARIANT NODE: MEASURE` of each that was called faulty.
        flips: of routers, and unexplained ones.
    """

    largest: dict[str, float] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    judged: Counter[str] = field(default_factory=Counter)
    faulty: list[str] = field(default_factory=list)
    flips: Counter[str] = field(default_factory=Counter)


Run = Callable[[Visit, Sequence[str]], Ran]


def variants(tiny: TinyRelease, name: str, dtype: str) -> dict[str, tuple[dict[str, str], Run]]:
    """Name -> options of the walk, and what runs a node's passes."""
    skeleton = tiny.skeleton

    def nodes(options: str) -> TargetNodes:
        return TargetNodes(
            InProcessTarget(f"eager@cpu/{dtype}{options}", capabilities=CLAIMS), skeleton, dtype
        )

    def plain(options: str) -> Run:
        target = nodes(options)
        return lambda visit, names: on_target(target, visit, names, state="calibrate", chunk=4)

    found: dict[str, tuple[dict[str, str], Run]] = {
        "two threads": ({}, _threads(plain(""), 2)),
        "batch of two": ({}, _doubled(nodes(""))),
    }
    if name not in EAGER_ONLY:
        found["eager attention"] = ({"attn": "eager"}, plain("?attn=eager"))
    if any(node.experts for node in skeleton.nodes):
        found["batched experts"] = ({}, plain("?experts=batched_mm"))
        found["grouped experts"] = ({}, plain("?experts=grouped_mm"))
    return found


def _threads(run: Run, count: int) -> Run:
    def threaded(visit: Visit, names: Sequence[str]) -> Ran:
        torch.set_num_threads(count)
        try:
            return run(visit, names)
        finally:
            torch.set_num_threads(1)

    return threaded


def _doubled(nodes: TargetNodes) -> Run:
    """The main prompt twice in one batch; what is judged is the first of both."""

    def run(visit: Visit, names: Sequence[str]) -> Ran:
        step, ran = visit.passes[0], Ran()
        call = _mapped(
            step.lowered, lambda one: torch.cat([one, one]) if one.dim() and len(one) == 1 else one
        )
        came = nodes.start(visit.node, visit.expressions, call, mode="prefill")
        while isinstance(came, Paused):
            half = len(came.ids) // 2
            ran.routed[step.name] = replace(came, ids=came.ids[:half], weights=came.weights[:half])
            assert visit.experts is not None
            output = through_experts(visit.node, [Waiting(nodes, came, "sent")], visit.experts, chunk=4)[0]
            assert isinstance(output, torch.Tensor), output
            came = nodes.resume(came, output)
        assert not isinstance(came, Call)
        reference = step.reference
        ran.outputs[step.name] = Call(
            came.outputs.tree,
            {
                key: one[: len(reference.tensors[key])] if one.dim() else one
                for key, one in came.outputs.tensors.items()
            },
        )
        return ran

    return run


def _mapped(call: Call, change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    return Call(call.tree, {name: change(tensor) for name, tensor in call.tensors.items()})


def alarms(tiny: TinyRelease, name: str, dtype: str, stacks: bool) -> Alarms:
    """Runs every node on every correct variant."""
    found = Alarms()
    made = variants(tiny, name, dtype)
    if stacks and name in COMPILED:
        made |= {stack: ({}, run) for stack, run in _compiled(tiny, dtype).items()}
    for options in ({}, {"attn": "eager"}):
        runs = {variant: run for variant, (wanted, run) in made.items() if wanted == options}
        for visit in _visits(tiny, dtype, options) if runs else ():
            for variant, run in runs.items():
                _judge(found, variant, visit, run, dtype)
    return found


def _compiled(tiny: TinyRelease, dtype: str) -> dict[str, Run]:
    """Other stacks; steps of decoding, whose shapes change, would each be compiled anew and are left out."""

    def run_on(stack: str) -> Run:
        target = open_target(TargetSpec.parse(f"{stack}@cpu/{dtype}"))
        assert isinstance(target, WorkerTarget)
        nodes = TargetNodes(target, tiny.skeleton, dtype)

        def run(visit: Visit, names: Sequence[str]) -> Ran:
            chosen = [name for name in names if not name.startswith("decode")]
            return on_target(nodes, visit, chosen, state="calibrate", chunk=4)

        return run

    return {stack: run_on(stack) for stack in ("inductor", *(["onnxruntime"] if dtype == "fp32" else []))}


def _visits(tiny: TinyRelease, dtype: str, options: Mapping[str, str]) -> Iterator[Visit]:
    config = tiny.skeleton.config
    text = config.get("text_config", config)
    passes = prompts(
        text["vocab_size"] - 16,
        window=text.get("sliding_window") or 0,
        longest=text.get("max_position_embeddings", 0),
    )
    return visits(tiny, dtype, passes, options, arms={"attn": "sdpa"} if options else {})


def _judge(found: Alarms, variant: str, visit: Visit, run: Run, dtype: str) -> None:
    judge = VisitJudge(visit, own_yardstick(visit, torch_dtype(dtype)))
    ran = run(visit, [step.name for step in judge.passes])
    found.judged[variant] += 1
    for group, steps in judge.groups.items():
        if any(step.name not in ran.outputs for step in steps):
            continue
        judgement, unexplained = judge.judged(ran, group)
        found.flips["unexplained"] += unexplained
        if judgement is None:
            continue
        place = f"{variant} {visit.node.name} {group}"
        for metric in METRICS:
            value = float(getattr(judgement.metrics, metric))
            if value > found.largest.get(metric, 0.0):
                found.largest[metric], found.where[metric] = value, place
        failing = judge.fails(ran, group)
        if failing:
            found.faulty.append(f"{place}: {failing}")


def detection(tiny: TinyRelease, dtype: str) -> Sequence[BugResult]:
    """Puts every bug into one node of each kind."""
    skeleton = tiny.skeleton

    def nodes(kind: str) -> TargetNodes:
        return TargetNodes(InProcessTarget(f"eager@cpu/{kind}", capabilities=CLAIMS), skeleton, kind)

    wide = None if dtype == "fp32" else Wide(nodes("fp32"), Arm(skeleton, "fp32", {}))
    bench = Bench(BugArm(skeleton, "fp64", {}), nodes(dtype), dtype, wide, chunk=4)
    wanted = nodes_to_try(skeleton)
    results: list[BugResult] = []
    for visit in _visits(tiny, dtype, {}):
        if visit.node.name in wanted:
            results += try_bugs(visit, bench, wanted[visit.node.name])
    return matrix(results)


def main() -> None:
    """Prints both tables, family by family."""
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="*", default=[])
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--stacks", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    total: Counter[str] = Counter()
    for name in chosen.types or WIDE:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            tiny = TinyRelease(save_wide(name, Path(folder) / name))
            found = alarms(tiny, name, chosen.dtype, chosen.stacks)
            bugs = detection(tiny, chosen.dtype)
        print(f"{name} ({'sets' if name in SETTING else 'judges'}) {time.perf_counter() - began:.0f} s")
        _print_alarms(found, total)
        _print_bugs(bugs, total)
        sys.stdout.flush()
    print("all: " + ", ".join(f"{count} {what}" for what, count in sorted(total.items())))


def _print_alarms(found: Alarms, total: Counter[str]) -> None:
    total["nodes of correct targets"] += sum(found.judged.values())
    total["false alarms"] += len(found.faulty)
    print(f"  correct: {dict(found.judged)}, faulty {len(found.faulty)}, {dict(found.flips)}")
    for metric in METRICS:
        if metric in found.largest:
            print(f"    {metric:14} {found.largest[metric]:8.2f}  {found.where[metric]}")
    for line in found.faulty:
        print(f"    FALSE ALARM {line}")


def _print_bugs(bugs: Sequence[BugResult], total: Counter[str]) -> None:
    print("  bugs: " + ", ".join(f"{row.bug} no" for row in bugs if row.applicability == "no"))
    for row in bugs:
        if row.applicability == "no":
            continue
        outcome = {True: "found", False: "MISSED", None: f"not tried ({row.reason})"}[row.detected]
        if row.detected and not row.block_right:
            outcome = "WRONG BLOCK"
        total[f"bugs {row.applicability}, {outcome}"] += 1
        effect = float(row.effect)
        place = f"{row.bug:27}{row.where:22}{row.applicability:12}"
        print(f"    {place}{effect:10.3g} {row.dtype:5}{outcome} {row.by}")


if __name__ == "__main__":
    main()
