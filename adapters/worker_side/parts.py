"""Runs of a node that stand still where its experts are called, and experts that run by themselves.

Such a run works in a thread of its own, as no other way leaves a module's code in the middle: what torch
keeps for each thread (dispatch modes, gradients off) stays as the run has it. One thread computes at a time.

A hook on the experts' module is called once, as in a run that is not interrupted: with the arguments before
the run stands still, with the whole output when it goes on. What replaces the module's forward is called with
the compacted stack.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import itertools
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

from day0_worker.stack import StackError
from day0_worker.torch_globals import standing_still

if TYPE_CHECKING:
    import torch

_HERE = threading.local()
"""`run`: the run that works in this thread."""


@dataclass(frozen=True, eq=False)
class Paused:
    """A run that waits for its experts' output.

    Attributes:
        key: for `PausedRuns.resume`.
        hidden: [T, H], what the experts are given.
        ids: [T, k] of the chosen experts; an expert's number, or the number of experts for none.
        weights: [T, k] of the choices.
    """

    key: str
    hidden: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor


class PausedRuns:
    """Runs that stand still; any number at once, resumed in any order.

    Args:
        device: torch device of the runs, whose current index a thread takes over.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._numbers = itertools.count(1)
        self._waiting: Dict[str, _Run] = {}

    def start(self, work: Callable[[], Any]) -> Any:
        """Runs it up to the first `pausing_at` that is met, or to its end.

        Returns:
            `Paused`, or what the work returns. What it raises is raised here.
        """
        return self._settled(_Run(work, self._device))

    def resume(self, key: str, output: torch.Tensor) -> Any:
        """Goes on with the experts' output [T, H]; see `start` for what comes back.

        Raises:
            StackError: no run of that key waits.
        """
        run = self._waiting.pop(key, None)
        if run is None:
            raise StackError(f"no run waits under the key {key!r}")
        run.go_on(output)
        return self._settled(run)

    def drop(self, keys: Optional[Sequence[str]] = None) -> None:
        """Ends the runs of these keys, all of them where none are given; unknown ones are ignored."""
        for key in list(self._waiting) if keys is None else keys:
            run = self._waiting.pop(key, None)
            if run is not None:
                run.end()

    def __len__(self) -> int:
        return len(self._waiting)

    def _settled(self, run: _Run) -> Any:
        call = run.outcome()
        if call is None:
            return run.value
        key = str(next(self._numbers))
        self._waiting[key] = run
        return Paused(key, *call)


@contextlib.contextmanager
def pausing_at(experts: torch.nn.Module) -> Iterator[None]:
    """While it is entered, a call of the experts makes the run of this thread stand still.

    Raises:
        StackError: this thread is not that of a run of `PausedRuns`.
    """
    run: Optional[_Run] = getattr(_HERE, "run", None)
    if run is None:
        raise StackError("a run that is to stand still was not begun as one")
    run.place = _handed_out(experts)
    try:
        yield
    finally:
        run.place = None


def own_forward(experts: torch.nn.Module) -> Callable[..., Any]:
    """The forward that the experts' module would have if no run ever stood still there."""
    forward = experts.forward
    return forward.forward if isinstance(forward, _HandedOut) else forward


class _Run:
    """One run in its thread, which lives until the run has ended.

    Attributes:
        place: where it stands still; None: nowhere.
        value: what the work returned, once it has.
    """

    def __init__(self, work: Callable[[], Any], device: str) -> None:
        self.place: Optional[_HandedOut] = None
        self.value: Any = None
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Optional[torch.Tensor]] = queue.SimpleQueue()
        self._ended = False
        index = _current_index(device)
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._work, work, index),
            name="day0-part",
            daemon=True,
        )
        self._thread.start()

    def outcome(self) -> Optional[Tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """The call at which it stands still; None: it has ended, `value` is there."""
        event = self._events.get()
        if isinstance(event, tuple):
            return event
        self._thread.join()
        if event is not None:
            raise event
        return None

    def go_on(self, output: torch.Tensor) -> None:
        """Lets it go on with this in place of its experts' output."""
        self._replies.put(output)

    def end(self) -> None:
        """Unwinds it from where it stands."""
        self._ended = True
        self._replies.put(None)
        self._thread.join()

    def hand_over(self, call: Tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """In the run's own thread: stands still until the output is there."""
        if self._ended:
            raise _Ended
        self._events.put(tuple(tensor.detach() for tensor in call))
        with standing_still():
            output = self._replies.get()
        if output is None:
            raise _Ended
        return output.to(call[0].device)

    def _work(self, work: Callable[[], Any], index: Optional[int]) -> None:
        _HERE.run = self
        try:
            if index is not None:
                import torch

                torch.accelerator.set_device_index(index)
            self.value = work()
            self._events.put(None)
        except _Ended:
            pass
        except BaseException as error:  # crosses to the thread that waits, which raises it
            self._events.put(error)


class _HandedOut:
    """Stands as the forward of an experts' module.

    Attributes:
        forward: the module's own.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run: Optional[_Run] = getattr(_HERE, "run", None)
        if run is None or run.place is not self:
            return self.forward(*args, **kwargs)
        return run.hand_over(_three(inspect.signature(self.forward).bind(*args, **kwargs)))


class _Ended(BaseException):
    """Unwinds a run that nobody goes on with; no model code may catch it."""


def _handed_out(experts: torch.nn.Module) -> _HandedOut:
    forward = experts.forward
    if not isinstance(forward, _HandedOut):
        forward = _HandedOut(forward)
        experts.forward = forward
    return forward


def _three(bound: inspect.BoundArguments) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states [T, H], ids and weights [T, k] of a call of experts."""
    import torch

    given = [*bound.args, *bound.kwargs.values()]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    if len(given) == len(tensors) == 3:
        hidden, ids, weights = tensors
        rows_fit = hidden.dim() == ids.dim() == 2 and hidden.shape[0] == ids.shape[0]
        if rows_fit and ids.shape == weights.shape and not ids.is_floating_point():
            return hidden, ids, weights
    said = ", ".join(
        str(list(value.shape)) if torch.is_tensor(value) else type(value).__name__ for value in given
    )
    raise StackError(
        f"experts are called with ({said}), not with hidden states [T, H], ids [T, k] and weights [T, k]",
        "unsupported",
    )


def _current_index(device: str) -> Optional[int]:
    """Of the accelerator in this thread, where there is one that a thread has to be told."""
    if device == "cpu":
        return None
    import torch

    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not accelerator.is_available():
        return None
    if accelerator.current_accelerator().type != device or accelerator.device_count() < 2:
        return None
    return int(accelerator.current_device_index())
