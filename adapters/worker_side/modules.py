"""Nodes of a transformers model as modules, built without weights and filled one node at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from day0_worker.dtypes import torch_dtype
from day0_worker.stack import StackError
from day0_worker.trees import with_state
from day0_worker.workarounds import Ways, apply_all

if TYPE_CHECKING:
    import torch


def build_model(config: Mapping[str, Any], architecture: str, dtype: str, options: Mapping[str, str]) -> Any:
    """The transformers model on the meta device, as `from_pretrained` builds it before it loads weights.

    Args:
        config: config.json as JSON, quantisation taken out; only native model types.
        architecture: transformers class, e.g. `LlamaForCausalLM`.
        dtype: short name for weights and activations.
        options: `attn` and `experts` choose the implementations, `with` names ways around; other keys are
            not for this function.

    Raises:
        StackError: `import` without transformers, `unsupported` where this transformers does not know the
            model type or the class.
    """
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError as error:
        raise StackError(f"transformers cannot be imported: {error}", "import") from error
    import torch

    model_type = str(config.get("model_type", ""))
    if model_type not in CONFIG_MAPPING:
        raise StackError(
            f"transformers {transformers.__version__} does not know the model type {model_type!r}",
            "unsupported",
        )
    model_class: Any = getattr(transformers, architecture, None)
    is_class = isinstance(model_class, type)
    if not (is_class and issubclass(model_class, transformers.PreTrainedModel)):
        raise StackError(
            f"transformers {transformers.__version__} has no model {architecture!r}", "unsupported"
        )
    parsed = CONFIG_MAPPING[model_type].from_dict(with_floats(config))
    chosen = {f"{key}_implementation": options[key] for key in ("attn", "experts") if key in options}
    with torch.device("meta"), _meta_safe_creation():
        model: Any = model_class._from_config(parsed, dtype=torch_dtype(dtype), **chosen)
    _keep_in_fp32(model, torch_dtype(dtype))
    model.eval()
    apply_all(model, options)
    return model


def with_floats(config: Any) -> Any:
    """The config with `{"__float__": "Infinity"}`, transformers' spelling of what JSON lacks, as floats."""
    if isinstance(config, Mapping):
        if set(config) == {"__float__"}:
            return float(config["__float__"])
        return {key: with_floats(value) for key, value in config.items()}
    return [with_floats(item) for item in config] if isinstance(config, list) else config


def _meta_safe_creation() -> Any:
    """What `from_pretrained` adds for constructors that compute with `torch.linspace(...).item()`."""
    import contextlib

    from transformers import initialization

    return getattr(initialization, "meta_device_safe_creation_ops", contextlib.nullcontext)()


def _keep_in_fp32(model: Any, dtype: "torch.dtype") -> None:
    """Gives parameters and saved buffers the dtype in which `from_pretrained` would load them."""
    plan = model._get_dtype_plan(dtype)
    if not plan:
        return
    from transformers.core_model_loading import build_glob_alternation

    pattern, _, by_group = build_glob_alternation(list(plan))
    for name, tensor in list(model.state_dict(keep_vars=True).items()):
        match = pattern.search(name)
        if match is not None:
            place(model, name, tensor.to(plan[by_group[match.lastgroup]]))


def place(root: "torch.nn.Module", name: str, value: "torch.Tensor") -> None:
    """Puts a tensor where the parameter or buffer of that full name stands."""
    import torch

    path, _, leaf = name.rpartition(".")
    owner = root.get_submodule(path)
    if leaf in owner._parameters:
        owner._parameters[leaf] = torch.nn.Parameter(value, requires_grad=False)
    else:
        owner._buffers[leaf] = value


