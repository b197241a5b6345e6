"""Bugs between a layer's projections and its attention: pairs, masks, heads, the cache's newest slot."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from day0_worker.bug_parts import Changes, attention, used_globals, wrapped

if TYPE_CHECKING:
    import torch

Attention = Callable[..., Any]
Change = Callable[[Attention, Any, Any, Any, Any, Any, Dict[str, Any]], Any]
"""Takes the attention function, module, query [B, H, Q, D], key and value [B, G, K, D], mask and the rest."""

NO_ATTENTION = "it has no attention that goes through transformers' interface"
_ROTARY = re.compile(r"apply_.*rotary|rotary_pos_emb")
_NOT_TURNED = ("cos", "sin", "freqs", "position", "unsqueeze")


def mask_off_by_one(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Each query sees what the next one may see: one token of the future."""

    def change(function: Attention, part: Any, query: Any, key: Any, value: Any, mask: Any, rest: Any) -> Any:
        return function(part, query, key, value, _shifted(mask, query, key), **rest)

    return _intercepted(module, changes, change)


def window_off_by_one(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Each query sees one token more at the far end of its window."""
    part = attention(module)
    if part is None:
        return NO_ATTENTION
    if not getattr(part, "sliding_window", None):
        return "its attention has no sliding window"

    def change(function: Attention, part: Any, query: Any, key: Any, value: Any, mask: Any, rest: Any) -> Any:
        if rest.get("sliding_window"):
            rest = {**rest, "sliding_window": rest["sliding_window"] + 1}
        return function(part, query, key, value, _widened(mask), **rest)

    return _intercepted(module, changes, change)


def stale_kv_slot(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """In a step with a cache its newest slot still holds the key and value of the token before."""
    import torch

    def stale(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor[:, :, :-1], tensor[:, :, -2:-1]], dim=2)

    def change(function: Attention, part: Any, query: Any, key: Any, value: Any, mask: Any, rest: Any) -> Any:
        if query.shape[2] == 1 and key.shape[2] > 1:
            key, value = stale(key), stale(value)
        return function(part, query, key, value, mask, **rest)

    return _intercepted(module, changes, change)


def wrong_head_grouping(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Heads of keys and values are tiled over the query's heads instead of repeated."""
    part = attention(module)
    if part is None:
        return NO_ATTENTION
    groups = int(getattr(part, "num_key_value_groups", 1) or 1)
    if groups < 2:
        return "each of its heads has keys of its own"
    if _key_heads(config, groups) == 1:
        return "all of its heads share one head of keys"

    def change(function: Attention, part: Any, query: Any, key: Any, value: Any, mask: Any, rest: Any) -> Any:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat(1, times, 1, 1), value.repeat(1, times, 1, 1)
        return function(_OneGroup(part), query, key, value, mask, **rest)

    return _intercepted(module, changes, change)


class _OneGroup:
    """Stands for an attention module whose heads have keys of their own."""

    num_key_value_groups = 1

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def rope_pairing(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Neighbours are turned as pairs where the halves' counterparts should be, and the other way round."""
    found: Dict[str, Any] = {}
    for part in module.modules():
        turns = {name: value for name, value in used_globals(part).items() if _turns(name, value)}
        if "vision" in type(part).__name__.lower() or not turns:
            continue
        changed = {name: _other_pairs(function, config) for name, function in turns.items()}
        known = {name: function for name, function in changed.items() if function is not None}
        changes.globals(part, known)
        found.update(known)
    return "" if found else "no function of it turns pairs of queries and keys in a known way"


def _intercepted(module: torch.nn.Module, changes: Changes, change: Change) -> str:
    part = attention(module)
    if part is None:
        return NO_ATTENTION
    known = used_globals(part)
    interface = _Interface(known["ALL_ATTENTION_FUNCTIONS"], change)
    names: Dict[str, Any] = {"ALL_ATTENTION_FUNCTIONS": interface}
    if "eager_attention_forward" in known:
        names["eager_attention_forward"] = interface.changed(known["eager_attention_forward"])
    changes.globals(part, names)
    return ""


class _Interface:
    """Stands for transformers' table of attention functions; each that it gives is changed."""

    def __init__(self, table: Any, change: Change) -> None:
        self._table, self._change = table, change

    def changed(self, function: Attention) -> Attention:
        change = self._change

        def attend(part: Any, query: Any, key: Any, value: Any, mask: Any = None, **rest: Any) -> Any:
            if "attention_mask" in rest:
                mask = rest.pop("attention_mask")
            return change(function, part, query, key, value, mask, rest)

        attend.day0_whole = function  # type: ignore[attr-defined]  # so that none is changed twice
        return attend

    def get_interface(self, implementation: str, default: Attention) -> Attention:
        own = getattr(default, "day0_whole", default)
        return self.changed(self._table.get_interface(implementation, own))

    def __getitem__(self, implementation: str) -> Attention:
        return self.changed(self._table[implementation])


def _shifted(mask: Any, query: Any, key: Any) -> Any:
    """The mask with each query's row replaced by the next one's."""
    import torch

    length = query.shape[2]
    if mask is None:
        if length == 1:
            return None
        past = key.shape[2] - length
        rows = torch.arange(length, device=query.device)[:, None] + past
        mask = (torch.arange(key.shape[2], device=query.device)[None, :] <= rows)[None, None]
    if mask.dim() != 4:
        return mask
    following = [min(row + 1, mask.shape[2] - 1) for row in range(mask.shape[2])]
    return mask[:, :, following]


def _widened(mask: Any) -> Any:
    """The mask with what each query's predecessor may see let through as well; no future is."""
    import torch

    if mask is None or mask.dim() != 4:
        return mask
    before = mask[:, :, [max(row - 1, 0) for row in range(mask.shape[2])]]
    return mask | before if mask.dtype == torch.bool else torch.maximum(mask, before)


def _key_heads(config: Any, groups: int) -> int:
    text = config.get_text_config()
    return int(getattr(text, "num_attention_heads", 0) or 0) // groups


def _turns(name: str, value: Any) -> bool:
    return bool(_ROTARY.search(name)) and "vision" not in name and inspect.isfunction(value)


def _other_pairs(function: Callable[..., Any], config: Any) -> Optional[Callable[..., Any]]:
    """The function with pairs taken the other way; None where its own way is not known."""
    found = _pairing(function, config)
    if found is None:
        return None
    names, width, neighbours = found
    order = [*range(0, width, 2), *range(1, width, 2)]
    if neighbours:
        order = sorted(range(width), key=order.__getitem__)
    back = sorted(range(width), key=order.__getitem__)
    signature = inspect.signature(function)

    def change(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name in names:
            if bound.arguments.get(name) is not None:
                bound.arguments[name] = _ordered(bound.arguments[name], order)
        result = function(*bound.args, **bound.kwargs)
        if isinstance(result, tuple):
            return tuple(_ordered(value, back) for value in result)
        return _ordered(result, back)

    return wrapped(function, change)


def _ordered(tensor: Any, order: List[int]) -> Any:
    rest = range(len(order), tensor.shape[-1])
    return tensor[..., [*order, *rest]]


def _pairing(function: Callable[..., Any], config: Any) -> Optional[Tuple[List[str], int, bool]]:
    """Arguments that are turned, how many of their elements, and whether neighbours make a pair.

    Found out by turning the first unit vector by a quarter: it comes to lie where its partner is.
    """
    import torch

    parameters = list(inspect.signature(function).parameters)
    names = [name for name in parameters if not name.startswith(_NOT_TURNED)]
    width = _rotary_width(config)
    if any(name.startswith("freqs") for name in parameters):  # pairs as complex numbers
        return names, width, True
    unit = torch.zeros(1, 1, 1, width)
    unit[..., 0] = 1.0
    for angles in (width, width // 2):
        given: Dict[str, Any] = {name: unit for name in names if name != "v"}
        given.update(cos=torch.zeros(1, 1, angles), sin=torch.ones(1, 1, angles))
        if "v" in parameters or not set(given) <= set(parameters):
            return None
        try:
            turned = function(**_required(function, given))
        except (RuntimeError, IndexError):  # it takes as many angles as there are elements, or half as many
            continue
        first = turned[0] if isinstance(turned, tuple) else turned
        partner = int(first.abs().reshape(-1).argmax())
        if partner in (1, width // 2):
            return names, width, partner == 1 and width > 2
    return None


def _required(function: Callable[..., Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments, with None for what else has no default."""
    return {
        name: given.get(name)
        for name, parameter in inspect.signature(function).parameters.items()
        if name in given or parameter.default is inspect.Parameter.empty
    }


def _rotary_width(config: Any) -> int:
    """How many elements of a head are turned."""
    text = config.get_text_config()
    own = getattr(text, "qk_rope_head_dim", None)
    if own:
        return int(own)
    heads = max(1, int(getattr(text, "num_attention_heads", 1) or 1))
    width = getattr(text, "head_dim", None) or int(getattr(text, "hidden_size", heads)) // heads
    ropes = getattr(text, "rope_parameters", None) or {}
    share = getattr(text, "partial_rotary_factor", None) or ropes.get("partial_rotary_factor") or 1.0
    return int(width * float(share)) // 2 * 2
