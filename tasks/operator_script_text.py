"""The text of an operator's script; `operator_script` fills in what stands between @ signs."""

from __future__ import annotations

SCRIPT = '''\
"""@TITLE@

Run it as `python THIS_FILE [DEVICE]`. It exits with 0 where the call is right, with 1 where the fault shows,
and with 2 where it cannot tell: the stack or its device cannot be set up here, or nothing says what is right.
"""

import subprocess
import sys

RIGHT, FAULT, UNTOLD = 10, 11, 12


def outside():
    """Runs the call in a process of its own, which may crash, end itself or never answer."""
    flags = ["-I"] if sys.flags.isolated else []
    command = [sys.executable, *flags, __file__, "--inside", *sys.argv[1:]]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ready = ran = False
    for line in child.stdout:
        print(line, end="", flush=True)
        ready, ran = ready or line.startswith("READY"), ran or line.startswith("RAN")
    code = child.wait()
    if code in (RIGHT, FAULT, UNTOLD):
        return code - RIGHT
    if not ready or ran:
        print("CANNOT TELL: the process ended", "after the call" if ran else "while setting up")
        return 2
    print(f"FAILS: the process ended with status {code} during the call")
    return 1


if "__file__" in globals() and sys.argv[1:2] != ["--inside"]:
    sys.exit(outside())

import base64
import faulthandler
import importlib
import math
import time
import traceback
import zlib

import torch

DEVICE = next((word for word in sys.argv[1:] if word != "--inside"), "@DEVICE@")
SECONDS = @SECONDS@
TOLERANCES = @TOLERANCES@
OTHERWISE, CONDITION = @OTHERWISE@, @CONDITION@


class Untold(Exception):
    """The script cannot tell."""


def values(dtype, shape, stride, data):
    raw = bytearray(zlib.decompress(base64.b85decode(data)))
    flat = torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)
    return strided(flat.reshape(shape), stride)


def strided(value, stride):
    if list(value.stride()) == list(stride) or not value.numel():
        return value
    for place, step in enumerate(stride):
        if step == 0 and value.shape[place] > 1:
            return value
    extent = 1 + sum((size - 1) * step for size, step in zip(value.shape, stride))
    laid = torch.zeros(extent, dtype=value.dtype).as_strided(value.shape, stride)
    return laid.copy_(value)


def mapped(value, change):
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    return change(value)


def moved(value, device):
    """Copies on the device, in the same strides; one tensor met twice stays one."""
    done = {}

    def one(leaf):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in done:
                memory = leaf.untyped_storage().clone()
                place = leaf.storage_offset(), leaf.shape, leaf.stride()
                done[id(leaf)] = torch.empty(0, dtype=leaf.dtype).set_(memory, *place).to(device)
            return done[id(leaf)]
        return torch.device(device) if isinstance(leaf, torch.device) else leaf

    return mapped(value, one)


def widened(value, wide):
    """Copies on the CPU, floating ones in this dtype; None leaves all as they are."""
    done = {}

    def one(leaf):
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        if isinstance(leaf, torch.dtype):
            return wide if wide and leaf.is_floating_point else leaf
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in done:
            copy = leaf.clone()
            if wide and leaf.is_complex():
                copy = copy.to(torch.complex128)
            elif wide and leaf.is_floating_point():
                copy = copy.to(wide)
            done[id(leaf)] = copy
        return done[id(leaf)]

    return mapped(value, one)


def flat(value):
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in flat(item)]
    if isinstance(value, torch.Tensor):
        return [value.detach().cpu()]
    return [] if value is None else [torch.as_tensor(value)]


def attempt(wide):
    args, kwargs = widened([ARGS, KWARGS], wide)
    if wide and str(FUNCTION).startswith(("aten._softmax.", "aten._log_softmax.")):
        args = [*args[:2], False]  # `half_to_float` is refused for anything but half precision
    try:
        with torch.no_grad():
            torch.manual_seed(0)
            return flat(FUNCTION(*args, **kwargs))
    except Exception:  # the CPU has no kernel for this dtype
        return None


@LOOP@


def references():
    """The right values, and those of the CPU's kernel in the call's own dtypes; None where there is none."""
    own = attempt(None)
    exact = by_formula()
    if exact is not None:
        return flat(exact), own
    for wide in (torch.float64, torch.float32):
        right = attempt(wide)
        if right is not None:
            return right, own
    return own, own


def ordered(outputs):
    """Values with their positions, largest first, of an operator that may give them in any order."""
    if UNSORTED is None or outputs is None or len(outputs) != 2:
        return outputs
    order = outputs[0].argsort(dim=UNSORTED, descending=True)
    return [one.gather(UNSORTED, order) for one in outputs]


@JUDGE@


@RUNNER@


@MORE@


FUNCTION = torch.ops.@OP@
@INPUTS@
ARGS = @ARGS@
KWARGS = @KWARGS@
UNSORTED = @UNSORTED@
COMPARED = @COMPARED@  # whether values are decided: not those of random operators and of unwritten memory


def inside():
    try:
        for name in @MODULES@:
            importlib.import_module(name)
        set_up()
    except Exception:  # whatever the stack raises
        traceback.print_exc()
        print("CANNOT TELL: the stack or its device cannot be set up here")
        return UNTOLD
    print("READY: torch", torch.__version__, "on", DEVICE, flush=True)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        outputs = flat(run(FUNCTION, ARGS, KWARGS))
    except Exception as error:  # whatever the stack raises is the answer
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            print("CANNOT TELL: out of memory")
            return UNTOLD
        print("FAILS:", type(error).__name__, str(error)[:2000])
        return FAULT
    faulthandler.cancel_dump_traceback_later()
    print("RAN", flush=True)
    try:
        right, own = references()
        if right is None:
            raise Untold("it runs, and the CPU has no kernel that says what is right")
        found = disagreement(ordered(outputs), ordered(right), ordered(own)) or more()
    except Exception as why:  # the comparison itself fails
        print("CANNOT TELL:", type(why).__name__, str(why)[:2000])
        return UNTOLD
    if found:
        print("FAILS:", found)
        return FAULT
    print("right: this call alone does not show a fault here")
    return RIGHT


sys.exit(inside() - (0 if "__file__" in globals() else RIGHT))
'''
"""Without a file of its own (read from a pipe) it runs in one process, where a crash is the interpreter's."""

