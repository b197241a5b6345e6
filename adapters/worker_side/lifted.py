"""Nodes as functions of tensors, weights and cache lifted out: what exporting and compiling stacks take."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from day0_worker import trees
from day0_worker.executable import Executable, summed, varying_dims
from day0_worker.modules import NodeModules
from day0_worker.shelf import ModuleShelf
from day0_worker.stack import NodeRun, Stack, StackError

Compile = Callable[["LiftedNode", List[torch.Tensor], List[str], List[List[int]]], Executable]
"""Takes a node, example inputs, their names, and for each the dimensions that vary."""


class Traced:
    """What a call of a lifted node found out; an object of its own, since tracers undo changes of a module.

    Attributes:
        result: tree of the result.
        writes_cache: whether the last two outputs are keys and values.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self.writes_cache = False


class LiftedNode(torch.nn.Module):
    """A node whose inputs are its weights, the tensors among its arguments and the cache's keys and values.

    The outputs are the tensors of its result and, where it writes to the cache, all keys and values.

    Attributes:
        traced: filled by the first call.
    """

    def __init__(
        self, modules: NodeModules, node: str, tree: Any, names: Sequence[str], has_past: bool
    ) -> None:
        super().__init__()
        self._node = [modules.module(node)]  # in a list: its empty weights are not this module's
        self._weights = list(modules.parameters(node))
        self._tree, self._names, self._has_past = tree, list(names), has_past
        # Looked up before tracing, which would take the cache's making for a part of the node.
        self._layer_kinds = _cache_kinds(modules) if trees.has_state(tree) else None
        self.traced = Traced()

    def forward(self, *flat: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """See the class."""
        module = self._node[0]
        count = len(self._weights)
        weights = {name: flat[index] for index, name in enumerate(self._weights)}
        tensors = {name: flat[count + index] for index, name in enumerate(self._names)}
        past = flat[-2:] if self._has_past else None
        cache = None if self._layer_kinds is None else _GraphCache(self._layer_kinds, past)
        args, kwargs = trees.decode_arguments(self._tree, tensors, cache)
        value = torch.func.functional_call(module, weights, tuple(args), kwargs)
        outputs: List[torch.Tensor] = []
        self.traced.result = _flatten(value, outputs)
        written = cache.written if cache is not None else None
        self.traced.writes_cache = written is not None
        return (*outputs, *(written or ()))


class LiftedNodes:
    """Prepares each kind once for each set of shapes, runs its nodes, keeps keys and values of sequences.

    Args:
        stack: whose clock and remarks are used.
        shelf: of models without weights.
        compile: makes an executable of a node.
    """

    def __init__(self, stack: Stack, shelf: ModuleShelf, compile: Compile) -> None:
        self._stack, self._shelf, self._compile = stack, shelf, compile
        self._kinds: Dict[str, Tuple[str, str]] = {}
        self._varying: Dict[str, Sequence[int]] = {}
        self._ready: Dict[str, List[Tuple[LiftedNode, Executable]]] = {}
        self._pasts: Dict[Tuple[str, str], Tuple[torch.Tensor, torch.Tensor]] = {}
        self._kept: Tuple[str, Mapping[str, torch.Tensor]] = ("", {})

    def prepare(
        self,
        fragment: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        mode: str,
        weights: str,
    ) -> str:
        """Compiles for the example's shapes; a decode step that needs a cache waits for the first `run`.

        Where the fragment names `varying` sizes, dimensions of these sizes may have others later on.

        Raises:
            StackError: `unsupported` for baked weights.
        """
        if weights != "lifted":
            raise StackError(
                f"{self._stack.name} takes nodes with lifted weights only, not {weights}", "unsupported"
            )
        key, node = self._shelf.key(fragment), fragment["node"]
        varying = list(fragment.get("varying", ()))
        handle = f"{key}:{fragment['kind']}:{mode}" + (":varying" if varying else "")
        self._kinds[handle] = (key, node)
        self._varying[handle] = varying
        tree, tensors = trees.encode_arguments(args, kwargs)
        known = self._signature(handle, tree, tensors, None) in self._ready
        if not known and (mode != "decode" or not trees.has_state(tree)):
            self._compiled(handle, tree, tensors, None)
        return handle

    def run(self, job: NodeRun) -> Any:
        """The node's result.

        Raises:
            StackError: unknown handle, or weights that do not fit or are no longer here.
        """
        if job.handle not in self._kinds:
            raise StackError(f"nothing was prepared under {job.handle!r} in this worker")
        self._shelf.name_choices(self._kinds[job.handle][0], self._stack)
        tree, tensors = trees.encode_arguments(job.args, job.kwargs)
        place = (str(job.state), job.node)
        past = self._pasts.get(place) if job.state is not None and trees.has_state(tree) else None
        if job.state is None:
            tree = _without_state(tree)
        inputs = [*self._weights(job), *tensors.values(), *(past or ())]
        node, outputs = self._outputs(job.handle, tree, tensors, past, inputs)
        if node.traced.writes_cache:
            self._pasts[place] = (outputs[-2], outputs[-1])
            outputs = outputs[:-2]
        return trees.decode(node.traced.result, {f"t{index}": output for index, output in enumerate(outputs)})

    def forget(self, state: str) -> None:
        """Drops the sequence's keys and values."""
        self._pasts = {place: past for place, past in self._pasts.items() if place[0] != state}

    def report(self, handle: str) -> Dict[str, Any]:
        """What was compiled under a handle so far, all shapes together."""
        if handle not in self._kinds:
            raise StackError(f"nothing was prepared under {handle!r} in this worker")
        known = [made for key, made in self._ready.items() if json.loads(key)[0] == handle]
        return summed([executable for made in known for _, executable in made])

    def _outputs(
        self,
        handle: str,
        tree: Any,
        tensors: Mapping[str, torch.Tensor],
        past: Any,
        inputs: List[torch.Tensor],
    ) -> Tuple[LiftedNode, List[torch.Tensor]]:
        """The outputs; a graph for other shapes than these is replaced by one more."""
        for node, executable in list(self._ready.get(self._signature(handle, tree, tensors, past), ())):
            try:
                with self._stack.timed(), torch.no_grad():
                    return node, executable.run(inputs)
            except Exception:
                # Which shapes a graph takes, each runtime says in its own words, by refusing the others.
                if not self._varying[handle]:
                    raise
        node, executable = self._compiled(handle, tree, tensors, past)
        with self._stack.timed(), torch.no_grad():
            return node, executable.run(inputs)

    def _signature(self, handle: str, tree: Any, tensors: Mapping[str, torch.Tensor], past: Any) -> str:
        """The same for calls that one graph may serve: equal shapes, or ranks alone where sizes vary."""
        ranks_only = bool(self._varying[handle])
        layouts = [
            [str(tensor.dtype), tensor.dim() if ranks_only else list(tensor.shape)]
            for tensor in (*tensors.values(), *(past or ()))
        ]
        return json.dumps([handle, tree, layouts])

    def _compiled(
        self, handle: str, tree: Any, tensors: Mapping[str, torch.Tensor], past: Any
    ) -> Tuple[LiftedNode, Executable]:
        made = self._ready.setdefault(self._signature(handle, tree, tensors, past), [])
        if made and not self._varying[handle]:
            return made[0]
        key, node = self._kinds[handle]
        modules = self._shelf.get(key)
        lifted = LiftedNode(modules, node, tree, list(tensors), past is not None).eval()
        # Never written, so they take address space, not memory, whatever the model's size.
        empty = [torch.empty(like.shape, dtype=like.dtype) for like in modules.parameters(node).values()]
        names = [f"weight_{index}" for index in range(len(empty))] + list(tensors)
        names += ["past_key", "past_value"] if past is not None else []
        inputs = [*empty, *tensors.values(), *(past or ())]
        dims = varying_dims(inputs, self._varying[handle], len(empty))
        with torch.no_grad():
            made.append((lifted, self._compile(lifted, inputs, names, dims)))
        return made[-1]

    def _weights(self, job: NodeRun) -> List[torch.Tensor]:
        expected = self._shelf.get(self._kinds[job.handle][0]).parameters(job.node)
        given = job.weights
        if given is None:
            if expected and self._kept[0] != job.node:
                raise StackError(f"the weights of {job.node} are no longer here; another node ran since")
            given = self._kept[1] if expected else {}
        placed = _placed_weights(job.node, given, expected)
        self._kept = (job.node, placed)
        return list(placed.values())


class _GraphCache:
    """Stands for transformers' cache while a node is traced: one layer of plain keys and values."""

    def __init__(self, layer_kinds: Sequence[str], past: Optional[Sequence[torch.Tensor]]) -> None:
        self._layer_kinds, self._past = layer_kinds, past
        self.written: Optional[Tuple[torch.Tensor, torch.Tensor]] = None

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        kind = self._layer_kinds[layer_idx] if layer_idx < len(self._layer_kinds) else "cache of its own"
        if kind != "DynamicLayer" or self.written is not None:
            raise StackError(
                f"layer {layer_idx} keeps its state in a {kind}; only plain keys and values are lifted out",
                "unsupported",
            )
        if self._past is not None:
            key, value = torch.cat([self._past[0], key], dim=-2), torch.cat([self._past[1], value], dim=-2)
        self.written = (key, value)
        return key, value

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self._past[0].shape[-2]) if self._past is not None else 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise StackError(
            f"the node uses {name!r} of its cache, which plain keys and values lack", "unsupported"
        )


