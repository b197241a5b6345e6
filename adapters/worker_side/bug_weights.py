"""Bugs in linear layers and norms: scales of blocks, biases, epsilon, accumulation, clamped inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List

from day0_worker.bug_parts import Changes, Forward, linears, parts_named, wrapped

if TYPE_CHECKING:
    import torch

_BLOCK = 128
_LARGEST_FP8 = 448.0
_CHUNK, _CHUNKS = 32, 256
NO_LINEAR = "it has no linear layer"
_LAST = ("down_proj", "fc2", "w2", "dense_4h_to_h", "c_proj", "out_proj", "o_proj")


def norm_eps(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Norms with the epsilon of 1e-6, or of 1e-5 where it is 1e-6."""
    found = False
    for part in parts_named(module, "norm"):
        for name in ("variance_epsilon", "eps", "epsilon"):
            eps = vars(part).get(name)
            if isinstance(eps, float):
                changes.attribute(part, name, 1e-5 if eps == 1e-6 else 1e-6)
                found = True
    return "" if found else "it has no norm with an epsilon"


def missing_block_scale(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """One block of the largest weight stands there without its scale.

    Scales bring a block's largest magnitude to that of fp8 (448), so the block is as large as that.
    """
    import torch

    def changed(weight: torch.Tensor) -> torch.Tensor:
        size = _block(weight)
        factor = _LARGEST_FP8 / weight[:size, :size].abs().amax().clamp_min(1e-12)
        rows = torch.arange(weight.shape[0], device=weight.device)[:, None] < size
        columns = torch.arange(weight.shape[1], device=weight.device)[None, :] < size
        return torch.where(rows & columns, weight * factor, weight)

    return _largest(module, changes, changed)


def transposed_block_scale(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """The largest weight's blocks have each other's scales: their grid was read column by column."""
    import torch

    def changed(weight: torch.Tensor) -> torch.Tensor:
        size = _block(weight)
        rows, columns = weight.shape
        padded = torch.nn.functional.pad(weight.abs(), (0, -columns % size, 0, -rows % size))
        blocks = padded.reshape(padded.shape[0] // size, size, padded.shape[1] // size, size)
        scale = blocks.amax(dim=(1, 3))
        factor = scale.t().reshape(scale.shape) / scale.clamp_min(1e-12)
        spread = factor.repeat_interleave(size, 0)[:rows].repeat_interleave(size, 1)[:, :columns]
        return weight * spread

    return _largest(module, changes, changed)


def dropped_bias(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Linear layers without their biases."""
    import torch

    found = False
    for part in module.modules():
        if isinstance(part, torch.nn.Linear) and part.bias is not None:
            _replaced(part, changes, _without_bias(part))
            found = True
    return "" if found else "none of its linear layers has a bias"


def low_precision_accumulation(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Linear layers whose partial sums, each of 32 products or more, are kept in bf16."""
    import torch

    def accumulated(part: Any) -> Forward:
        def forward(value: torch.Tensor) -> torch.Tensor:
            size = max(_CHUNK, -(-part.in_features // _CHUNKS))
            total = torch.zeros((*value.shape[:-1], part.out_features), device=value.device)
            total = total.to(torch.bfloat16)
            for start in range(0, part.in_features, size):
                chunk = slice(start, start + size)
                product = torch.nn.functional.linear(value[..., chunk], part.weight[:, chunk])
                total = (total.to(product.dtype) + product).to(torch.bfloat16)
            result = total.to(value.dtype)
            return result if part.bias is None else result + part.bias

        return forward

    found = linears(module)
    for _, part in found:
        _replaced(part, changes, accumulated(part))
    return "" if found else NO_LINEAR


def clamped_activations(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """The input of the last linear layer of a block clamped to half of its largest magnitude."""
    found = linears(module)
    if len(found) < 2:
        return "it has no linear layer after an activation"
    by_name = [part for path, part in found if path.rpartition(".")[2] == _last_of(found)]

    def clamped(forward: Forward) -> Forward:
        def change(value: torch.Tensor) -> torch.Tensor:
            bound = value.abs().amax() / 2
            return forward(value.clamp(-bound, bound))  # type: ignore[no-any-return]  # a module's forward

        return wrapped(forward, change)

    changes.forward(by_name[-1], clamped)
    return ""


def _last_of(found: Any) -> str:
    """The name, out of those that families use for it, of the layer that ends a block."""
    names = [path.rpartition(".")[2] for path, _ in found]
    return next((name for name in _LAST if name in names), str(names[-1]))


def _largest(
    module: torch.nn.Module, changes: Changes, changed: Callable[[torch.Tensor], torch.Tensor]
) -> str:
    """Has the largest linear layer compute with a changed weight."""
    import torch

    layers: List[Any] = [part for _, part in linears(module)]
    found = [part for part in layers if min(part.in_features, part.out_features) > 1]
    if not found:
        return NO_LINEAR
    part = max(found, key=lambda part: int(part.in_features * part.out_features))

    def forward(value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(value, changed(part.weight), part.bias)

    _replaced(part, changes, forward)
    return ""


def _replaced(part: torch.nn.Module, changes: Changes, forward: Forward) -> None:
    changes.forward(part, lambda own: wrapped(own, forward))


def _block(weight: torch.Tensor) -> int:
    """128, or less where a side would not have two blocks."""
    return min(_BLOCK, max(1, min(weight.shape) // 2))


def _without_bias(part: Any) -> Forward:
    import torch

    return lambda value: torch.nn.functional.linear(value, part.weight)