class NodeModules:
    """Runs single nodes of a model; weights are there only while a node runs, unless they are to be kept.

    Caches of sequences stay until `forget`. Runs under `torch.no_grad`.

    Args:
        config: see `build_model`.
        architecture: see `build_model`.
        dtype: see `build_model`.
        options: see `build_model`.
        device: torch device on which nodes run.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        architecture: str,
        dtype: str,
        options: Mapping[str, str],
        device: str = "cpu",
    ) -> None:
        self.model: Any = build_model(config, architecture, dtype, options)
        self.device = device
        self._ways = Ways(options)
        self._caches: Dict[str, Any] = {}
        self._empty: Dict[str, Dict[str, torch.Tensor]] = {}
        self._real_buffers: Set[str] = set()

    def module(self, node: str) -> "torch.nn.Module":
        """The node's module, its computed buffers real, its parameters as they stand (meta unless loaded).

        Raises:
            StackError: the model has no module of that path.
        """
        try:
            module: torch.nn.Module = self.model.get_submodule(node)
        except AttributeError as error:
            raise StackError(f"the model has no module {node!r}: {error}", "key_mismatch") from error
        if node not in self._real_buffers:
            self._compute_buffers(node, module)
            self._real_buffers.add(node)
        return module

    def parameters(self, node: str) -> Dict[str, "torch.Tensor"]:
        """Names, shapes and dtypes that `load` takes: parameters and saved buffers, all on meta."""
        if node not in self._empty:
            self._empty[node] = dict(self.module(node).state_dict(keep_vars=True))
        return self._empty[node]

    def load(self, node: str, weights: Mapping[str, "torch.Tensor"]) -> None:
        """Puts weights into the node, cast to the dtype in which the model holds them.

        Raises:
            StackError: `key_mismatch`, a name is unknown or missing, or a shape differs.
        """
        expected = self.parameters(node)
        unknown, missing = sorted(set(weights) - set(expected)), sorted(set(expected) - set(weights))
        if unknown or missing:
            raise StackError(
                f"{node} lacks weights for {missing} and has no place for {unknown}", "key_mismatch"
            )
        module = self.module(node)
        for name, value in weights.items():
            empty = expected[name]
            if value.shape != empty.shape:
                shapes = f"{list(value.shape)} in the checkpoint, {list(empty.shape)} in the model"
                raise StackError(f"{node}.{name}: {shapes}", "key_mismatch")
            place(module, name, value.detach().to(self.device, empty.dtype))

    def free(self, node: str) -> None:
        """Takes the node's weights out again."""
        module = self.model.get_submodule(node)
        for name, empty in self._empty.get(node, {}).items():
            place(module, name, empty.detach())

    def run(
        self,
        node: str,
        weights: Optional[Mapping[str, "torch.Tensor"]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        state: Optional[str] = None,
        keep: bool = False,
    ) -> Any:
        """Runs one node.

        Args:
            node: module path.
            weights: parameter -> tensor; None: those of the last run with `keep`.
            args: positional arguments; `day0_worker.trees.STATE` stands for the cache.
            kwargs: keyword arguments, likewise.
            state: name of the sequence whose cache is used; None: no cache.
            keep: whether the weights stay for the next run.

        Returns:
            What the module returns.

        Raises:
            StackError: see `module` and `load`.
        """
        import torch

        cache = None if state is None else self.cache(state)
        module = self.module(node)
        try:
            if weights is not None:
                self.load(node, weights)
            with torch.no_grad(), self._ways.active():
                return module(*with_state(list(args), cache), **with_state(dict(kwargs), cache))
        finally:
            if not keep:
                self.free(node)

    def cache(self, state: str) -> Any:
        """The sequence's cache, made on first use as the model family wants it."""
        if state not in self._caches:
            self._caches[state] = new_cache(self.model)
        return self._caches[state]

    def forget(self, state: str) -> None:
        """Drops the sequence's cache."""
        self._caches.pop(state, None)

    def _compute_buffers(self, node: str, module: "torch.nn.Module") -> None:
        """Makes buffers that no checkpoint holds (rotary frequencies) as `from_pretrained` does."""
        import torch
        from transformers import initialization

        owners = _owners(self.model)
        with torch.no_grad(), initialization.guard_torch_init_functions():
            for path, part in module.named_modules(prefix=node):
                computed = {name: part._buffers.get(name) for name in part._non_persistent_buffers_set}
                empty = {name: value for name, value in computed.items() if value is not None}
                if not any(value.is_meta for value in empty.values()):
                    continue
                for name, value in empty.items():
                    part._buffers[name] = torch.empty_like(value, device=self.device)
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


def new_cache(model: Any) -> Any:
    """An empty cache for one sequence: the family's own class where its module defines one."""
    from transformers import cache_utils

    family = vars(sys.modules[type(model).__module__])
    own = [
        value
        for value in family.values()
        if isinstance(value, type)
        and issubclass(value, cache_utils.Cache)
        and value.__module__ == type(model).__module__
    ]
    return own[0]() if len(own) == 1 else cache_utils.DynamicCache(config=model.config)
