"""How a script runs one operator on each stack, and what it looks at beside the values."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import ModuleType

from day0.adapters.base.target_spec import TargetSpec
from day0_worker import host_fallback, kept_inputs

from .thresholds import SLOW_FACTOR, SLOW_SECONDS, SLOW_TIMINGS

_EAGER = """
def set_up():
    torch.zeros(2).to(DEVICE).cpu()


def run(function, args, kwargs):
    with torch.no_grad():
        return function(*moved(args, DEVICE), **moved(kwargs, DEVICE))
"""

_AS_MODULE = """
def as_module(function, args, kwargs):
    inputs = []

    def lifted(value):
        if isinstance(value, torch.Tensor):
            for place, known in enumerate(inputs):
                if known is value:
                    return ("input", place)
            inputs.append(value)
            return ("input", len(inputs) - 1)
        if isinstance(value, (list, tuple)):
            return [lifted(item) for item in value]
        return value

    shapes = [lifted(value) for value in args], {key: lifted(value) for key, value in kwargs.items()}

    def lowered(value, given):
        if isinstance(value, tuple) and value[:1] == ("input",):
            return given[value[1]]
        return [lowered(item, given) for item in value] if isinstance(value, list) else value

    class One(torch.nn.Module):
        def forward(self, *given):
            given = [tensor.clone() for tensor in given]
            result = function(
                *[lowered(value, given) for value in shapes[0]],
                **{key: lowered(value, given) for key, value in shapes[1].items()},
            )
            return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    return One(), inputs


"""

_RUNNERS: Mapping[str, str] = {
    "eager": _EAGER,
    "inductor": """
def set_up():
    torch.zeros(2).to(DEVICE).cpu()


def run(function, args, kwargs):
    args, kwargs = moved(args, DEVICE), moved(kwargs, DEVICE)
    with torch.no_grad():
        return torch.compile(lambda: function(*args, **kwargs), dynamic=False)()
""",
    "onnxruntime": _AS_MODULE
    + """
def set_up():
    for name in ("onnx", "onnxscript", "onnxruntime"):
        importlib.import_module(name)


def run(function, args, kwargs):
    import onnxruntime

    module, inputs = as_module(function, args, kwargs)
    program = torch.onnx.export(module, tuple(inputs), dynamo=True, verbose=False)
    model = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    known = [entry.name for entry in session.get_inputs()]
    names = [entry.name for entry in program.model.graph.inputs]
    feeds = {name: inputs[place].numpy() for place, name in enumerate(names) if name in known}
    return [torch.from_numpy(value) for value in session.run(None, feeds)]
""",
    "openvino": _AS_MODULE
    + """
def set_up():
    import openvino

    if not any(name.startswith(DEVICE.upper()) for name in openvino.Core().available_devices):
        raise RuntimeError(f"OpenVINO sees no device {DEVICE.upper()}")


def run(function, args, kwargs):
    import openvino

    module, inputs = as_module(function, args, kwargs)
    exported = torch.export.export(module, tuple(inputs))
    graph = openvino.convert_model(exported)
    exact = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
    compiled = openvino.Core().compile_model(graph, DEVICE.upper(), exact)
    known = {name for port in compiled.inputs for name in port.get_names()}
    names = exported.graph_signature.user_inputs
    feeds = {name: inputs[place].numpy() for place, name in enumerate(names) if name in known}
    results = compiled(feeds)
    return [torch.from_numpy(results[port].copy()) for port in compiled.outputs]
""",
}

_STACK = """
# The stack runs operators in its own way, so it is asked itself; its package needs Day0.
def set_up():
    global STACK
    module = importlib.import_module("@MODULE@")
    STACK = getattr(module, "@CLASS@")(DEVICE, 1, @DTYPE@, @OPTIONS@)
    STACK.begin_call()


def run(function, args, kwargs):
    return STACK.run_op("@OP@", moved(args, "cpu"), moved(kwargs, "cpu"))
"""

_TIMED = """
def took(device):
    args, kwargs = moved(ARGS, device), moved(KWARGS, device)
    module = getattr(torch, device.split(":")[0], None)
    finished = getattr(module, "synchronize", lambda: None)
    finished()
    began = time.perf_counter()
    with torch.no_grad():
        FUNCTION(*args, **kwargs)
    finished()
    return time.perf_counter() - began


