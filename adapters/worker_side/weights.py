"""Weight expressions: how one parameter is made from the bytes of tensor files.

A leaf is `{"file": PATH, "offset": O, "dtype": D, "shape": S}`, read through a memory map so that no other
byte is touched, or `{"value": NAME}`, a tensor that came with the request. Operations: `{"stack": [..],
"dim": d}`, `{"cat": [..], "dim": d}`, `{"chunk": X, "index": i, "of": n, "dim": d}`, `{"narrow": X, "dim": d,
"start": s, "length": l}`, `{"transpose": X, "dims": [a, b]}`, `{"reshape": X, "shape": S}`,
`{"dequantize": SCHEME, "weight": X, "scale": Y, ...}` (schemes and their keys: `day0_worker.dequantise`).
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence, Tuple

from day0_worker.dequantise import PARTS, dequantise, dequantised_shape
from day0_worker.dtypes import torch_dtype
from day0_worker.stack import StackError

if TYPE_CHECKING:
    import torch

Values = Mapping[str, "torch.Tensor"]
_MAX_DEPTH = 16


def evaluate(expression: Any, values: Values, dtype: Optional["torch.dtype"] = None) -> "torch.Tensor":
    """The parameter that the expression describes.

    The result is filled in place, so peak memory is the result plus a few tiles of a dequantised leaf.

    Args:
        expression: JSON tree as described above.
        values: tensors that `{"value": NAME}` leaves name.
        dtype: of the result; None: the stored one (fp32 for a dequantised tensor).

    Returns:
        A tensor on the CPU. A plain leaf in its stored dtype is a view of the file: treat it as read-only.

    Raises:
        StackError: the expression is malformed, names a missing value, or asks for bytes that the file lacks.
    """
    import torch

    with _explained(expression):
        _check_depth(expression, 0)
        if "file" in expression or "value" in expression:
            leaf = _leaf(expression, values)
            return leaf if dtype is None else leaf.to(dtype)
        shape = _shape(expression, values)
        result = torch.empty(shape, dtype=dtype or _dtype(expression, values))
        _fill([result], expression, values)
        return result


def evaluate_into(outs: Sequence["torch.Tensor"], expression: Any, values: Values) -> None:
    """Fills tensors of the expression's shape with the parameter, each in its dtype, in one go.

    Args:
        outs: the first in the dtype of the result, if there are others, which are rounded from it.
        expression: see `evaluate`.
        values: see `evaluate`.

    Raises:
        StackError: see `evaluate`.
    """
    with _explained(expression):
        _check_depth(expression, 0)
        shape = _shape(expression, values)
        if any(list(out.shape) != shape for out in outs):
            raise ValueError(f"shape {shape} where {[list(out.shape) for out in outs]} are needed")
        _fill(outs, expression, values)


def described(expression: Any, values: Values) -> Tuple[List[int], "torch.dtype"]:
    """Shape and dtype of what `evaluate` gives; reads nothing.

    Raises:
        StackError: see `evaluate`.
    """
    with _explained(expression):
        _check_depth(expression, 0)
        return _shape(expression, values), _dtype(expression, values)


class LazyWeights(Mapping[str, "torch.Tensor"]):
    """Parameters by name, each evaluated anew whenever it is asked for, so that none stays beside the others.

    Args:
        expressions: parameter -> expression.
        values: see `evaluate`.
    """

    def __init__(self, expressions: Mapping[str, Any], values: Values) -> None:
        self._expressions, self._values = expressions, values

    def __getitem__(self, name: str) -> "torch.Tensor":
        return evaluate(self._expressions[name], self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._expressions)

    def __len__(self) -> int:
        return len(self._expressions)


@contextlib.contextmanager
def _explained(expression: Any) -> Iterator[None]:
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise StackError(f"weight expression is malformed: {error!r} in {str(expression)[:200]}") from error


def read_tensor(file: str, offset: int, dtype: str, shape: Sequence[int]) -> "torch.Tensor":
    """One tensor of a file through a private memory map.

    Raises:
        StackError: the file ends before the tensor does, or the numbers make no sense.
    """
    import torch

    kind = torch_dtype(dtype)
    count = 1
    for dim in (offset, *shape):
        if type(dim) is not int or dim < 0:
            raise StackError(f"offset {offset!r} or shape {list(shape)} of a tensor in {file} is not a size")
    for dim in shape:
        count *= dim
    length = count * kind.itemsize
    with open(file, "rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        if offset + length > size:
            raise StackError(f"{file} has {size} bytes, a tensor needs bytes {offset} to {offset + length}")
        if not length:
            return torch.empty(list(shape), dtype=kind)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        view = mmap.mmap(handle.fileno(), offset + length - start, access=mmap.ACCESS_COPY, offset=start)
    raw = torch.frombuffer(view, dtype=torch.uint8, offset=offset - start)
    if offset % kind.itemsize:
        raw = raw.clone()  # kernels may assume aligned elements
    return raw.view(kind).reshape(list(shape))


def _leaf(expression: Mapping[str, Any], values: Values) -> "torch.Tensor":
    if "value" in expression:
        return values[expression["value"]]
    return read_tensor(expression["file"], expression["offset"], expression["dtype"], expression["shape"])


def _check_depth(expression: Any, depth: int) -> None:
    if depth > _MAX_DEPTH or not isinstance(expression, dict):
        raise TypeError("not an object, or nested too deep")
    for part in _parts(expression):
        _check_depth(part, depth + 1)


def _parts(expression: Mapping[str, Any]) -> List[Any]:
    if "stack" in expression or "cat" in expression:
        parts = expression.get("stack") or expression.get("cat")
        if not isinstance(parts, list):
            raise TypeError("stack and cat need a list of at least one part")
        return parts
    if "dequantize" in expression:
        return [expression[key] for key in PARTS if key in expression]
    return [expression[key] for key in ("chunk", "narrow", "transpose", "reshape") if key in expression]


def _shape(expression: Mapping[str, Any], values: Values) -> List[int]:
    if "value" in expression:
        return list(values[expression["value"]].shape)
    if "file" in expression:
        return list(expression["shape"])
    if "dequantize" in expression:
        return dequantised_shape(expression, lambda part: _shape(part, values))
    shape = _shape(_parts(expression)[0], values)
    if "stack" in expression:
        shape.insert(range(len(shape) + 1)[expression["dim"]], len(expression["stack"]))
    elif "cat" in expression:
        dim = range(len(shape))[expression["dim"]]
        shape[dim] = sum(_shape(part, values)[dim] for part in expression["cat"])
    elif "chunk" in expression:
        step = -(-shape[expression["dim"]] // expression["of"])
        start = min(step * expression["index"], shape[expression["dim"]])
        shape[expression["dim"]] = min(step, shape[expression["dim"]] - start)
    elif "narrow" in expression:
        shape[expression["dim"]] = expression["length"]
    elif "reshape" in expression:
        shape = _same_size(shape, list(expression["shape"]))
    elif "transpose" in expression:
        first, second = expression["dims"]
        shape[first], shape[second] = shape[second], shape[first]
    else:
        raise ValueError(f"no known operation among {sorted(expression)}")
    return shape


def _same_size(before: List[int], after: List[int]) -> List[int]:
    if math.prod(before) != math.prod(after):
        raise ValueError(f"shape {before} cannot become {after}")
    return after


def _dtype(expression: Mapping[str, Any], values: Values) -> "torch.dtype":
    import torch

    if "dequantize" in expression:
        return torch.float32
    if "value" in expression:
        return values[expression["value"]].dtype
    if "file" in expression:
        return torch_dtype(expression["dtype"])
    return _dtype(_parts(expression)[0], values)


def _fill(outs: Sequence["torch.Tensor"], expression: Mapping[str, Any], values: Values) -> None:
    if "file" in expression or "value" in expression:
        _copy(outs, _leaf(expression, values))
    elif "stack" in expression:
        dim = expression["dim"] % outs[0].dim()
        for index, part in enumerate(expression["stack"]):
            _fill([out.select(dim, index) for out in outs], part, values)
    elif "cat" in expression:
        dim, place = expression["dim"] % outs[0].dim(), 0
        for part in expression["cat"]:
            size = _shape(part, values)[dim]
            _fill([out.narrow(dim, place, size) for out in outs], part, values)
            place += size
    elif "chunk" in expression:
        whole = evaluate(expression["chunk"], values)
        _copy(outs, whole.chunk(expression["of"], expression["dim"])[expression["index"]])
    elif "narrow" in expression:
        whole = evaluate(expression["narrow"], values)
        _copy(outs, whole.narrow(expression["dim"], expression["start"], expression["length"]))
    elif "reshape" in expression:
        _copy(outs, evaluate(expression["reshape"], values).reshape(expression["shape"]))
    elif "transpose" in expression:
        turned = [out.transpose(*expression["dims"]) for out in outs]
        _fill(turned, expression["transpose"], values)
    else:
        dequantise(outs, expression, lambda part: evaluate(part, values))


def _copy(outs: Sequence["torch.Tensor"], source: "torch.Tensor") -> None:
    for out in outs:
        if out.shape != source.shape:  # copy_ would broadcast
            raise ValueError(f"a part has shape {list(source.shape)} where {list(out.shape)} is needed")
        out.copy_(source)
