"""Buffers that no checkpoint holds, such as rotary frequencies, made as transformers makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Sequence, Tuple

if TYPE_CHECKING:
    import torch


def compute_buffers(model: Any, node: str, module: torch.nn.Module, device: str) -> None:
    """Makes the node's buffers that no checkpoint holds (rotary frequencies) as `from_pretrained` does."""
    import torch
    from transformers import initialization

    owners = _owners(model)
    with torch.no_grad(), initialization.guard_torch_init_functions():
        for path, part in module.named_modules(prefix=node):
            computed = {name: part._buffers.get(name) for name in part._non_persistent_buffers_set}
            empty = {name: value for name, value in computed.items() if value is not None}
            if not any(value.is_meta for value in empty.values()):
                continue
            for name, value in empty.items():
                part._buffers[name] = torch.empty_like(value, device=device)
            for tensor in part.state_dict(keep_vars=True).values():
                tensor._is_hf_initialized = True  # computed buffers only, no random weights
            _owner(owners, path)._init_weights(part)


def _owners(model: Any) -> List[Tuple[str, Any]]:
    """The model and the models inside it, innermost last; each initialises what lies below it."""
    from transformers import PreTrainedModel

    return [(path, part) for path, part in model.named_modules() if isinstance(part, PreTrainedModel)]


def _owner(owners: Sequence[Tuple[str, Any]], path: str) -> Any:
    inside = [
        part for prefix, part in owners if not prefix or path == prefix or path.startswith(f"{prefix}.")
    ]
    return inside[-1]