BY_ELEMENT = '''def deviation(got, due):
    """|got - due| / (|due| + s), s the root mean square of what is due, at most 1 for pointwise operators."""
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    rounded, got, due = due.to(got.dtype).to(wide), got.to(wide), due.to(wide)
    finite = torch.isfinite(rounded)
    odd = (finite != torch.isfinite(got)) | (torch.isnan(rounded) != torch.isnan(got))
    if not got.is_complex():
        odd |= torch.isinf(rounded) & (torch.sign(got) != torch.sign(rounded))
    if odd.any():
        return math.inf
    got, due = got[finite], due[finite]
    if not got.numel():
        return 0.0
    scale = float(due.abs().square().mean().sqrt())
    if torch.Tag.pointwise in FUNCTION.tags:
        scale = min(1.0, scale)
    error = (got - due).abs()
    return float((error / (due.abs() + scale)).max()) if scale else float(error.max())


def disagreement(outputs, right, own):
    like = right if own is None else own
    if len(outputs) != len(like):
        return f"{len(outputs)} outputs where {len(like)} are due"
    for got, due, form in zip(outputs, right, like):
        if got.shape != form.shape or (own is not None and got.dtype != form.dtype):
            return f"{got.dtype} {list(got.shape)} where {form.dtype} {list(form.shape)} is due"
        if not COMPARED or not got.numel():
            continue
        if not (got.is_floating_point() or got.is_complex()):
            wrong = int((got != due.to(got.dtype)).sum())
            if wrong:
                return f"{wrong} of {got.numel()} values differ"
            continue
        tolerance, error = TOLERANCES.get(str(got.dtype), OTHERWISE), deviation(got, due)
        if error > tolerance and own is not None:
            tolerance = min(max(tolerance, CONDITION * deviation(form, due)), CONDITION * tolerance)
        print("largest error", error, "of", tolerance, "allowed")
        if not error <= tolerance:
            return "values that the dtype does not explain"
    return ""'''
"""`disagreement`: each element against what its dtype explains."""
