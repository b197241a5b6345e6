"""What stands in for something that a target lacks: the contract, and what was chosen for one target.

A way around is written once, for the worker: a class derived from `day0_worker.workarounds.Workaround`, which
needs the standard library and torch alone. `Workaround` below is what Day0's side asks of such a class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .operator_call import OperatorCall
from .target_spec import TargetSpec
from .values import Number, Value


class Workaround(Protocol):
    """One way around.

    Attributes:
        id: `NAME` or `NAME:ARGUMENT`, e.g. `cast:aten.rsqrt.default:fp32`; what `?with=` takes.
        replaces: operators that the model no longer calls, or calls otherwise.
    """

    id: str
    replaces: Sequence[str]

    def applies(self, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """Whether it stands in for this call (an `OperatorCall` as JSON) of a model with this config."""
        ...

    def apply(self, model: Any) -> None:
        """Changes a model in place, with or without weights; nothing where only operators are replaced."""
        ...

    def operators(self) -> Mapping[str, Callable[..., Any]]:
        """Operator name -> a function of the same arguments that is run in its place."""
        ...


class Cost(Value):
    """What a way around costs, measured on the target by replaying the call.

    Attributes:
        error: deviation from the fp64 reference, relative; None where nothing was compared.
        tolerance: what the error was held against.
        launches: operators that one call runs, beyond the one that it replaces.
    """

    error: Number | None = None
    tolerance: float | None = None
    launches: int = 0


class Chosen(Value):
    """A way around that the later stages run with.

    Attributes:
        id: of the way around, or `attn=eager` for an implementation of the model's own.
        options: to give the target.
        replaces: operators that it gets around.
        cost: as measured.
        checked: how it was tried on the target.
    """

    id: str
    options: Mapping[str, str]
    replaces: Sequence[str] = ()
    cost: Cost = Cost()
    checked: str = ""


def with_chosen(spec: TargetSpec, chosen: Sequence[Chosen]) -> TargetSpec:
    """The target with what was chosen; ways around that it already names stay."""
    options = dict(spec.options)
    ways = [way for way in options.pop("with", "").split(",") if way]
    for one in chosen:
        for key, value in one.options.items():
            if key == "with":
                ways += [way for way in value.split(",") if way not in ways]
            else:
                options[key] = value
    return spec.model_copy(update={"options": options | ({"with": ",".join(ways)} if ways else {})})


def calls_around(way: Workaround, call: OperatorCall, config: Mapping[str, Any]) -> bool:
    """Whether the way around stands in for the call."""
    return call.op in way.replaces and way.applies(call.model_dump(mode="json"), config)
