"""Many operators as one graph; calls that differ in values alone are one operator of it, run in turn."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import torch

from day0_worker.batches import OperatorJob
from day0_worker.one_operator import ManyOperators, OneOperator
from day0_worker.stack import Stack

Run = Callable[[List[torch.Tensor]], Sequence[torch.Tensor]]
"""Inputs of a graph -> its outputs."""
Build = Callable[[ManyOperators, List[torch.Tensor]], Run]
"""Exports or compiles a module for example inputs."""


def run_as_graph(stack: Stack, jobs: Sequence[OperatorJob], build: Build) -> List[Any]:
    """What each operator returns.

    Args:
        stack: whose clock runs around the executions, and whose ways around stand in for operators.
        jobs: independent of each other; their tensors lie where the graph takes them.
        build: see `Build`.
    """
    made = [OneOperator(stack.ways.operator(job.op), job.args, job.kwargs) for job in jobs]
    turns = _turns(made)
    first = turns[0]
    many = ManyOperators([made[first[place]] for place in range(len(first))])
    run = build(many, many.inputs)
    values: Dict[int, Any] = {}
    for turn in turns:
        # Operators that have no more values to be run with are given their first ones again.
        given = [made[turn.get(place, first[place])] for place in range(len(first))]
        inputs = [tensor for one in given for tensor in one.inputs]
        with stack.timed():
            outputs = run(inputs)
        found = many.results(outputs)
        values.update({index: found[place] for place, index in turn.items()})
    return [values[index] for index in range(len(jobs))]


def _turns(made: Sequence[OneOperator]) -> List[Dict[int, int]]:
    """Turn by turn, which job (by index) each operator of the graph (by place) is run for."""
    places: Dict[str, int] = {}
    turns: List[Dict[int, int]] = []
    met: Dict[int, int] = {}
    for index, one in enumerate(made):
        place = places.setdefault(one.signature, len(places))
        turn = met.get(place, 0)
        met[place] = turn + 1
        if turn == len(turns):
            turns.append({})
        turns[turn][place] = index
    return turns
