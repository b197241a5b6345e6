"""Whether an operator that runs on a device was quietly computed on the host instead.

Three kinds of evidence, none of them tied to one vendor:

1. The adapter's warning. torch and its adapters give it once a process, whatever the operator, unless
   `torch.set_warn_always` is on.
2. The operator `aten::_to_cpu` below it: torch's own fallback kernel brings its arguments over with it, and
   nothing else does.
3. The dispatcher's table: whatever ran for the device's key was the backend's fallback, or was registered
   by a file that is called so. Composite kernels are followed down to the operators that they call.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

_WARNING = re.compile(r"fall(?:s|ing|en)?[ -]?back (?:to|on).{0,30}cpu|fallback.{0,20}cpu", re.IGNORECASE)
_KEYS = {"cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "hpu": "HPU", "xla": "XLA", "mtia": "MTIA"}
_COMPOSITE = ("[default backend kernel]", "[math kernel]")


def watched(device: str, work: Callable[[], Any]) -> List[Tuple[str, str]]:
    """Runs an operator and looks for the host.

    Args:
        device: torch device type that it should run on, not `cpu`.
        work: calls the operator once.

    Returns:
        What fell back, each time the operator and what shows it; empty: nothing did.
    """
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as heard, _profile() as profile:
            warnings.simplefilter("always")
            work()
    finally:
        torch.set_warn_always(always)
    texts = [" ".join(str(warning.message).split()) for warning in heard]
    found = [(_operator(text), text[:300]) for text in texts if _WARNING.search(text)]
    roots = [event for event in profile.function_events if event.cpu_parent is None]
    for root in roots:
        found += _fallen(root, _KEYS.get(device, "PrivateUse1"))
    return list(dict.fromkeys(found))


def copied(value: Any) -> Any:
    """The arguments of a call with tensors of their own; one tensor met twice stays one."""
    return torch.utils._pytree.tree_map(_copy({}), value)


def _copy(done: Dict[int, torch.Tensor]) -> Callable[[Any], Any]:
    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return done.setdefault(id(leaf), leaf.clone())

    return one


def dtypes_of(value: Any) -> List[str]:
    """Dtypes of the tensors among the arguments of a call, in order."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [str(leaf.dtype) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def lacks_too(error: BaseException) -> bool:
    """Whether an error on a device says that the host, to which it fell back, has no kernel either."""
    text = str(error)
    return bool(
        re.search(r"from the 'CPU' backend", text) or re.search(r'"\w*_cpu\w*" not implemented for', text)
    )


def _profile() -> Any:
    """Torch's profiler without a tracing library; where it can, it tells overloads apart."""
    config = getattr(torch._C._profiler, "_ExperimentalConfig", None)
    try:
        named = config(capture_overload_names=True) if config is not None else None
    except TypeError:  # older than 2.8
        named = None
    return torch.autograd.profiler.profile(use_kineto=False, experimental_config=named)


def _fallen(event: Any, key: str) -> List[Tuple[str, str]]:
    name = str(event.name)
    overload = str(getattr(event, "overload_name", "") or "")
    if "::" not in name:
        return [found for child in event.cpu_children for found in _fallen(child, key)]
    below = _names_below(event)
    full = f"{name}.{overload}" if overload else name
    if "aten::_to_cpu" in below:
        return [(full, f"{full} called aten::_to_cpu")]
    entry = _entry(full, key)
    if "fallback" in entry.lower():
        return [(full, f"the dispatcher's {key} entry for {full}: {entry}"[:300])]
    if any(kind in entry for kind in _COMPOSITE):
        return [found for child in event.cpu_children for found in _fallen(child, key)]
    return []


def _names_below(event: Any) -> Sequence[str]:
    names: List[str] = []
    for child in event.cpu_children:
        names += [str(child.name), *_names_below(child)]
    return names


def _entry(operator: str, key: str) -> str:
    """What the dispatcher would call, in its own words; empty where it does not know the operator."""
    try:
        table = torch._C._dispatch_dump_table(operator)
    except RuntimeError:
        return ""
    for line in table.splitlines():
        if line.startswith(f"{key}: "):
            return line[len(key) + 2 :].strip()
    return ""


def _operator(text: str) -> str:
    found = re.search(r"\b\w+::\w+(?:\.\w+)?", text)
    return found.group(0) if found else ""
