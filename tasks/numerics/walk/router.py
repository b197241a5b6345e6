"""Where the tokens of one node went, arm by arm, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call, Paused
from day0.adapters.base.values import Number, json_number
from day0_worker.trees import decode, encode

from ..prompts.passes import MAIN, Pass
from ..record import FirstFault
from ..record_parts import Routing
from .expert_runs import experts_of
from .node import NodeFacts, rows_of
from .node_run import Replay, Results
from .routing import Account, Choice, TopK, account, forced_weights
from .units import Unit

FLIPS = "unexplained_flips"
"""Name of the measure: tokens sent to other experts that rounding does not explain; none is allowed."""
_BY_IDS, _BY_BOTH = "forced_ids", "forced_both"
UNKNOWN = "the target does not show where it sends its tokens"


@dataclass(frozen=True)
class Kept:
    """What an arm's run gave its experts, as it is kept.

    Attributes:
        choice: experts and weights.
        scores: what the router chose from, in order.
    """

    choice: Choice
    scores: Sequence[TopK]


def kept_call(paused: Paused) -> Call:
    """What a run gave its experts, in the form in which units hold values."""
    scores = [[one.scores, one.k] for one in paused.scores]
    return Call(*encode([paused.ids, paused.weights, scores]))


def _kept(call: Call) -> Kept:
    ids, weights, scores = decode(call.tree, call.tensors)
    return Kept(Choice(ids, weights), [TopK(tensor, k) for tensor, k in scores])


def choices_of(outputs: Mapping[str, Call], passes: Sequence[Pass]) -> Mapping[tuple[str, str], Kept]:
    """Arm and pass -> what that arm's router chose, of those that are kept in a unit's values."""
    return {
        (arm, step.name): _kept(outputs[f"routed.{arm}/{step.name}"])
        for arm in ("reference", "noise_local")
        for step in passes
        if f"routed.{arm}/{step.name}" in outputs
    }


def replays_of(node: Node, results: Results, outputs: Mapping[str, Call]) -> Mapping[str, Replay]:
    """Tokens of the main pass that the target sent elsewhere, with the reference's choices forced on them.

    Args:
        node: of the skeleton.
        results: of runs that stand before their experts.
        outputs: what is known of the reference's routing, where it was not run now; see `choices_of`.
    """
    reference = results.routed.get(("reference", MAIN))
    target = results.routed.get(("local", MAIN))
    known = outputs.get(f"routed.reference/{MAIN}")
    ours = Choice(reference.ids, reference.weights) if reference is not None else (
        _kept(known).choice if known is not None else None
    )  # fmt: skip
    if ours is None or target is None or target.ids.shape != ours.ids.shape:
        return {}
    theirs = Choice(target.ids, target.weights)
    rows = (~account("", ours, theirs, experts=experts_of(node)).same).nonzero().reshape(-1)
    if not len(rows):
        return {}
    ours, theirs = (Choice(one.ids[rows], one.weights[rows]) for one in (ours, theirs))
    return {
        _BY_IDS: Replay(("local", MAIN), rows, ours.ids, forced_weights(ours, theirs)),
        _BY_BOTH: Replay(("local", MAIN), rows, ours.ids, ours.weights),
    }


class Router:
    """The choices of all arms at one node.

    Args:
        node: of the skeleton.
        outputs: `routed.ARM/PASS` -> what an arm of the reference gave its experts, and
            `experts.reference/PASS` -> what they made of it, beside other values.
        results: of the runs of the target, with what was replayed.
        passes: that are compared.
        local: what is known of the target there, where it was not run now.
    """

    def __init__(
        self,
        node: Node,
        outputs: Mapping[str, Call],
        results: Results,
        passes: Sequence[Pass],
        local: Unit | None = None,
    ) -> None:
        self._node, self._results, self._passes = node, results, passes
        self._known = local
        self._targets = {
            name: Choice(paused.ids, paused.weights)
            for (stream, name), paused in results.routed.items()
            if stream == "local"
        }
        if local is not None:
            prefix = "routed/"
            self._targets |= {
                key.removeprefix(prefix): _kept(call).choice
                for key, call in local.values.items()
                if key.startswith(prefix)
            }
        self._wanted = outputs.get(f"experts.reference/{MAIN}")
        self._arms = choices_of(outputs, passes)
        self._accounts = {step.name: found for step in passes if (found := self._account(step)) is not None}

    def kept(self) -> Mapping[str, Tensor] | None:
        """Pass -> [tokens] bool, which neither noise arm nor target routed otherwise; None: not known."""
        if not self._accounts:
            return None
        found: dict[str, Tensor] = {}
        for name, ours in self._accounts.items():
            reference, noise = self._arms[("reference", name)], self._arms.get(("noise_local", name))
            same = ours.same
            if noise is not None:
                experts = experts_of(self._node)
                same = same & account("", reference.choice, noise.choice, experts=experts).same
            found[name] = same
        return found

    def account(self, facts: NodeFacts) -> Routing | None:
        """For the record, of the main prompt; None where the node has no experts that are handed out."""
        if not self._node.experts:
            return None
        found = self._accounts.get(MAIN)
        if found is None:
            return Routing(name=self._node.name, experts=experts_of(self._node), reason=UNKNOWN)
        local = facts.block.local
        forced = self.forced() if self._known is None else self._known.facts["forced"]
        return found.facts.model_copy(
            update={"unflipped_ratio": local.ratio if local is not None else "NaN", **forced}
        )

    def judged(self, facts: NodeFacts) -> NodeFacts:
        """The facts with the account; a node whose router sends tokens elsewhere without a near-tie fails."""
        account = self.account(facts)
        found = self._accounts.get(MAIN)
        count = found.facts.unexplained if found is not None and found.certain else 0
        update: dict[str, object] = {"routing": account}
        if count and facts.block.verdict != "fail" and account is not None:
            reason = f"{count} of {account.tokens} tokens go to other experts without a near-tie"
            update["block"] = facts.block.model_copy(update={"verdict": "fail", "reason": reason})
            update["fault"] = FirstFault(block=self._node.name, metric=FLIPS, value=count, tolerance=0)
        return facts.model_copy(update=update)

    def _account(self, step: Pass) -> Account | None:
        reference = self._arms.get(("reference", step.name))
        target = self._targets.get(step.name)
        if reference is None or target is None or target.ids.shape != reference.choice.ids.shape:
            return None
        noise = self._arms.get(("noise_local", step.name))
        return account(
            self._node.name,
            reference.choice,
            target,
            experts=experts_of(self._node),
            noise=noise.choice if noise else None,
            reference_scores=reference.scores,
            noise_scores=noise.scores if noise else (),
            rows=rows_of(step),
        )

    def forced(self) -> dict[str, Number]:
        """Error of the experts' output on the flipped tokens with the reference's choices forced on them."""
        found = self._accounts.get(MAIN)
        if found is None:
            return {}
        rows = (~found.same).nonzero().reshape(-1)
        if not len(rows) or self._wanted is None:
            return {}
        wanted = decode(self._wanted.tree, self._wanted.tensors)[rows]
        return {
            _BY_IDS: json_number(_relative(self._results.replayed.get(_BY_IDS), wanted)),
            _BY_BOTH: json_number(_relative(self._results.replayed.get(_BY_BOTH), wanted)),
        }


def _relative(output: Tensor | None, wanted: Tensor) -> float:
    if output is None or output.shape != wanted.shape:
        return math.nan
    below = float(wanted.double().norm())
    return float((output.double() - wanted.double()).norm()) / below if below > 0 else math.nan
