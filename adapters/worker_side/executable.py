"""What a compiling stack made of a node: something to call, and what became of its operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Sequence

import torch

Compiled = Callable[[List[torch.Tensor]], List[torch.Tensor]]
"""Takes all inputs in order and returns all outputs in order, on the CPU or the stack's device."""

_TEXT = 400


@dataclass
class Executable:
    """A compiled graph.

    Attributes:
        run: executes it.
        operators: name -> number in the graph that the compiler was given.
        kernels: what it executes -> how many, by the stack's own names.
        graphs: how many times something was compiled for it.
        breaks: why parts of it run uncompiled, in the compiler's words.
        fixed: why it serves only the shapes it was compiled for, where others were asked for; else empty.
    """

    run: Compiled
    operators: Dict[str, int] = field(default_factory=dict)
    kernels: Dict[str, int] = field(default_factory=dict)
    graphs: int = 1
    breaks: List[str] = field(default_factory=list)
    fixed: str = ""


def summed(parts: Sequence[Executable]) -> Dict[str, Any]:
    """One report of everything that was compiled for a kind; operators and kernels are those of the first."""
    first = parts[0] if parts else Executable(lambda inputs: inputs, graphs=0)
    return {
        "graphs": sum(part.graphs for part in parts),
        "operators": dict(first.operators),
        "kernels": dict(first.kernels),
        "breaks": sorted({text for part in parts for text in part.breaks}),
        "fixed": first.fixed,
    }


def words(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_TEXT]


def for_all_sizes(dims: List[List[int]], make: Callable[[List[List[int]]], Executable]) -> Executable:
    """One graph for all sizes of what varies, or where that cannot be had, one for the example's alone.

    Args:
        dims: for each input the dimensions that vary.
        make: compiles for such dimensions, or for fixed shapes where it is given none.
    """
    fixed = ""
    if any(dims):
        try:
            return make(dims)
        except Exception as error:  # whatever exporter or converter raises: these shapes alone may do
            fixed = words(error)
    made = make([])
    made.fixed = fixed
    return made


def varying_dims(inputs: Sequence[torch.Tensor], sizes: Sequence[int], first: int) -> List[List[int]]:
    """For each input the dimensions that stand for something that varies: those of one of the sizes.

    Args:
        inputs: example inputs.
        sizes: that no other dimension of the example has.
        first: inputs before this one (weights) never vary.
    """
    return [
        [dim for dim, size in enumerate(tensor.shape) if size in sizes] if place >= first else []
        for place, tensor in enumerate(inputs)
    ]


def shapes_for_export(dims: Sequence[Sequence[int]]) -> Mapping[str, Any]:
    """The `dynamic_shapes` of a module that takes `*flat`; torch finds out how the sizes hang together."""
    auto = torch.export.Dim.AUTO
    return {"flat": tuple({dim: auto for dim in each} or None for each in dims)}
