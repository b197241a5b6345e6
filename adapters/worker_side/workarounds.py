"""Ways around what a stack lacks, applied inside the worker; standard library and torch only."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

OPTION = "with"
"""Option of a target that names ways around: `?with=ID,ID`."""

Function = Callable[..., Any]

BUILT_IN: Mapping[str, str] = {"bug": "day0_worker.bugs:Bug"}
"""Name -> `module:Class` of what every worker has without being told: bugs put in on purpose."""

_references: Dict[str, str] = dict(BUILT_IN)
_loaded: Dict[str, "Workaround"] = {}
_sources: List[str] = []


class Workaround:
    """Base of all ways around: derive from it, override what is needed.

    Args:
        argument: what follows the name and a colon in the id, e.g. `aten.rsqrt.default:fp32`.

    Attributes:
        name: of the way around; with the argument it makes the id.
        id: `NAME` or `NAME:ARGUMENT`.
        replaces: operators that it gets around, e.g. `aten.silu.default`.
    """

    name: ClassVar[str] = ""
    replaces: Sequence[str] = ()

    def __init__(self, argument: str = "") -> None:
        self.argument = argument
        self.id = f"{self.name}:{argument}" if argument else self.name

    def applies(self, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """Whether it stands in for this call, an operator call as JSON, of a model with this config."""
        return call["op"] in self.replaces

    def apply(self, model: Any) -> None:
        """Changes the model in place, before weights are there or after; by default nothing."""

    def operators(self) -> Mapping[str, Function]:
        """Operator name -> a function of the same arguments that is run in its place; by default none.

        The function may call the operator itself, which then is not replaced again.
        """
        return {}

    def received(self, node: str, value: Any) -> Any:
        """A node's argument as the changed model takes it; called on each tensor, on the CPU."""
        return value

    def returned(self, node: str, value: Any) -> Any:
        """A tensor of a node's result as the unchanged model would give it, on the CPU."""
        return value


def announce(references: Mapping[str, str], sources: str) -> None:
    """Tells this process where ways around are found.

    Args:
        references: name -> `module:Class`.
        sources: folder with modules sent by the parent, used where the environment cannot import one.
    """
    _references.update(references)
    _sources[:] = [sources] if sources else _sources


def chosen(options: Mapping[str, str]) -> List[Workaround]:
    """The ways around that the options name, in order; one object an id and process.

    Raises:
        StackError: `unsupported`, nobody told where one of that name is; `import`, it is none.
    """
    return [_load(way) for way in options.get(OPTION, "").split(",") if way]


def apply_all(model: Any, options: Mapping[str, str]) -> None:
    """Changes the model as the options ask."""
    for way in chosen(options):
        way.apply(model)


def _load(way: str) -> Workaround:
    from day0_worker.stack import StackError

    if way not in _loaded:
        name, _, argument = way.partition(":")
        reference = _references.get(name)
        if reference is None:
            raise StackError(f"no workaround is called {name!r}", "unsupported")
        module, _, attribute = reference.partition(":")
        found = getattr(_module(module), attribute, None)
        if not (isinstance(found, type) and issubclass(found, Workaround)):
            kind = "day0_worker.workarounds.Workaround"
            raise StackError(f"{reference} is not a class derived from {kind}", "import")
        _loaded[way] = found(argument)
    return _loaded[way]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        if not _sources or _sources[0] in sys.path:
            raise
        sys.path.append(_sources[0])
        importlib.invalidate_caches()
        return importlib.import_module(name)


class Ways:
    """The ways around of one target, as a stack uses them.

    Args:
        options: of the target.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._all = chosen(options)
        self._functions: Dict[str, Function] = {}
        for way in self._all:
            self._functions.update(way.operators())

    def operator(self, op: str) -> Any:
        """The overload of that name, or a function of the same schema that is run in its place."""
        from day0_worker.operators import resolve

        overload = resolve(op)
        function = self._functions.get(op)
        if function is None:
            return overload

        def replaced(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        replaced._schema = overload._schema  # type: ignore[attr-defined]  # as an overload has it
        return replaced

    def replaces(self, op: str) -> bool:
        """Whether a function is run in the operator's place."""
        return op in self._functions

    def table(self, known: Optional[Mapping[Any, Function]] = None) -> Dict[Any, Function]:
        """Overload -> function, as tables of decompositions are written.

        Args:
            known: the table that this one is laid over. What a function calls itself is what it stands in
                for, so there the entry below it holds: a compiler may know some operators by their
                decomposition alone.
        """
        from day0_worker.operators import resolve

        below = known or {}
        return {
            overload: _once(function, below.get(overload))
            for overload, function in ((resolve(op), function) for op, function in self._functions.items())
        }

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """While it is entered, torch calls the functions instead of the operators."""
        if not self._functions:
            yield
            return
        from day0_worker.operators import resolve

        dispatched, called = _modes({resolve(op): function for op, function in self._functions.items()})
        with dispatched, called:
            yield

    def exported(self, module: Any, inputs: Sequence[Any], varying: Any = None) -> Any:
        """The module as an exported program, with the functions' operators in the operators' places.

        Args:
            module: takes its inputs one by one.
            inputs: examples.
            varying: `dynamic_shapes` of `torch.export`; None: all shapes are those of the examples.
        """
        import torch

        program = torch.export.export(module, tuple(inputs), dynamic_shapes=varying)
        return program.run_decompositions(self.table()) if self._functions else program

    def received(self, node: str, tree: Any) -> Any:
        """The arguments of a node, each tensor as the changed model takes it."""
        return self._mapped(tree, lambda way, tensor: way.received(node, tensor))

    def returned(self, node: str, tree: Any) -> Any:
        """The result of a node, each tensor as the unchanged model would give it."""
        return self._mapped(tree, lambda way, tensor: way.returned(node, tensor))

    def _mapped(self, tree: Any, change: Callable[[Workaround, Any], Any]) -> Any:
        for way in self._all:
            tree = _each(tree, way, change)
        return tree


def _once(function: Function, below: Optional[Function]) -> Function:
    """The function, but what it calls itself is left as it is, or to the decomposition that was there."""
    running: List[bool] = []

    def guarded(*args: Any, **kwargs: Any) -> Any:
        if running:
            return NotImplemented if below is None else below(*args, **kwargs)
        running.append(True)
        try:
            return function(*args, **kwargs)
        finally:
            running.pop()

    return guarded


def _each(value: Any, way: Workaround, change: Callable[[Workaround, Any], Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return change(way, value)
    if isinstance(value, dict):
        return type(value)((key, _each(item, way, change)) for key, item in value.items())
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_each(item, way, change) for item in value)
    return value


def _modes(table: Mapping[Any, Function]) -> Tuple[Any, Any]:
    """What sees operators below autograd, and what sees composite ones as they are called."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    whole = {torch.nn.functional.scaled_dot_product_attention: aten.scaled_dot_product_attention.default}

    class Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
            self._running: List[Any] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            function = None if func in self._running else table.get(func)
            if function is None:
                return func(*args, **(kwargs or {}))
            self._running.append(func)
            try:
                with self:
                    return function(*args, **(kwargs or {}))
            finally:
                self._running.pop()

    class Called(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            function = table.get(whole[func]) if func in whole else None
            return func(*args, **(kwargs or {})) if function is None else function(*args, **(kwargs or {}))

    return Dispatched(), Called()
