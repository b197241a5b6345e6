"""Bugs in experts and in what a router gives them.

Those of the experts themselves change their forward, which also runs over a compacted stack of some of them;
there they meet the experts that are in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Tuple

from day0_worker.bug_parts import Changes, Forward, expert_call, experts, wrapped

if TYPE_CHECKING:
    import torch

NO_EXPERTS = "it has no stacked experts"
_TOGETHER = 1e-3
"""Routing weights of a token that add up to one within this are normalised; bf16 rounds each by 2^-9."""


def swapped_experts(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """The two experts with the most tokens in each other's places."""
    import torch

    def ids_of(ids: torch.Tensor, count: int) -> torch.Tensor:
        first, second = _busiest(ids, count, 2)
        return torch.where(ids == first, second, torch.where(ids == second, first, ids))

    return _with_ids(module, changes, ids_of)


def permuted_experts(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """Each expert in the place of the next."""
    import torch

    return _with_ids(module, changes, lambda ids, count: torch.where(ids < count, (ids + 1) % count, ids))


def expert_row(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """The expert with the most tokens lacks one row of its last weight: it leaves one channel out."""
    import torch

    part = experts(module)
    if part is None:
        return NO_EXPERTS
    stack: torch.nn.Module = part

    def changed(forward: Forward) -> Forward:
        def change(*args: Any, **kwargs: Any) -> torch.Tensor:
            hidden, ids, weights = expert_call(forward, args, kwargs)
            (busiest,) = _busiest(ids, _stacked(stack), 1)
            whole = forward(hidden, ids, weights)
            alone = forward(hidden, ids, torch.where(ids == busiest, weights, torch.zeros_like(weights)))
            row = torch.arange(whole.shape[-1], device=whole.device) == whole.shape[-1] // 3
            return torch.where(row, whole - alone, whole)

        return wrapped(forward, change)

    changes.forward(part, changed)
    return ""


def unnormalised_top_k(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """The weights of a token's experts are not made to add up to one."""
    if experts(module) is None:
        return NO_EXPERTS
    flags = [part for part in module.modules() if "norm_topk_prob" in vars(part)]
    for part in flags:
        if not vars(part)["norm_topk_prob"]:
            return "its router does not normalise"
        changes.attribute(part, "norm_topk_prob", False)
    if flags:
        return ""
    routers = [part for part in module.modules() if _is_router(part)]
    for part in routers:
        changes.handle(part.register_forward_hook(lambda part, args, output: _raw(output)))
    return "" if routers else "its router is not known"


def dropped_routed_scaling(module: torch.nn.Module, config: Any, changes: Changes) -> str:
    """The routed experts' output without the factor that scales it."""
    found = False
    for part in module.modules():
        factor = vars(part).get("routed_scaling_factor")
        if isinstance(factor, (int, float)) and factor not in (0, 1):
            changes.attribute(part, "routed_scaling_factor", 1.0)
            found = True
    return "" if found else "its routed experts are not scaled"


def _with_ids(
    module: torch.nn.Module, changes: Changes, ids_of: Callable[[torch.Tensor, int], torch.Tensor]
) -> str:
    part = experts(module)
    if part is None:
        return NO_EXPERTS
    stack: Any = part

    def changed(forward: Forward) -> Forward:
        def change(*args: Any, **kwargs: Any) -> Any:
            hidden, ids, weights = expert_call(forward, args, kwargs)
            return forward(hidden, ids_of(ids, _stacked(stack)), weights)

        return wrapped(forward, change)

    changes.forward(part, changed)
    return ""


def _stacked(part: torch.nn.Module) -> int:
    """How many experts are there at the moment."""
    return next(int(value.shape[0]) for value in part.parameters(recurse=False) if value.dim() == 3)


def _busiest(ids: torch.Tensor, count: int, number: int) -> Tuple[torch.Tensor, ...]:
    """The experts with the most tokens."""
    import torch

    tokens = torch.nn.functional.one_hot(ids.long().clamp(0, count), count + 1)[..., :count]
    busiest = tokens.reshape(-1, count).sum(0).topk(min(number, count)).indices.to(ids.dtype)
    return tuple(busiest[place % len(busiest)] for place in range(number))


def _is_router(part: torch.nn.Module) -> bool:
    """By its class: those of transformers 5 give logits, weights and ids."""
    name = type(part).__name__.lower()
    return "router" in name or ("gate" in name and "topk" in name)


def _raw(output: Any) -> Any:
    """A router's answer with the probabilities of the chosen in place of their normalised weights."""
    import torch

    if not (isinstance(output, tuple) and len(output) == 3):
        return output
    logits, weights, ids = output
    if logits.dim() != 2 or ids.is_floating_point() or ids.shape != weights.shape:
        return output
    given = weights.float() / weights.float().sum(-1, keepdim=True)
    raw = [probability(logits.float()) for probability in (lambda value: value.softmax(-1), torch.sigmoid)]
    chosen = [one.gather(-1, ids.long()) for one in raw]
    apart = [(one / one.sum(-1, keepdim=True) - given).abs().sum() for one in chosen]
    return logits, torch.where(apart[0] <= apart[1], chosen[0], chosen[1]).to(weights.dtype), ids