def _cache_kinds(modules: NodeModules) -> List[str]:
    """What each layer of the model would keep its state in, by transformers' class names."""
    probe = "day0: which kind of cache"
    kinds = [type(layer).__name__ for layer in getattr(modules.cache(probe), "layers", [])]
    modules.forget(probe)
    return kinds


def _placed_weights(
    node: str, given: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> Dict[str, torch.Tensor]:
    """The weights in the dtypes that are expected; each is asked for once, since it may be made only then."""
    unknown, missing = sorted(set(given) - set(expected)), sorted(set(expected) - set(given))
    if unknown or missing:
        raise StackError(f"{node} lacks weights for {missing} and has no place for {unknown}", "key_mismatch")
    placed: Dict[str, torch.Tensor] = {}
    for name, place in expected.items():
        value = given[name]
        if value.shape != place.shape:
            shapes = f"{list(value.shape)} in the checkpoint, {list(place.shape)} in the model"
            raise StackError(f"{node}.{name}: {shapes}", "key_mismatch")
        placed[name] = value.to(place.dtype)
    return placed


def _flatten(value: Any, found: List[torch.Tensor]) -> Any:
    """As `trees.encode`, but without a look at storages, which tracing does not allow."""
    if isinstance(value, torch.Tensor):
        found.append(value)
        return {"$tensor": f"t{len(found) - 1}"}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"$tuple": [_flatten(item, found) for item in value]}
    if isinstance(value, list):
        return [_flatten(item, found) for item in value]
    if isinstance(value, _GraphCache):
        return {"$state": True}
    if isinstance(value, dict):
        mark = "$output" if hasattr(value, "to_tuple") else "$dict"
        return {mark: {key: _flatten(item, found) for key, item in value.items()}}
    return trees.encode(value)[0]


def _without_state(tree: Any) -> Any:
    if isinstance(tree, dict):
        return None if tree == {"$state": True} else {key: _without_state(item) for key, item in tree.items()}
    return [_without_state(item) for item in tree] if isinstance(tree, list) else tree
