"""What is asked at one node, what is known of it before, and what is kept of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.models.node_weights import NodeWeights
from day0_worker.dtypes import torch_dtype
from day0_worker.trees import encode

from ..measures.signatures import KEY, signature_call, signature_of
from ..measures.values import in_dtype, same_call
from ..prompts.passes import MAIN, Pass
from .at_head import at_head
from .case import Case
from .forwards import Inputs
from .node import Failure, NodeFacts, Seen, compare, rows_of
from .node_run import Ask, NodeRun, Replay, Results, Sides
from .router import Router, choices_of, kept_call, replays_of
from .unit_keys import NodeKeys
from .units import Unit, save_unit
from .visit import PassVisit, Visit


class Watch(Protocol):
    """Whatever looks at a node beyond the plain comparison."""

    def __call__(self, visit: Visit, facts: NodeFacts, sides: Sides) -> NodeFacts:
        """Looks at a node; the facts that it returns stand for those that it was given."""
        ...


class NodeWork:
    """One call of a node.

    Args:
        case: what is compared.
        node: of the skeleton.
        inputs: of each pass.
        steps: the passes that wait at the node.
        keys: of the call.
        unit: what is known of the reference there; None: nothing.
        local: what is known of the target on the reference's input; None: nothing.
        keep: whether outputs are stored; those of the last node are not.

    Attributes:
        reference_known: whether its outputs on reference and noise arm are there.
        steps: the passes that wait at the node.
        inputs: of each pass.
        lowered: pass -> the reference's inputs in the target's dtypes.
        reference_outputs: `STREAM/PASS` -> output, of reference, noise_local and noise.
        own_outputs: `own/PASS` -> the target's output on its own stream.
        facts: about the reference: errors of the noise arm, weights that are not finite.
        trouble: pass -> why the reference gave nothing.
    """

    def __init__(
        self,
        case: Case,
        node: Node,
        inputs: Mapping[str, Inputs],
        steps: Sequence[Pass],
        keys: NodeKeys,
        unit: Unit | None,
        local: Unit | None = None,
        *,
        keep: bool,
    ) -> None:
        self._case, self.node, self.inputs, self.keys, self.keep = case, node, inputs, keys, keep
        self._local = local
        self.steps = steps
        self._passes = [step for step in self.steps if not step.alone]
        self.lowered = {name: one.lowered for name, one in inputs.items()}
        self._cached = node.state.kind != "none" and any(step.cached for step in self._passes)
        self.reference_known = unit is not None
        self.reference_outputs: dict[str, Call] = dict(unit.values) if unit else {}
        self.facts = dict(unit.facts) if unit else {}
        self.own_outputs: dict[str, Call] = {}
        self.trouble: dict[str, str] = dict(self.facts.get("trouble", {}))

    def run(
        self, run: NodeRun, weights: NodeWeights, watch: Sequence[Watch], *, known: Unit | None
    ) -> NodeFacts | None:
        """Runs what is not known, keeps it, judges the target's part.

        Raises:
            ArmError: the reference failed on the main pass.
            CheckpointError: weights cannot be read.
        """
        asked = known is None and run.sides.target is not None
        asks = [] if self.reference_known else [*self._of_reference(), *self._of_noise(run.sides)]
        results = run.run([*asks, *(self._of_target() if asked else ())], self.replays)
        if not self.reference_known:
            self._take_reference(results, run.sides)
        if not asked:
            return NodeFacts.model_validate(known.facts["node"]) if known is not None else None
        facts = self._judged(results)
        if watch:
            visit = self._visit(results, weights)
            for look in watch:
                facts = look(visit, facts, run.sides)
        own = {key: call for key, call in self.own_outputs.items() if self.keep or key == KEY}
        save_unit(self._case.store, self.keys.own, Unit(own, {"node": facts.model_dump(mode="json")}))
        return facts

    def replays(self, results: Results) -> Mapping[str, Replay]:
        """Which tokens go through the target's experts once more; see `NodeRun.run`."""
        return replays_of(self.node, results, self.reference_outputs)

    def _state(self, stream: str, step: Pass) -> str | None:
        return stream if self._cached and (step.name == MAIN or step.cached) else None

    def _of_reference(self) -> Iterator[Ask]:
        for step in self.steps:
            yield Ask("reference", step, self.inputs[step.name].reference, self._state("reference", step))

    def _of_noise(self, sides: Sides) -> Iterator[Ask]:
        if sides.noise is sides.reference:
            return
        for step in self._passes:
            yield Ask("noise_local", step, self.lowered[step.name], self._state("noise_local", step))
        for step in self._passes:
            noise = self.inputs[step.name].noise
            assert noise is not None, "the noise arm runs every pass that is compared"
            if self._cached or not same_call(self.lowered[step.name], noise):
                yield Ask("noise", step, noise, self._state("noise", step))

    def _of_target(self) -> Iterator[Ask]:
        if self._local is None:
            yield from self.local_asks()
        for step in self._passes:
            own = self.inputs[step.name].own
            if own is not None and (self._cached or not same_call(self.lowered[step.name], own)):
                yield Ask("own", step, own, self._state("own", step))

    def local_asks(self) -> Iterator[Ask]:
        """What the target is asked on the reference's input; on the main pass twice."""
        for step in self._passes:
            yield Ask("local", step, self.lowered[step.name], self._state("local", step))
            if step.name == MAIN:
                yield Ask("again", step, self.lowered[step.name])

    def keep_local(self, results: Results) -> None:
        """Keeps what the target gave on the reference's input, for the walk to find."""
        router = Router(self.node, self.reference_outputs, results, self._passes)
        values = {f"{stream}/{name}": call for (stream, name), call in results.outputs.items()}
        routed = {f"routed/{name}": kept_call(paused) for (_, name), paused in results.routed.items()}
        failures = {
            f"{stream}/{name}": Failure.of(error).model_dump(mode="json")
            for (stream, name), error in results.errors.items()
        }
        facts = {"failures": failures, "forced": router.forced()}
        save_unit(self._case.store, self.keys.local, Unit(values | routed, facts))

    def _take_reference(self, results: Results, sides: Sides) -> None:
        """Keeps what reference and noise arm gave.

        Where the noise arm failed, its stream goes on with the reference's output.
        """
        errors: dict[str, str] = {}
        for step in self.steps:
            name = step.name
            output = results.outputs.get(("reference", name))
            if output is None:
                error = results.errors.get(("reference", name))
                self.trouble[name] = error.message if error else "the reference gave no output"
                continue
            self.reference_outputs[f"reference/{name}"] = output
            if step.alone:
                continue
            local, own = self._noise_of(results, sides, name, output)
            if local is not None:
                self.reference_outputs[f"noise_local/{name}"] = local
            else:
                errors[name] = results.errors[("noise_local", name)].message
            self.reference_outputs[f"noise/{name}"] = own
        routed = {
            f"routed.{stream}/{name}": kept_call(paused)
            for (stream, name), paused in results.routed.items()
            if stream in ("reference", "noise_local")
        }
        self.reference_outputs |= routed
        made = results.experts.get(("reference", MAIN))
        if made is not None:
            self.reference_outputs[f"experts.reference/{MAIN}"] = Call(*encode(made))
        self.facts = {"noise_errors": errors, "nonfinite": results.nonfinite, "trouble": self.trouble}
        if self.keep:
            lowered = {f"lowered/{name}": call for name, call in self.lowered.items()}
            save_unit(
                self._case.store, self.keys.reference, Unit(self.reference_outputs | lowered, self.facts)
            )

    def _noise_of(self, results: Results, sides: Sides, name: str, output: Call) -> tuple[Call | None, Call]:
        if sides.noise is sides.reference:
            return output, output
        local = results.outputs.get(("noise_local", name))
        own = results.outputs.get(("noise", name), local if ("noise", name) not in results.errors else None)
        return local, own if own is not None else in_dtype(output, torch_dtype(self._case.dtype))

    def _judged(self, results: Results) -> NodeFacts:
        local = {f"{stream}/{name}": call for (stream, name), call in results.outputs.items()
                 if stream in ("local", "again", "own")}  # fmt: skip
        failures = {
            f"{stream}/{name}": Failure.of(error)
            for (stream, name), error in results.errors.items()
            if stream in ("local", "again", "own")
        }
        if self._local is not None:
            local |= {key: call for key, call in self._local.values.items() if not key.startswith("routed/")}
            failures |= {
                key: Failure.model_validate(value) for key, value in self._local.facts["failures"].items()
            }
        for step in self._passes:
            key, own = f"own/{step.name}", self.inputs[step.name].own
            shared = own is not None and ("own", step.name) not in results.errors
            if key not in local and shared and f"local/{step.name}" in local and not self._cached:
                local[key] = local[f"local/{step.name}"]
        router = Router(self.node, self.reference_outputs, results, self._passes, self._local)
        seen = Seen(
            node=self.node,
            dtype=torch_dtype(self._case.dtype),
            passes=[step for step in self._passes if f"reference/{step.name}" in self.reference_outputs],
            inputs=self.inputs,
            values={**self.reference_outputs, **local},
            failures=failures,
            noise_error=self.facts.get("noise_errors", {}).get(MAIN, ""),
            kept=router.kept(),
            nonfinite=self.facts.get("nonfinite", {}),
        )
        facts = compare(seen)
        update = at_head(seen, self._case.tokens) if facts.outcome != "shape" else {}
        self.own_outputs = (
            {key: call for key, call in local.items() if key.startswith("own/")}
            if facts.outcome != "shape"
            else {}
        )
        main = local.get(f"local/{MAIN}")
        signature = signature_of(main) if main is not None else None
        if signature is not None:
            self.own_outputs[KEY] = signature_call(signature)
        return router.judged(facts.model_copy(update=update))

    def _visit(self, results: Results, weights: NodeWeights) -> Visit:
        passes = [
            PassVisit(
                name=step.name,
                mode=step.mode,
                exact=self.inputs[step.name].reference,
                lowered=self.lowered[step.name],
                reference=self.reference_outputs[f"reference/{step.name}"],
                noise=self.reference_outputs.get(f"noise_local/{step.name}"),
                local=results.outputs.get(("local", step.name)),
                rows=rows_of(step),
                cached=bool(step.cached),
            )
            for step in self._passes
            if f"reference/{step.name}" in self.reference_outputs
        ]
        routed = {name: paused.ids for (stream, name), paused in results.routed.items() if stream == "local"}
        experts = weights.experts if self.node.experts else None
        routers = choices_of(self.reference_outputs, self._passes)
        return Visit(self.node, weights.exact(), weights.sent(), passes, experts, routed, routers)
