"""What a model asks of a stack, beyond its single operator calls: the whole list, and how it was taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .operator_call import OperatorCall
from .values import Anomaly, Value

UNDECIDED = frozenset(
    {"model_not_built", "capture_ended", "phase_not_captured", "graph_not_captured", "part_not_captured",
     "no_blocks"}
)  # fmt: skip
"""Codes of anomalies that leave a hole in a capture; the others say how it was taken."""


class CaptureRequest(Value):
    """How a model is captured.

    Attributes:
        device: type that model code is told where it asks for a tensor's device, e.g. `cpu`, `npu`.
        dtype: short name of weights and activations; empty: the one that the config declares.
        attn: attention implementation by transformers' name; empty: its default.
        experts: experts implementation by transformers' name; empty: its default.
        mode: `eager`, what a forward dispatches; `graph`, what an exported graph holds.
        ways: ids of ways around, with which the model is built, as `?with=` takes them.
    """

    device: str = "cpu"
    dtype: str = ""
    attn: str = ""
    experts: str = ""
    mode: str = "eager"
    ways: str = ""


class Kernel(Value):
    """A kernel that no dispatcher sees.

    Attributes:
        name: `hub:REPO`, `triton:NAME`, `package:NAME`.
        kind: `hub`, `triton`, `package` or `repository` (asked for by the release's own code).
        required_by: classes or modules of the model that ask for it, or the config's path.
        architectures: devices for which it is made, e.g. `cuda sm_90`; empty: not known.
        fallback: what the model does without it; empty: it does not run.
    """

    name: str
    kind: str
    required_by: Sequence[str] = ()
    architectures: Sequence[str] = ()
    fallback: str = ""


class FunctionCall(Value):
    """A point at which implementations switch, as the model's code calls it.

    Attributes:
        name: `attention`, `experts`, `linear`, `norm`, or the function's own name.
        implementation: that transformers chose, e.g. `sdpa`, `grouped_mm`.
        modules: paths that call it, the first one first.
        phase: in which.
        count: calls in that phase, over the whole model.
    """

    name: str
    implementation: str = ""
    modules: Sequence[str] = ()
    phase: str = "prefill"
    count: int = 1


class Capture(Value):
    """Everything a model asks of a stack.

    Attributes:
        request: how it was taken.
        calls: over all phases; `count` is over the whole model.
        functions: at the switch points.
        kernels: that no dispatcher sees.
        anomalies: phases and parts that could not be captured, and why.
        captured_dtype: in which the calls were captured.
        builder: versions of torch and transformers.
        restarted: of a part that is merged: operators, functions and anomalies before it do not count.
    """

    request: CaptureRequest
    calls: Sequence[OperatorCall] = ()
    functions: Sequence[FunctionCall] = ()
    kernels: Sequence[Kernel] = ()
    anomalies: Sequence[Anomaly] = ()
    captured_dtype: str = "bf16"
    builder: Mapping[str, str] = {}
    restarted: bool = False

    @property
    def unbuilt(self) -> str:
        """Why nothing but kernels is known: the model could not be built. Empty where it could."""
        return next((item.message for item in self.anomalies if item.code == "model_not_built"), "")

    @property
    def undecided(self) -> Sequence[Anomaly]:
        """What could not be captured, so that nothing may be concluded from its absence."""
        return [anomaly for anomaly in self.anomalies if anomaly.code in UNDECIDED]
