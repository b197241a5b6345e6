"""Canonical bugs, put into one node of a model to see whether they are found.

`?with=bug:NAME@NODE` puts one into a target by hand, e.g. `bug:rope_pairing@model.layers.1`. Each is a fault
that a port of a model really had; none touches a weight or another node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Tuple

from day0_worker import bug_attention, bug_experts, bug_positions, bug_weights
from day0_worker.bug_parts import Changes
from day0_worker.stack import StackError
from day0_worker.workarounds import OPTION, Workaround

if TYPE_CHECKING:
    import torch

Put = Callable[["torch.nn.Module", Any, Changes], str]
"""Puts a bug into a module of a model with that config; says why it cannot, else empty."""

BUGS: Mapping[str, Put] = {
    "rope_pairing": bug_attention.rope_pairing,
    "norm_eps": bug_weights.norm_eps,
    "missing_block_scale": bug_weights.missing_block_scale,
    "transposed_block_scale": bug_weights.transposed_block_scale,
    "dropped_bias": bug_weights.dropped_bias,
    "mask_off_by_one": bug_attention.mask_off_by_one,
    "swapped_experts": bug_experts.swapped_experts,
    "permuted_experts": bug_experts.permuted_experts,
    "unnormalised_top_k": bug_experts.unnormalised_top_k,
    "dropped_routed_scaling": bug_experts.dropped_routed_scaling,
    "ignored_rotary_scaling": bug_positions.ignored_rotary_scaling,
    "window_off_by_one": bug_attention.window_off_by_one,
    "positions_count_padding": bug_positions.positions_count_padding,
    "stale_kv_slot": bug_attention.stale_kv_slot,
    "wrong_head_grouping": bug_attention.wrong_head_grouping,
    "low_precision_accumulation": bug_weights.low_precision_accumulation,
    "clamped_activations": bug_weights.clamped_activations,
    "expert_row": bug_experts.expert_row,
}
"""Name -> how it is put into a module."""


class Bug(Workaround):
    """`bug:NAME@NODE`: a way around nothing."""

    name = "bug"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self.bug, _, self.node = argument.partition("@")

    def applies(self, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """See `Workaround`: no call needs one."""
        return False

    def apply(self, model: Any) -> None:
        """See `Workaround`.

        Raises:
            StackError: `unsupported`, there is no bug or node of that name, or the node lacks the part.
        """
        put(model, self.bug, self.node)


def put(model: Any, bug: str, node: str) -> Changes:
    """Puts a bug into one node of a model.

    Args:
        model: of transformers, with weights or without.
        bug: out of `BUGS`.
        node: module path.

    Returns:
        What undoes it.

    Raises:
        StackError: see `Bug.apply`.
    """
    if bug not in BUGS:
        raise StackError(f"no bug is called {bug!r}, there are {', '.join(BUGS)}", "unsupported")
    try:
        module = model.get_submodule(node)
    except AttributeError as error:
        raise StackError(f"the model has no module {node!r} for the bug {bug}", "unsupported") from error
    changes = Changes()
    reason = BUGS[bug](module, model.config, changes)
    if reason:
        changes.undo()
        raise StackError(f"{node} cannot have the bug {bug}: {reason}", "unsupported")
    return changes


def bugs_in(options: Mapping[str, str]) -> Tuple[List[Tuple[str, str]], Dict[str, str]]:
    """Bugs and their nodes that a target's options name, in order, and the options without them."""
    ways = [way for way in options.get(OPTION, "").split(",") if way]
    bugs = [Bug(way.partition(":")[2]) for way in ways if way.partition(":")[0] == Bug.name]
    if not bugs:
        return [], dict(options)
    others = ",".join(way for way in ways if way.partition(":")[0] != Bug.name)
    plain = {key: value for key, value in options.items() if key != OPTION}
    return [(bug.bug, bug.node) for bug in bugs], {**plain, **({OPTION: others} if others else {})}


def lacking(model: Any, node: str) -> Dict[str, str]:
    """Bugs that the node cannot have -> why; the model is left as it is."""
    found: Dict[str, str] = {}
    for bug, put_into in BUGS.items():
        changes = Changes()
        reason = put_into(model.get_submodule(node), model.config, changes)
        changes.undo()
        if reason:
            found[bug] = reason
    return found
