"""What every target must do, one function a check; each raises `AssertionError` with what was met."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from day0.adapters.base.dtypes import BITS
from day0.adapters.base.errors import RemoteError, UnsupportedError, WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import CAPABILITIES, Answer, Call, Fragment, Paused
from day0.adapters.targets.target import WorkerTarget
from day0_worker import ERROR_KINDS, trees
from day0_worker.dtypes import torch_dtype

from . import tiny_moe
from .tiny_llama import ARCHITECTURE, NODES, PROMPT, TinyLlama, make_tiny_llama
from .tiny_moe import TinyMoe, make_tiny_moe

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = {"fp64": 1e-6, "fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2}
"""Relative L2 error of one node or operator against fp32 or fp64: some ten times the rounding noise of each
dtype (unit roundoff 6e-8, 5e-4, 4e-3), far below a wrong result. Nodes in fp64 are held against fp32 ones."""

_DESCRIBE_SECONDS = 60.0


@dataclass
class Subject:
    """The target under test and a folder to work in."""

    target: WorkerTarget
    folder: Path
    _models: dict[str, TinyLlama] = field(default_factory=dict)

    @cached_property
    def dtype(self) -> str:
        """The dtype that the target was opened with, or the first it claims."""
        claimed = self.target.describe().dtypes.get("weights", ())
        return self.target.spec.dtype or (claimed[0] if claimed else "fp32")

    @cached_property
    def moe(self) -> TinyMoe:
        """A layer with experts in `dtype`."""
        return make_tiny_moe(self.dtype, self.target.spec.options.get("attn", "sdpa"))

    @property
    def model(self) -> TinyLlama:
        """The tiny llama in `dtype`, made once."""
        if self.dtype not in self._models:
            attention = self.target.spec.options.get("attn", "sdpa")
            self._models[self.dtype] = make_tiny_llama(self.folder / "llama", self.dtype, attention)
        return self._models[self.dtype]


Check = Callable[[Subject], None]


def describes_itself(subject: Subject) -> None:
    """Capabilities, dtypes and fingerprint are there, in the vocabulary, quickly."""
    began = time.monotonic()
    said = subject.target.describe()
    seconds = time.monotonic() - began
    assert seconds < _DESCRIBE_SECONDS, f"describe took {seconds:.0f} s, starting included"
    unknown = set(said.capabilities) - set(CAPABILITIES)
    assert not unknown, f"unknown capabilities {sorted(unknown)}; there are {', '.join(CAPABILITIES)}"
    assert said.capabilities, "it claims no capability at all"
    assert said.fingerprint.family, "the fingerprint has no family"
    assert said.fingerprint.exact, "the fingerprint names no exact version"
    assert said.devices, "it sees no device"
    for role, names in said.dtypes.items():
        wrong = set(names) - set(BITS)
        assert not wrong, f"dtypes of {role}: {sorted(wrong)} are no short dtype names"


def keeps_its_fingerprint(subject: Subject) -> None:
    """A fresh worker describes itself with the same fingerprint."""
    first = subject.target.describe().fingerprint
    subject.target.reset()
    again = subject.target.describe().fingerprint
    assert first == again, f"the fingerprint changed from {first.exact} to {again.exact}"


def refuses_what_it_does_not_claim(subject: Subject) -> None:
    """Every capability it does not claim is refused as unsupported."""
    target, claimed = subject.target, set(subject.target.describe().capabilities)
    asked: dict[str, Callable[[], object]] = {
        "op": lambda: target.run_op(_call("aten.neg.default", [(2, 2)], "fp32"), [_ramp((2, 2), "fp32")]),
        "model": lambda: target.score(PROMPT),
        "generate": lambda: target.generate(PROMPT, new_tokens=1),
        "collectives": lambda: target.launch(1, {"job": "collectives"}),
    }
    for capability, ask in asked.items():
        if capability in claimed:
            continue
        try:
            ask()
        except UnsupportedError:
            continue
        raise AssertionError(f"{capability} is not claimed and was not refused")


def runs_operators(subject: Subject) -> None:
    """Operators of every claimed dtype agree with fp64 on the CPU."""
    for dtype in subject.target.describe().dtypes.get("activations", ()):
        if dtype not in TOLERANCE:
            continue
        for op, shapes, extra in _OPERATORS:
            tensors = [_ramp(shape, dtype) for shape in shapes]
            answer = subject.target.run_op(_call(op, shapes, dtype, extra), tensors)
            _close(f"{op} in {dtype}", _first(answer.outputs), _expected(op, tensors, extra), dtype)


def names_error_kinds(subject: Subject) -> None:
    """A missing operator and impossible shapes come back as errors of their kind; the worker lives on."""
    before = subject.target.pid
    for op, shapes, kinds in (
        ("aten.day0_has_no_such_operator.default", [(2, 2)], {"missing_operator"}),
        ("aten.mm.default", [(2, 3), (2, 3)], {"shape", "runtime"}),
    ):
        kind = ""
        try:
            subject.target.run_op(_call(op, shapes, "fp32"), [_ramp(shape, "fp32") for shape in shapes])
        except RemoteError as error:
            kind = error.kind
        assert kind, f"{op} with the shapes {shapes} was answered without an error"
        assert kind in ERROR_KINDS, f"{op} failed with the unknown kind {kind!r}"
        assert kind in kinds, f"{op} failed as {kind}, not as {' or '.join(sorted(kinds))}"
    assert subject.target.pid == before, "the worker did not survive an error of an operator"


def runs_operators_together(subject: Subject) -> None:
    """Operators asked for at once give what they give alone; one that fails leaves the others right."""
    dtype = subject.dtype
    calls = [_call(op, shapes, dtype, extra) for op, shapes, extra in _OPERATORS]
    inputs = [[_ramp(shape, dtype) for shape in shapes] for _, shapes, _ in _OPERATORS]
    guilty = len(calls) // 2
    calls.insert(guilty, _call("aten.mm.default", [(2, 3), (2, 3)], dtype))
    inputs.insert(guilty, [_ramp((2, 3), dtype)] * 2)
    before = subject.target.pid
    answers = list(subject.target.run_ops(calls, inputs))
    assert len(answers) == len(calls), f"{len(calls)} operators, {len(answers)} answers"
    failed = answers.pop(guilty)
    assert isinstance(failed, RemoteError), f"shapes that do not fit were answered with {failed}"
    assert subject.target.pid == before, "the worker did not survive an operator of a batch"
    del inputs[guilty]
    for (op, _, extra), tensors, answer in zip(_OPERATORS, inputs, answers, strict=True):
        assert not isinstance(answer, WorkerError), f"{op} failed among others: {answer}"
        _close(f"{op} among others", _first(answer.outputs), _expected(op, tensors, extra), dtype)


def runs_nodes(subject: Subject) -> None:
    """Embedding, layers, norm and head of a tiny llama agree with the CPU, in prefill and cached decode."""
    for phase in ("prefill", "decode"):
        for node in NODES:
            answer = _run(subject, node, node, phase, state="conformance")
            expected = subject.model.results[node, phase]
            _close(f"{node} in {phase}", _first(answer.outputs), expected, subject.dtype)
            assert answer.seconds >= 0, f"{node} took {answer.seconds} s"


def takes_lifted_weights(subject: Subject) -> None:
    """One prepared kind serves two layers with their own weights, and the same one repeats to the bit."""
    first, second = "model.layers.0", "model.layers.1"
    own = _first(_run(subject, first, first, "prefill").outputs)
    again = _first(_run(subject, first, first, "prefill").outputs)
    assert own.equal(again), (
        f"{first} run twice on the same input differs by {float((own - again).abs().max()):g}"
    )
    other = _first(_run(subject, first, second, "prefill", inputs_of=second).outputs)
    _close(f"{second} by the kind of {first}", other, subject.model.results[second, "prefill"], subject.dtype)


def reads_weights_by_reference(subject: Subject) -> None:
    """Weights named by file and offset give the same result as weights sent along."""
    import torch

    node = "model.norm"
    by_value = _first(_run(subject, node, node, "prefill").outputs)
    weight = subject.model.weights[node]["weight"].contiguous()
    file = subject.folder / "norm.bin"
    file.write_bytes(b"day0" * 16 + bytes(weight.view(torch.uint8).tolist()))
    leaf = {"file": str(file), "offset": 64, "dtype": subject.dtype, "shape": list(weight.shape)}
    inputs = subject.model.calls[node, "prefill"]
    handle = subject.target.prepare(_fragment(subject, node), inputs, mode="prefill")
    answer = subject.target.run(handle, node, {"weight": leaf}, inputs)
    assert _first(answer.outputs).equal(by_value), "weights read from a file give another result"


def stands_still_at_experts(subject: Subject) -> None:
    """A layer in two parts, experts on a stack of the chosen, is the layer; two sequences at once, cached."""
    moe, target = subject.moe, subject.target
    whole = {name: {"value": tensor} for name, tensor in moe.weights.items()}
    expected = {}
    for phase in tiny_moe.PHASES:
        handle = target.prepare(_moe_fragment(subject), moe.calls[phase], mode=phase)
        answer = target.run(handle, tiny_moe.NODE, whole, moe.calls[phase], state="whole")
        expected[phase] = _first(answer.outputs)
    for phase in tiny_moe.PHASES:
        standing = {state: _stand_still(subject, phase, state) for state in ("first", "second")}
        for state in ("second", "first"):
            ended = target.resume(standing[state].key, _expert_output(subject, standing[state]))
            assert isinstance(ended, Answer), f"{phase}: it called its experts a second time"
            _close(f"{phase} in two parts", _first(ended.outputs), expected[phase], subject.dtype)
    left = _stand_still(subject, "prefill", "third")
    target.drop()
    for state in ("whole", "first", "second", "third"):
        target.forget(state)
    try:
        target.resume(left.key, left.hidden)
    except RemoteError:
        return
    raise AssertionError("a run that was dropped went on")


def loads_checkpoints(subject: Subject) -> None:
    """Its own loader takes a checkpoint folder without a missing or unexpected key, and scores as the CPU."""
    report = subject.target.load(str(subject.model.folder), dtype=subject.dtype)
    said = f"missing {list(report.missing)}, unexpected {list(report.unexpected)}"
    assert not report.missing, said
    assert not report.unexpected, said
    assert not report.mismatched, f"mismatched {list(report.mismatched)}"
    assert report.weight_bytes > 0, "it loaded a model of no bytes"
    scores = _first(subject.target.score(PROMPT).outputs)
    _close("logits", scores, subject.model.logits, subject.dtype)


def generates(subject: Subject) -> None:
    """Greedy continuation has the asked length, whatever ends a text, and repeats."""
    subject.target.load(str(subject.model.folder), dtype=subject.dtype)
    first = subject.target.generate(PROMPT, new_tokens=5)
    assert [len(row) for row in first.tokens] == [5], f"asked for 5 new tokens, got {first.tokens}"
    best = int(subject.model.logits[0, -1].argmax())
    assert first.tokens[0][0] == best, f"the first token is {first.tokens[0][0]}, the CPU's best is {best}"
    assert 0 < first.first_token_seconds <= first.seconds, (
        f"{first.first_token_seconds} s of {first.seconds} s"
    )
    again = subject.target.generate(PROMPT, new_tokens=5)
    assert list(again.tokens) == list(first.tokens), f"{first.tokens}, then {again.tokens}"


def runs_collectives(subject: Subject) -> None:
    """Two ranks exchange data and get what the rank numbers say."""
    claimed = subject.target.describe().dtypes.get("collectives", ())
    job = {"job": "collectives", "dtypes": list(claimed) or ["fp32"], "elements": [1000], "samples": 2}
    ranks = subject.target.launch(2, job)
    assert len(ranks) == 2, f"{len(ranks)} of 2 ranks answered"
    for rank in ranks:
        assert rank["outcome"] == "finished", f"rank {rank['rank']} {rank['outcome']}: {rank['detail']}"
        for check in rank["checks"]:
            assert check["passed"], f"rank {rank['rank']}, {check['name']}: {check['detail']}"


def survives_the_death_of_its_worker(subject: Subject) -> None:
    """After its worker was killed the next calls work again, in a fresh one."""
    subject.target.reset()
    subject.target.describe()
    pid = subject.target.pid
    assert pid is not None, "no worker runs"
    os.kill(pid, signal.SIGKILL)
    subject.target.reset()
    subject.target.describe()
    assert subject.target.pid not in (None, pid), "no fresh worker was started"


CHECKS: Sequence[tuple[str, Check]] = (
    ("", describes_itself),
    ("", keeps_its_fingerprint),
    ("", refuses_what_it_does_not_claim),
    ("op", runs_operators),
    ("op", runs_operators_together),
    ("op", names_error_kinds),
    ("fragment", runs_nodes),
    ("fragment", takes_lifted_weights),
    ("fragment", reads_weights_by_reference),
    ("parts", stands_still_at_experts),
    ("model", loads_checkpoints),
    ("generate", generates),
    ("collectives", runs_collectives),
    ("", survives_the_death_of_its_worker),
)
"""Capability that a check needs (empty: none) and the check, in the order in which they run."""


_OPERATORS: Sequence[tuple[str, Sequence[tuple[int, ...]], Sequence[Any]]] = (
    ("aten.mm.default", [(8, 16), (16, 4)], []),
    ("aten.add.Tensor", [(4, 8), (8,)], []),
    ("aten.silu.default", [(4, 8)], []),
    ("aten.rsqrt.default", [(4, 8)], []),
    ("aten._softmax.default", [(4, 8)], [-1, False]),
    ("aten.mean.dim", [(4, 8)], [[-1], True]),
)


def _call(op: str, shapes: Sequence[tuple[int, ...]], dtype: str, extra: Sequence[Any] = ()) -> OperatorCall:
    arguments = []
    for alias, shape in enumerate(shapes):
        strides: list[int] = []
        step = 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= size
        facts = {"dtype": dtype, "shape": list(shape), "stride": strides, "alias": alias}
        arguments.append({"tensor": facts})
    return OperatorCall(
        op=op,
        args=[*arguments, *extra],
        dtypes=[dtype] * len(shapes),
        shapes=[list(shape) for shape in shapes],
    )


def _ramp(shape: Sequence[int], dtype: str) -> Tensor:
    import torch

    count = 1
    for size in shape:
        count *= size
    return (((torch.arange(count) * 37) % 101 + 1).double() / 50).reshape(tuple(shape)).to(torch_dtype(dtype))


def _expected(op: str, tensors: Sequence[Tensor], extra: Sequence[Any]) -> Tensor:
    import torch

    _, name, overload = op.split(".")
    function = getattr(getattr(torch.ops.aten, name), overload)
    result: Tensor = function(*(tensor.double() for tensor in tensors), *extra)
    return result


def _fragment(subject: Subject, node: str) -> Fragment:
    kind = "layer" if ".layers." in node else node
    return Fragment(
        node=node,
        kind=kind,
        architecture=ARCHITECTURE,
        config=subject.model.config,
        dtype=subject.dtype,
        options={},
    )


def _moe_fragment(subject: Subject) -> Fragment:
    return Fragment(
        node=tiny_moe.NODE,
        kind="layer with experts",
        architecture=tiny_moe.ARCHITECTURE,
        config=subject.moe.config,
        dtype=subject.dtype,
        options={},
    )


def _stand_still(subject: Subject, phase: str, state: str) -> Paused:
    moe, target, call = subject.moe, subject.target, subject.moe.calls[phase]
    handle = target.prepare(_moe_fragment(subject), call, mode=phase)
    rest = {name: {"value": tensor} for name, tensor in moe.rest.items()}
    paused = target.start(handle, tiny_moe.NODE, rest, call, pause=tiny_moe.EXPERTS, state=state)
    assert isinstance(paused, Paused), f"{phase}: it did not stand still at its experts"
    tokens, experts = paused.hidden.shape[0], len(next(iter(moe.experts.values())))
    assert paused.ids.shape == (tokens, 2), f"{phase}: ids of the shape {list(paused.ids.shape)}"
    ids = sorted(set(paused.ids.flatten().tolist()))
    assert 0 <= ids[0] <= ids[-1] < experts, f"{phase}: experts {ids} of {experts}"
    return paused


def _expert_output(subject: Subject, paused: Paused) -> Tensor:
    import torch

    moe, target = subject.moe, subject.target
    ids = torch.unique(paused.ids)
    stack = {name: {"value": tensor[ids].contiguous()} for name, tensor in moe.experts.items()}
    handle = target.prepare(_moe_fragment(subject), moe.calls["prefill"], mode="prefill")
    places = torch.searchsorted(ids, paused.ids)
    answer = target.run_experts(
        handle, tiny_moe.NODE, tiny_moe.EXPERTS, stack, paused.hidden, places, paused.weights
    )
    return _first(answer.outputs)


def _run(
    subject: Subject, prepared: str, node: str, phase: str, state: str | None = None, inputs_of: str = ""
) -> Any:
    inputs = subject.model.calls[inputs_of or node, phase]
    handle = subject.target.prepare(_fragment(subject, prepared), inputs, mode=phase)
    weights = {name: {"value": tensor} for name, tensor in subject.model.weights[node].items()}
    return subject.target.run(handle, node, weights, inputs, state=state)


def _first(outputs: Call) -> Tensor:
    value = trees.decode(outputs.tree, outputs.tensors)
    tensor: Tensor = value[0] if isinstance(value, tuple | list) else value
    return tensor


def _close(what: str, got: Tensor, expected: Tensor, dtype: str) -> None:
    import torch

    assert tuple(got.shape) == tuple(expected.shape), (
        f"{what}: shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    )
    assert bool(torch.isfinite(got.double()).all()), f"{what}: a result is not finite"
    error = float((got.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30))
    allowed = TOLERANCE.get(dtype, TOLERANCE["bf16"])
    assert error <= allowed, f"{what}: relative error {error:.3g}, allowed {allowed:.3g}"
