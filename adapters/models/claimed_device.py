"""What model code is told about the device of tensors that are on meta: the type of the target's device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.backend_registration import rename_privateuse1_backend

CAPABILITY = (9, 0)
"""What a claimed CUDA device answers where none is there: transformers' own branches end at 8.0 (grouped
products) and at 9.0 (Hopper); a kernel's finer gates are listed with the kernel."""

_FLAGS = ("cpu", "cuda", "xpu", "mps", "hpu", "xla", "mtia", "maia", "ipu", "vulkan", "meta")


class ClaimedDevice:
    """Answers for tensors on meta as if they lay on a device of that type, and takes that device for meta.

    Code asks in many ways: `tensor.device`, `tensor.is_cuda`, `tensor.get_device()`; and hands on what it was
    told: `torch.arange(n, device=x.device)`, `x.to("cuda")`, `x.cuda()`.

    Args:
        device: type, e.g. `cpu`, `cuda`, `npu`. A type that this torch does not know becomes the name of its
            one device for third parties (`torch.utils.rename_privateuse1_backend`), which holds for the whole
            process.

    Raises:
        RuntimeError: torch knows neither the type nor takes the name.
    """

    def __init__(self, device: str) -> None:
        self.type = device
        self.device = _device(device)
        self._answers = self._by_function()

    def answer(self, func: Any, args: Sequence[Any]) -> tuple[bool, Any]:
        """Whether `func` asks for the device of a tensor on meta, and the answer."""
        ask = self._answers.get(func)
        if ask is None or not args or not (isinstance(args[0], torch.Tensor) and args[0].is_meta):
            return False, None
        return True, ask(args[0])

    def translated(self, value: Any) -> Any:
        """Arguments with the claimed device replaced by the one that the tensors are on."""
        if isinstance(value, torch.device):
            return torch.device("meta") if value.type == self.type else value
        if isinstance(value, str):
            return "meta" if value == self.type or value.startswith(f"{self.type}:") else value
        if isinstance(value, tuple):
            return tuple(self.translated(item) for item in value)
        if isinstance(value, dict):
            return {key: self.translated(item) for key, item in value.items()}
        return value

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Answers what no tensor is asked, too: a CUDA device's capability; an event on a device's stream."""
        with ExitStack() as stack:
            if self.type != "cpu":
                stack.enter_context(mock.patch.object(torch, "Event", _Event))
            if self.type == "cuda" and not torch.cuda.is_available():
                stack.enter_context(
                    mock.patch.object(torch.cuda, "get_device_capability", return_value=CAPABILITY)
                )
            yield

    def mode(self) -> TorchFunctionMode:
        """A mode in which all code is told so, for runs that are not recorded."""
        return _Claiming(self)

    def _by_function(self) -> Mapping[Any, Callable[[torch.Tensor], Any]]:
        tensor = torch.Tensor
        answers: dict[Any, Callable[[torch.Tensor], Any]] = {
            tensor.device.__get__: lambda _: self.device,
            tensor.get_device: lambda _: -1 if self.type == "cpu" else 0,
        }
        for name in _FLAGS:
            if (flag := getattr(tensor, f"is_{name}", None)) is not None:
                answers[flag.__get__] = _saying(name == self.type)
        if (move := getattr(tensor, self.type, None)) is not None:  # `x.cuda()`
            answers[move] = _itself
        return answers


class _Event:
    """Stands for an event of a device that is not there: on meta nothing is ever waited for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes what `torch.Event` takes."""

    def record(self, stream: Any = None) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Nothing is waited for."""


class _Claiming(TorchFunctionMode):
    """Answers for the claimed device and hands everything else on."""

    def __init__(self, claim: ClaimedDevice) -> None:
        super().__init__()
        self._claim = claim

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        asked, answer = self._claim.answer(func, args)
        if asked:
            return answer
        return func(*self._claim.translated(tuple(args)), **self._claim.translated(dict(kwargs or {})))


def _saying(answer: bool) -> Callable[[torch.Tensor], bool]:
    return lambda _: answer


def _itself(value: torch.Tensor) -> torch.Tensor:
    return value


def _device(name: str) -> torch.device:
    try:
        return torch.device(name) if name == "cpu" else torch.device(name, 0)
    except RuntimeError:
        rename_privateuse1_backend(name)
        return torch.device(name, 0)
