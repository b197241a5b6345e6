"""Runs a model's own forward with every node handed over to a consumer; the glue between nodes is its own."""

from __future__ import annotations

import inspect
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from day0_worker.dtypes import torch_dtype
from day0_worker.modules import build_model, place
from day0_worker.stack import StackError
from day0_worker.torch_globals import computing, standing_still
from day0_worker.trees import TreeError, decode, encode_arguments

from ..base.errors import SkeletonError
from ..base.skeleton import Skeleton
from ..base.target import Call
from .image_features import function_at


class Glue:
    """A model whose nodes are holes; one may serve many walks, also at the same time.

    Args:
        skeleton: which model, and which of its modules are nodes.
        dtype: short name of the precision in which the glue computes.
        options: `attn` and `experts` as for the stack that runs the nodes: the masks depend on them.
        loose: full name -> tensor of parameters that lie directly in a container and are used by the glue.

    Raises:
        SkeletonError: E401, transformers cannot build the model.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        dtype: str,
        options: Mapping[str, str] | None = None,
        loose: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        try:
            self.model: Any = build_model(skeleton.config, skeleton.architecture, dtype, options or {})
        except StackError as error:
            raise SkeletonError(str(error), code="E401") from error
        self._local = threading.local()
        self._function: Any = function_at(self.model, skeleton.entry) if skeleton.entry else self.model
        called = [node.name for node in skeleton.nodes if node.called]
        for name in called:
            self._hollow(name)
        for name, value in (loose or {}).items():
            meta: torch.Tensor = self.model.get_parameter_or_buffer(name)
            place(self.model, name, value.to(meta.dtype))

    def forward(self, walk: Walk, inputs: Mapping[str, Any]) -> Any:
        """One forward in the calling thread on behalf of a walk."""
        self._local.walk = walk
        with computing(), torch.no_grad(), _OnTheHost():
            return self._function(**inputs)

    @property
    def cache_name(self) -> str:
        """What the forward calls the cache that it takes; empty for a model that takes none."""
        parameters = inspect.signature(type(self.model).forward).parameters
        names = ("cache", "past_key_values", "cache_params")
        return next((name for name in names if name in parameters), "")

    def takes(self, argument: str) -> bool:
        """Whether the forward has an argument of that name, e.g. `position_ids`."""
        return argument in inspect.signature(type(self.model).forward).parameters

    def _hollow(self, name: str) -> None:
        def hand_over(*args: Any, **kwargs: Any) -> Any:
            walk: Walk = self._local.walk
            return walk.hand_over(name, args, kwargs)

        self.model.get_submodule(name).forward = hand_over


@dataclass(frozen=True)
class NodeCall:
    """One call of a node that waits for its outputs.

    Attributes:
        node: its name.
        index: number of the call within the walk; a node may be called more than once.
        call: arguments as a tree `{"args": [...], "kwargs": {...}}` and its tensors, on the CPU.
        walk: the walk that it belongs to.
    """

    node: str
    index: int
    call: Call
    walk: Walk

    def reply(self, outputs: Call) -> None:
        """Lets the walk go on with these outputs; each call takes exactly one reply."""
        self.walk.reply(self.index, outputs)


class Walk:
    """One forward as an iterator of `NodeCall`s; each must be answered before the next can come.

    The forward runs in a thread of its own, so several walks can go in lockstep, node by node. Use it as a
    context manager or call `close`, else the thread of an unfinished walk stays.

    Args:
        skeleton: which model.
        tokens: token ids, sequences of equal length; not used where `given` is there.
        dtype: short name of the precision in which the glue computes.
        options: see `Glue`; not used where `glue` is given.
        glue: shared with other walks of the same dtype and options; made where it is missing.
        cache: cache of the sequence so far, only read (positions and masks follow from it); None: a prefill.
            Give each walk a copy: whoever runs the nodes changes the cache that it uses.
        mask: 1 for each token of each sequence, 0 for padding; None: no padding.
        positions: position id of each token of each sequence; None: as the model counts them.
        given: arguments by name of the function that `skeleton.entry` names, floating ones in any dtype.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        tokens: Sequence[Sequence[int]],
        dtype: str,
        *,
        options: Mapping[str, str] | None = None,
        glue: Glue | None = None,
        cache: Any = None,
        mask: Sequence[Sequence[int]] | None = None,
        positions: Sequence[Sequence[int]] | None = None,
        given: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._glue = glue or Glue(skeleton, dtype, options)
        inputs: dict[str, Any] = {"input_ids": torch.tensor(tokens, dtype=torch.int64), "use_cache": True}
        if given is not None:
            inputs = {name: _in(dtype, tensor) for name, tensor in given.items()}
        if mask is not None:
            inputs["attention_mask"] = torch.tensor(mask, dtype=torch.int64)
        if positions is not None:
            inputs["position_ids"] = torch.tensor(positions, dtype=torch.int64)
        if cache is not None:
            inputs[self._glue.cache_name] = cache
        self._calls: queue.Queue[NodeCall | BaseException | None] = queue.Queue()
        self._replies: queue.Queue[Call | None] = queue.Queue()
        self._waiting: int | None = None
        self._count = 0
        self._output: Any = None
        self._thread = threading.Thread(target=self._run, args=(inputs,), name="day0-walk", daemon=True)
        self._started = False

    def __iter__(self) -> Iterator[NodeCall]:
        return self

    def __next__(self) -> NodeCall:
        """The next call.

        Raises:
            StopIteration: the forward is finished, `logits` are there.
            SkeletonError: E410, the glue failed or an argument cannot cross to another process.
            RuntimeError: the last call was not answered.
        """
        if self._waiting is not None:
            raise RuntimeError(f"call {self._waiting} of the walk was not answered")
        if not self._started:
            self._started = True
            self._thread.start()
        elif not self._thread.is_alive() and self._calls.empty():
            raise StopIteration
        event = self._calls.get()
        if isinstance(event, NodeCall):
            self._waiting = event.index
            return event
        self._thread.join()
        if event is None:
            raise StopIteration
        text = " ".join(f"{type(event).__name__}: {event}".split())[:400]
        raise SkeletonError(f"the forward between nodes failed: {text}", code="E410") from event

    @property
    def output(self) -> Any:
        """What the model's forward returned; None until the walk is finished."""
        return self._output

    @property
    def logits(self) -> torch.Tensor:
        """Logits [batch, length, vocabulary] of a finished walk.

        Raises:
            ValueError: the walk is not finished, or the model has no head.
        """
        logits = getattr(self._output, "logits", None)
        if logits is None:
            raise ValueError("the walk has no logits: it is not finished, or its model has no head")
        return logits  # type: ignore[no-any-return]  # transformers is untyped

    def reply(self, index: int, outputs: Call) -> None:
        """Answers the call of that number.

        Raises:
            RuntimeError: it is not the one that waits.
        """
        if index != self._waiting:
            raise RuntimeError(f"call {index} does not wait for an answer, call {self._waiting} does")
        self._waiting = None
        self._replies.put(outputs)

    def hand_over(self, node: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Called in the walk's thread in place of a node's forward; returns what the consumer replies."""
        try:
            tree, tensors = encode_arguments(args, kwargs)
        except TreeError as error:
            raise TreeError(f"argument of {node}: {error}") from error
        index, self._count = self._count, self._count + 1
        self._calls.put(NodeCall(node, index, Call(tree, tensors), self))
        with standing_still():
            outputs = self._replies.get()
        if outputs is None:
            raise _Closed
        return decode(outputs.tree, outputs.tensors, kwargs.get(self._glue.cache_name))

    def close(self) -> None:
        """Ends the thread; nothing happens where it has ended."""
        self._replies.put(None)
        if self._started:
            self._thread.join()

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self, inputs: Mapping[str, Any]) -> None:
        try:
            self._output = self._glue.forward(self, inputs)
            self._calls.put(None)
        except _Closed:
            self._calls.put(None)
        except BaseException as error:  # crosses to the consumer's thread, which raises it
            self._calls.put(error)


class _OnTheHost(TorchFunctionMode):
    """Tensors that are not there are said to lie on the CPU, so that glue makes and moves its own there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        meta = isinstance(found, torch.device) and found.type == "meta"
        return torch.device("cpu") if meta else found


def _in(dtype: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch_dtype(dtype)) if tensor.is_floating_point() else tensor


class _Closed(BaseException):
    """Unwinds the forward of a walk that is closed before its end; no model code may catch it."""
