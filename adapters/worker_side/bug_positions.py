"""Bugs in what turns positions into angles or vectors: scaling that is ignored, padding that is counted."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from day0_worker.bug_parts import Changes, Forward, wrapped

if TYPE_CHECKING:
    import torch

_DEFAULT = "default"


def ignored_rotary_scaling(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Rotary frequencies and their factor as if the config asked for no scaling."""
    found = False
    for part in module.modules():
        for prefix, arguments in _scaled(part):
            _unscale(part, prefix, arguments, changes)
            found = True
    return "" if found else "it scales no rotary frequencies"


def positions_count_padding(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Positions run on over padding, from zero at the first place of each sequence."""
    if not _takes_positions(module):
        return "it takes no position ids that it would turn into anything"

    def changed(forward: Forward) -> Forward:
        def change(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(forward).bind(*args, **kwargs)
            bound.arguments["position_ids"] = _counted(bound.arguments["position_ids"])
            return forward(*bound.args, **bound.kwargs)

        return wrapped(forward, change)

    changes.forward(module, changed)
    return ""


def _counted(positions: torch.Tensor) -> torch.Tensor:
    """Of a padded batch, in which rows disagree; a batch without padding counts rightly."""
    import torch

    if positions.dim() < 2 or positions.shape[-2] == 1 or positions.shape[-1] == 1:
        return positions
    rows = torch.arange(positions.shape[-1], device=positions.device).expand_as(positions)
    padded = (positions[..., 1:] - positions[..., :-1] != 1).any(-1, keepdim=True)
    return torch.where(padded, rows.to(positions.dtype), positions)


def _takes_positions(module: torch.nn.Module) -> bool:
    own = list(module.parameters())
    return not own and "position_ids" in inspect.signature(module.forward).parameters


def _scaled(part: torch.nn.Module) -> List[Tuple[str, Dict[str, Any]]]:
    """Prefix of the names, and arguments, of each set of frequencies that is scaled."""
    kinds = vars(part).get("rope_type")
    if isinstance(kinds, str):
        return [("", {})] if kinds != _DEFAULT and hasattr(part, "inv_freq") else []
    if isinstance(kinds, dict):
        return [
            (f"{layer}_", {"layer_type": layer})
            for layer, kind in kinds.items()
            if kind != _DEFAULT and hasattr(part, f"{layer}_inv_freq")
        ]
    return []


def _unscale(part: Any, prefix: str, arguments: Dict[str, Any], changes: Changes) -> None:
    """The buffers are computed when the node is first used, so this waits for its calls."""
    layer = arguments.get("layer_type")
    kinds = part.rope_type
    changes.attribute(part, "rope_type", {**kinds, layer: _DEFAULT} if layer else _DEFAULT)
    changes.attribute(part, f"{prefix}attention_scaling", 1.0)
    name = f"{prefix}inv_freq"

    def changed(forward: Forward) -> Forward:
        def change(*args: Any, **kwargs: Any) -> Any:
            scaled = part._buffers[name]
            plain, _ = part.compute_default_rope_parameters(part.config, **arguments)
            part._buffers[name] = plain.to(scaled.device, scaled.dtype)
            try:
                return forward(*args, **kwargs)
            finally:
                part._buffers[name] = scaled

        return wrapped(forward, change)

    changes.forward(part, changed)
