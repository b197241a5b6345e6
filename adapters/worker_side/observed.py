"""What a run of a module does, operator by operator: names, arguments and results, each tensor kept once.

One entry an operator, in the order in which they are dispatched:

| field | meaning |
|---|---|
| `op` | `aten.mm.default` |
| `module` | path of the innermost running module inside the outermost one |
| `args`, `kwargs` | as in an operator call: tensors by number, numbers and words as they stand |
| `inputs` | the distinct tensors among the arguments, by number |
| `outputs` | the result's tensors and numbers, in order; missing where the operator raised |

A tensor is `{"name", "dtype", "shape", "stride", "layout"}`: seen through `shape` and `layout`, the content
of that name is the tensor's values; `stride` is how it lay in memory. Content beyond the limit has the name
`""`. Tensors of the same bytes share a name, so a result that the next operator receives unchanged is kept
once.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from day0_worker.blobs import bytes_of
from day0_worker.dtypes import SHORT_NAMES
from day0_worker.trees import storage_of

MAX_OPERATORS = 20_000
"""Beyond this many a run is a loop over elements, and a list of its operators helps nobody."""


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    """Notes the operators that are dispatched while a module runs.

    Enter it before anything that replaces operators, so that it sees what these really call.

    Args:
        limit: bytes of all contents together.
        device: type of the device that counts as the target's.
        outside: whether operators count that are called outside of any module.
        hold: whether to keep the tensors themselves alive and number them by where they lie (`slot`): two
            operators then are known to have the same tensor, whatever its values.

    Attributes:
        operators: entries, see above.
        contents: name -> values, flat, on the CPU.
        left_out: tensors whose values are not there.
        roots: how many times an outermost module was entered.
    """

    def __init__(self, limit: int, device: str = "cpu", hold: bool = False, outside: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self.operators: List[Dict[str, Any]] = []
        self.contents: Dict[str, torch.Tensor] = {}
        self.left_out = self.roots = 0
        self._limit, self._device, self._hold = limit, device, hold
        self._names: Dict[Any, str] = {}
        self._held: List[torch.Tensor] = []
        self._slots: Dict[Any, int] = {}
        self._running: List[str] = [""] if outside else []
        self._paths: Dict[int, str] = {}
        self._hooks: List[Any] = []

    def __enter__(self) -> Observer:
        hooks = torch.nn.modules.module
        self._hooks = [
            hooks.register_module_forward_pre_hook(self._entered),
            hooks.register_module_forward_hook(self._left, always_call=True),
        ]
        super().__enter__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]  # torch's base is untyped
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None
    ) -> Any:
        named = dict(kwargs or {})
        if not self._running or len(self.operators) >= MAX_OPERATORS:
            return func(*args, **named)
        entry = self._entry(func, args, named)
        self.operators.append(entry)
        output = func(*args, **named)
        entry["outputs"] = [self._noted(part) for part in flat(output)]
        return output

    def slot(self, tensor: torch.Tensor) -> int:
        """Number of the tensor, the same for all that show the same elements of the same memory.

        Only where tensors are held: an address may be used again after its tensor is gone.
        """
        place = (storage_of(tensor), tensor.storage_offset(), str(tensor.dtype))
        self._held.append(tensor)
        return self._slots.setdefault((*place, tuple(tensor.shape), tensor.stride()), len(self._slots))

    def _entered(self, module: Any, _args: Any) -> None:
        if not self._running:
            self.roots += 1
            self._paths = {id(part): name for name, part in module.named_modules()}
        below = self._running[-1] if self._running else ""
        self._running.append(self._paths.get(id(module), below))

    def _left(self, _module: Any, _args: Any, _output: Any) -> None:
        if self._running:
            self._running.pop()

    def _entry(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dict[str, Any]:
        encoder = _Encoder(self._device)
        entry: Dict[str, Any] = {
            "op": str(func),
            "module": self._running[-1],
            "args": [encoder.value(arg) for arg in args],
            "kwargs": {name: encoder.value(value) for name, value in sorted(kwargs.items())},
        }
        entry["inputs"] = [self._noted(tensor) for tensor in encoder.tensors]
        return entry

    def _noted(self, value: Any) -> Dict[str, Any]:
        if not isinstance(value, torch.Tensor):
            return {"number": plain(value)}
        noted: Dict[str, Any] = {
            "dtype": dtype_name(value.dtype),
            "shape": list(value.shape),
            "stride": list(value.stride()) if value.layout == torch.strided else [],
        }
        if self._hold:
            noted["slot"] = self.slot(value)
        noted["name"], noted["layout"] = self._content(value)
        return noted

    def _content(self, tensor: torch.Tensor) -> Tuple[str, List[int]]:
        """Name of the values, and the strides through which they are to be seen."""
        if tensor.is_meta or str(tensor.dtype) not in SHORT_NAMES or tensor.layout != torch.strided:
            self.left_out += 1
            return "", []
        here = tensor.detach().cpu()
        if not _is_dense(here):
            here = here.contiguous()
        layout = list(here.stride())
        lying = here.as_strided((_extent(here),), (1,))
        size = lying.numel() * lying.element_size()
        mark = hashlib.blake2b(bytes_of(lying, size) if size else b"", digest_size=16).digest()
        key = (mark, str(lying.dtype), size)
        if key not in self._names:
            if size > self._limit:
                self.left_out += 1
                return "", []
            self._limit -= size
            name = f"c{len(self._names)}"
            self._names[key], self.contents[name] = name, lying.clone()
        return self._names[key], layout


class _Encoder:
    """Arguments of one call in the form of an operator call, and the tensors among them."""

    def __init__(self, device: str) -> None:
        self.tensors: List[torch.Tensor] = []
        self._device = device

    def value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, torch.device):
            return {"device": "target" if value.type == self._device else value.type}
        if isinstance(value, torch.memory_format):
            return {"memory_format": str(value)[len("torch.") :].replace("_format", "")}
        if isinstance(value, torch.layout):
            return {"layout": str(value)[len("torch.") :]}
        return plain(value)

    def _tensor(self, tensor: torch.Tensor) -> Dict[str, Any]:
        alias = next((place for place, known in enumerate(self.tensors) if known is tensor), None)
        if alias is None:
            alias = len(self.tensors)
            self.tensors.append(tensor)
        stride = list(tensor.stride()) if tensor.layout == torch.strided else []
        facts: Dict[str, Any] = {
            "dtype": dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "stride": stride,
            "alias": alias,
        }
        if tensor.device.type != self._device:
            facts["device"] = "cpu"
        return {"tensor": facts}


def flat(value: Any) -> Iterator[Any]:
    """The tensors and numbers of an operator's result, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif value is not None:
        yield value


def plain(value: Any) -> Any:
    """A number or word as JSON; what is neither, as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {"float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, complex):
        return {"complex": [str(value.real), str(value.imag)]}
    return str(value)


def dtype_name(dtype: torch.dtype) -> str:
    """The short name; torch's own where there is none."""
    return SHORT_NAMES.get(str(dtype), str(dtype)[len("torch.") :])


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether each byte between the tensor's first and last element is one of its elements, and once."""
    dims = sorted((step, size) for step, size in zip(tensor.stride(), tensor.shape) if size != 1)  # noqa: B905  # Python 3.9 has no strict
    due = 1
    for step, size in dims:
        if step == 0:  # expanded: the same elements again
            continue
        if step != due:
            return False
        due = step * size
    return True


def _extent(tensor: torch.Tensor) -> int:
    if not tensor.numel():
        return 0
    sizes = zip(tensor.shape, tensor.stride())  # noqa: B905  # Python 3.9 has no strict
    return 1 + sum((size - 1) * step for size, step in sizes)
