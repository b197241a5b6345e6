"""Nodes of a transformers model as modules, built without weights and filled one node at a time."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Callable, Collection, Dict, Iterator, Mapping, Optional, Sequence, Set

from day0_worker.computed_buffers import compute_buffers
from day0_worker.dtypes import torch_dtype
from day0_worker.expert_stack import compacted
from day0_worker.parts import PausedRuns, pausing_at
from day0_worker.stack import StackError
from day0_worker.torch_globals import changing, computing
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
    with changing(), torch.device("meta"), _meta_safe_creation():
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

    Caches of sequences stay until `forget`. Runs under `torch.no_grad`. To run several times with one set of
    weights, `load` them, run with None and `keep`, then `free` them.

    Args:
        config: see `build_model`.
        architecture: see `build_model`.
        dtype: see `build_model`.
        options: see `build_model`.
        device: torch device on which nodes run.

    Attributes:
        paused: runs that stand still at their experts.
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
        self.paused = PausedRuns(device)
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
            compute_buffers(self.model, node, module, self.device)
            self._real_buffers.add(node)
        return module

    def parameters(self, node: str) -> Dict[str, "torch.Tensor"]:
        """Names, shapes and dtypes that `load` takes: parameters and saved buffers, all on meta."""
        if node not in self._empty:
            self._empty[node] = dict(self.module(node).state_dict(keep_vars=True))
        return self._empty[node]

    def load(
        self,
        node: str,
        weights: Mapping[str, "torch.Tensor"],
        without: str = "",
        narrow: Collection[str] = (),
    ) -> None:
        """Puts weights into the node, cast to the dtype in which the model holds them.

        Args:
            node: module path.
            weights: parameter -> tensor.
            without: module path inside the node whose parameters stay on meta, given or not.
            narrow: parameters that keep their own dtype where it is narrower.

        Raises:
            StackError: `key_mismatch`, a name is unknown or missing, or a shape differs.
        """
        expected = self.parameters(node)
        wanted, given = (
            {name for name in names if not (without and name.startswith(f"{without}."))}
            for names in (expected, weights)
        )
        unknown, missing = sorted(given - wanted), sorted(wanted - given)
        if unknown or missing:
            raise StackError(
                f"{node} lacks weights for {missing} and has no place for {unknown}", "key_mismatch"
            )
        module = self.module(node)
        for name in (name for name in weights if name in wanted):
            value, empty = weights[name], expected[name]
            if value.shape != empty.shape:
                shapes = f"{list(value.shape)} in the checkpoint, {list(empty.shape)} in the model"
                raise StackError(f"{node}.{name}: {shapes}", "key_mismatch")
            keeps = name in narrow and value.is_floating_point() and value.itemsize < empty.itemsize
            place(module, name, value.detach().to(self.device, value.dtype if keeps else empty.dtype))

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
        pause: str = "",
    ) -> Any:
        """Runs one node.

        Args:
            node: module path.
            weights: parameter -> tensor; None: those of the last run with `keep`, or of `load`.
            args: positional arguments; `day0_worker.trees.STATE` stands for the cache.
            kwargs: keyword arguments, likewise.
            state: name of the sequence whose cache is used; None: no cache.
            keep: whether the weights stay for the next run.
            pause: module path inside the node of the experts at which the run stands still; it must then be
                the work of a run of `day0_worker.parts.PausedRuns`, see `start`.

        Returns:
            What the module returns.

        Raises:
            StackError: see `module` and `load`.
        """
        import torch

        with computing():
            cache = None if state is None else self.cache(state)
            module = self.module(node)
            try:
                if weights is not None:
                    self.load(node, weights, pause)
                stop = pausing_at(self.module(f"{node}.{pause}")) if pause else contextlib.nullcontext()
                with stop, torch.no_grad(), self._ways.active():
                    return module(*with_state(list(args), cache), **with_state(dict(kwargs), cache))
            finally:
                if not keep:
                    self.free(node)

    def start(
        self,
        node: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        pause: str,
        state: Optional[str] = None,
        around: Callable[[], Any] = contextlib.nullcontext,
    ) -> Any:
        """Runs one node, whose weights were loaded, up to its experts; `paused.resume` goes on.

        Args:
            node: see `run`.
            args: see `run`.
            kwargs: see `run`.
            pause: see `run`.
            state: see `run`.
            around: makes a context that is entered in the run's thread, e.g. a dispatch mode.

        Returns:
            `day0_worker.parts.Paused`, or what the module returns where it does not call the experts.

        Raises:
            StackError: see `run`; `unsupported`, the experts are called with something else than hidden
                states, ids and weights.
        """

        def work() -> Any:
            with around():
                return self.run(node, None, args, kwargs, state, keep=True, pause=pause)

        return self.paused.start(work)

    @contextlib.contextmanager
    def experts(
        self, node: str, path: str, weights: Mapping[str, "torch.Tensor"]
    ) -> Iterator[Callable[..., Any]]:
        """The experts of a node over a compacted stack, through the implementation that the options chose.

        Args:
            node: module path.
            path: of the experts' module inside it.
            weights: parameter of the experts -> tensor [n, ...] of the n experts that are there.

        Yields:
            A function of hidden states [T, H], ids [T, k] out of 0 to n - 1 and weights [T, k].

        Raises:
            StackError: see `module` and `day0_worker.expert_stack.compacted`.
        """
        import torch

        self.module(node)
        with compacted(self.module(f"{node}.{path}"), weights, self.device) as forward:

            def run(hidden: torch.Tensor, ids: torch.Tensor, chosen: torch.Tensor) -> Any:
                with computing(), torch.no_grad(), self._ways.active():
                    return forward(hidden, ids, chosen)

            yield run

    def cache(self, state: str) -> Any:
        """The sequence's cache, made on first use as the model family wants it."""
        if state not in self._caches:
            self._caches[state] = new_cache(self.model)
        return self._caches[state]

    def forget(self, state: str) -> None:
        """Drops the sequence's cache."""
        self._caches.pop(state, None)

    def forget_all(self) -> None:
        """Drops all caches."""
        self._caches.clear()


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