"""
_SLOW = f"""
def more():
    host = took("cpu")
    limit = max({SLOW_SECONDS}, {SLOW_FACTOR} * host)
    seconds = [@SECONDS@ for _ in range({SLOW_TIMINGS})]
    print("seconds", seconds, "on the host's CPU", host)
    return f"each timing takes more than {{limit:.3g}} s" if min(seconds) > limit else ""
"""
_MORE: Mapping[str, str] = {
    "fallback": """
def more():
    with torch.no_grad():
        args, kwargs = moved(ARGS, DEVICE), moved(KWARGS, DEVICE)
        found = watched(DEVICE.split(":")[0], lambda: FUNCTION(*args, **kwargs))
    return "; ".join(f"{name} ran on the host: {why}" for name, why in found)
""",
    "wrong": """
def more():
    args, kwargs = moved(ARGS, DEVICE), moved(KWARGS, DEVICE)
    kept = kept_inputs(FUNCTION, args, kwargs)
    with torch.no_grad():
        FUNCTION(*args, **kwargs)
    changed = changed_inputs(kept)
    return f"it wrote over its argument {', '.join(changed)}" if changed else ""
""",
    "slow": _TIMED + _SLOW.replace("@SECONDS@", "took(DEVICE)"),
}
_PARTS: Mapping[str, ModuleType] = {"fallback": host_fallback, "wrong": kept_inputs}

_MORE_OF_STACK = """
def more():
    said = [one for one in STACK.end_call()["anomalies"] if one["code"] in ("cpu_fallback", "input_changed")]
    return "; ".join(f"{one['message']} {one['evidence']}" for one in said)
"""
_SECONDS_OF_STACK = """
def seconds():
    STACK.begin_call()
    began = time.perf_counter()
    run(FUNCTION, ARGS, KWARGS)
    whole = time.perf_counter() - began
    return STACK.measure.seconds if STACK.measure.spans else whole


"""
_NOTHING_MORE = """
def more():
    return ""
"""
_UNTOLD = """
def more():
    raise Untold("the values are right, and whether it is @STATUS@ is nothing that this script can see")
"""


def runner(spec: TargetSpec, op: str, status: str, reference: str) -> tuple[str, str]:
    """Source of `set_up` and `run`, and of `more`, which looks at what values do not show.

    Args:
        spec: of the target.
        op: that is called.
        status: that is to be shown.
        reference: `module:Class` of the stack where it runs operators in a way of its own; else empty.
    """
    if reference:
        return _of_stack(spec, op, status, reference)
    name = spec.stack if spec.stack in _RUNNERS else "eager"
    more = _NOTHING_MORE
    if name == "eager" and status in _MORE:
        part = [bare(_PARTS[status])] if status in _PARTS else []
        more = "\n\n".join([*part, _MORE[status].strip("\n")])
    elif status in ("fallback", "slow"):
        more = _UNTOLD.replace("@STATUS@", status)
    return _RUNNERS[name].strip("\n"), more.strip("\n")


def _of_stack(spec: TargetSpec, op: str, status: str, reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    filled = {
        "MODULE": module,
        "CLASS": name,
        "OP": op,
        "DTYPE": repr(spec.dtype),
        "OPTIONS": repr(dict(spec.options)),
    }
    text = _STACK
    for mark, value in filled.items():
        text = text.replace(f"@{mark}@", value)
    slow = _TIMED + _SECONDS_OF_STACK + _SLOW.replace("@SECONDS@", "seconds()")
    return text.strip("\n"), (slow if status == "slow" else _MORE_OF_STACK).strip("\n")


def bare(*parts: ModuleType | Callable[..., object]) -> str:
    """Sources without docstrings, imports of this package and annotations' future: what a script needs."""
    texts = [ast.unparse(_Bare().visit(ast.parse(textwrap.dedent(inspect.getsource(one))))) for one in parts]
    return "\n\n\n".join(texts)


class _Bare(ast.NodeTransformer):
    """Takes out docstrings, annotations, and imports that a script cannot make or has made."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        own = (node.module or "").partition(".")[0] in ("day0_worker", "day0", "__future__")
        return None if own or node.level else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        node.body = node.body or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)
