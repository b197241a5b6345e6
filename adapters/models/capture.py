"""The phases in which a model's operators are captured, and how each is run on meta."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..base.errors import words_of
from ..base.operator_call import OperatorCall
from ..base.operator_capture import FunctionCall
from ..base.values import Anomaly
from .phase_inputs import (
    PREFILL_TOKENS,
    Form,
    NoCache,
    cache_of,
    inputs_of,
    long_prefill_tokens,
    stated,
    takes,
    text_config,
)
from .recorder import CaptureOverrun, Recorded, capture_calls, record_phase, until_it_fails
from .sampling import choose_token, generate_without_forwards

__all__ = ["Captured", "capture_calls", "capture_phases", "long_prefill_tokens", "phases_of", "text_config"]

LONG_CALLS = 30_000
"""Dispatched calls after which a long prefill is given up for a shorter one."""
UNROLLED_CALLS = 10_000
"""Dispatched calls that a shorter one may come to."""
UNROLLS = 4
"""A short prefill that dispatches this many times what a single token does unrolls over its tokens."""
SHORTEST_LONG = 2 * PREFILL_TOKENS

Report = Callable[[Anomaly], None]


@dataclass(frozen=True)
class Captured:
    """What one phase calls.

    Attributes:
        phase: its name.
        calls: of operators.
        functions: at the points where implementations switch.
    """

    phase: str
    calls: list[OperatorCall]
    functions: list[FunctionCall]


def capture_phases(
    model: torch.nn.Module, config: Any, *, device: str = "cpu", report: Report | None = None
) -> list[OperatorCall]:
    """All operator calls of a short prefill, one decode step, a long prefill and the sampling that follows.

    Args:
        model: transformers model on the meta device, built from the release's own config.
        config: its transformers config.
        device: type that model code is told where it asks for a tensor's device.
        report: receives an anomaly for each phase that could not be run (`phase_not_captured`; it contributes
            nothing and must not count as covered) or was run otherwise, see `phases_of`.
    """
    return [call for phase in phases_of(model, config, device=device, report=report) for call in phase.calls]


def phases_of(
    model: torch.nn.Module, config: Any, *, device: str = "cpu", report: Report | None = None
) -> Iterator[Captured]:
    """The phases one after the other; arguments as for `capture_phases`.

    Anomalies beside `phase_not_captured`: `decode_without_cache`, a forward that returns no cache, so that
    each step is another prefill; `called_otherwise`, a phase that runs only where the model is called unlike
    most; `shorter_long_prefill`, one that unrolls over its tokens or fails; `padding_not_captured`, a phase
    that does not run with a mask; `sampling_without_loop`, a model whose own loop around forwards does not
    run.
    """
    runner = _Runner(model, config, device, report or _ignore)
    was_training = model.training
    model.eval()
    try:
        for phase in ("prefill", "decode", "long_prefill", "sampling"):
            if (found := runner.run(phase)) is not None:
                yield found
    finally:
        model.train(was_training)


@dataclass(frozen=True)
class _Step:
    """What is run: `prepare` first, unrecorded, then `run`."""

    phase: str
    tokens: int
    prepare: Callable[[], None]
    run: Callable[[], None]
    answers: Sequence[bool] = (True, False)
    limit: int | None = None


class _Runner:
    """Runs the phases of one model on one claimed device."""

    def __init__(self, model: torch.nn.Module, config: Any, device: str, report: Report) -> None:
        self.model, self.config, self.device, self.report = model, config, device, report
        self._dispatched: dict[str, int] = {}
        self._form = Form()

    def run(self, phase: str) -> Captured | None:
        """The phase's calls; None where there are none."""
        try:
            if phase == "sampling":
                return self._sampling()
            if phase == "long_prefill":
                return self._long()
            plain = self._plain(phase)
        except NoCache as error:
            self.report(_told("decode_without_cache", phase, f"each step is another prefill: {error}"))
            return None
        except Exception as error:  # third-party model code: recorded, and the other phases still count
            return self._cut_short(phase, error)
        self._dispatched[phase] = plain.dispatched
        return Captured(phase, plain.calls + self._padded(phase, plain), plain.functions)

    def _cut_short(self, phase: str, error: Exception) -> Captured | None:
        """What a phase calls before it fails; the failure is told, so that nothing counts as complete."""
        self.report(_not_captured(phase, error))
        if phase == "sampling":
            return None
        long = phase == "long_prefill"
        step = self._step(phase, long_prefill_tokens(self.config) if long else PREFILL_TOKENS)
        try:
            found = self._record(replace(step, run=until_it_fails(step.run)))
        except Exception:  # it fails before the first call: told above
            return None
        return Captured(phase, found.calls, found.functions)

    def _plain(self, phase: str) -> Recorded:
        """As most models are called; else as the few are that take the whole sequence or keep no cache."""
        try:
            return self._record(self._step(phase, PREFILL_TOKENS))
        except NoCache:
            raise
        except Exception as error:  # third-party model code: it is called in another way
            for form, how in self._other_forms(phase):
                try:
                    found = self._record(self._step(phase, PREFILL_TOKENS, form))
                except Exception:  # nor this way: the usual way of calling says more
                    continue
                self._form = form
                words = f"captured with {how}, since the usual way failed: {words_of(error)}"
                self.report(_told("called_otherwise", phase, words))
                return found
            raise

    def _other_forms(self, phase: str) -> Iterator[tuple[Form, str]]:
        if phase == "decode":
            yield replace(self._form, whole=True), "the whole sequence beside its cache"
            return
        yield Form(cache=False), "no order to keep a cache"
        rows = stated(text_config(self.config), "num_codebooks")
        if isinstance(rows, int) and rows > 1:
            yield Form(rows=rows), f"{rows} rows of tokens, one a codebook"

    def _padded(self, phase: str, plain: Recorded) -> list[OperatorCall]:
        """What a ragged batch calls besides."""
        if not takes(self.model, "attention_mask"):
            return []
        try:
            # Code asks whether the mask masks anything at all; here it does.
            step = replace(
                self._step(phase, PREFILL_TOKENS, replace(self._form, mask=True)), answers=(False,)
            )
            masked = self._record(step)
        except Exception as error:  # third-party model code: recorded
            self.report(_told("padding_not_captured", phase, f"with a padding mask: {words_of(error)}"))
            return []
        known = {call.signature for call in plain.calls}
        return [
            call.model_copy(update={"branch": "padded"})
            for call in masked.calls
            if call.signature not in known
        ]

    def _long(self) -> Captured | None:
        length = long_prefill_tokens(self.config)
        if length <= PREFILL_TOKENS:
            return None
        short, step = (self._dispatched.get(phase, 0) for phase in ("prefill", "decode"))
        if step and short > UNROLLS * step:
            return self._shorter(length)
        try:
            found = self._record(replace(self._long_step(length), limit=LONG_CALLS))
        except CaptureOverrun:
            return self._shorter(length)
        except Exception as error:  # third-party model code: positions may be fewer than the config states
            found = self._record(replace(self._long_step(length // 2), limit=LONG_CALLS))
            words = f"{length // 2} tokens, since {length} fail: {words_of(error)}"
            self.report(_told("shorter_long_prefill", "long_prefill", words))
        return Captured("long_prefill", found.calls, found.functions)

    def _shorter(self, length: int) -> Captured:
        """As many tokens as the limit allows, if the forward grows as up to the short prefill."""
        wanted = PREFILL_TOKENS * UNROLLED_CALLS // max(1, self._dispatched.get("prefill", 0))
        power = 2 ** max(0, wanted.bit_length() - 1)
        shorter = max(min(SHORTEST_LONG, length), min(power, length // 2))
        words = f"{shorter} tokens instead of {length}, since the forward unrolls over them"
        self.report(_told("shorter_long_prefill", "long_prefill", words))
        found = self._record(self._long_step(shorter))
        return Captured("long_prefill", found.calls, found.functions)

    def _long_step(self, length: int) -> _Step:
        return self._step("long_prefill", length, replace(self._form, whole=False))

    def _sampling(self) -> Captured | None:
        vocabulary = getattr(text_config(self.config), "vocab_size", 0)
        if not isinstance(vocabulary, int) or vocabulary < 1:
            return None

        def loop() -> None:
            generate_without_forwards(self.model, vocabulary)

        try:
            found = self._record(_Step("sampling", 1, _nothing, loop))
        except Exception as error:  # third-party loops, and models without one
            words = f"one token is chosen without the model's own loop, which failed: {words_of(error)}"
            self.report(_told("sampling_without_loop", "sampling", words))
            found = self._record(_Step("sampling", 1, _nothing, lambda: choose_token(vocabulary)))
        return Captured("sampling", found.calls, found.functions)

    def _step(self, phase: str, length: int, form: Form | None = None) -> _Step:
        form = form or self._form
        inputs: dict[str, Any] = {}

        def tokens() -> None:
            inputs.update(inputs_of(self.model, length, length, form))

        def cache() -> None:
            output = self.model(**inputs_of(self.model, length, length, form))
            given = length + 1 if form.whole else 1
            inputs.update(inputs_of(self.model, given, length + 1, form), **cache_of(output))

        def forward() -> None:
            self.model(**inputs)
            inputs.clear()

        return _Step(
            phase, 1 if phase == "decode" else length, cache if phase == "decode" else tokens, forward
        )

    def _record(self, step: _Step) -> Recorded:
        """As told; where the CPU is claimed and that fails, once more with unplaced tensors on meta."""
        try:
            return self._recorded(step, made_on_meta=False)
        except (CaptureOverrun, NoCache):
            raise
        except Exception:  # third-party model code: once more, or raised again
            if self.device != "cpu":
                raise
            return self._recorded(step, made_on_meta=True)

    def _recorded(self, step: _Step, *, made_on_meta: bool) -> Recorded:
        return record_phase(
            self.model,
            step.run,
            phase=step.phase,
            prepare=step.prepare,
            device=self.device,
            made_on_meta=made_on_meta,
            answers=step.answers,
            tokens=step.tokens,
            limit=step.limit,
        )


def _nothing() -> None:
    """Prepares nothing."""


def _ignore(anomaly: Anomaly) -> None:
    """Nobody asked."""


def _not_captured(phase: str, error: Exception) -> Anomaly:
    message = f"operators of phase {phase} could not be captured: {words_of(error)}"
    return Anomaly(code="phase_not_captured", subject=phase, message=message)


def _told(code: str, phase: str, message: str) -> Anomaly:
    return Anomaly(code=code, subject=phase, message=f"phase {phase}: {message}")
