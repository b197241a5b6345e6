"""What loading plain weights from a pickle imports, and what runs commands or text as code."""

from __future__ import annotations

import re

_NUMPY = r"numpy(\._?core)?"
# Everything that `torch.save` of a state dictionary and arrays of numpy refer to; torch's own allow-list for
# `weights_only` is the model (torch/_weights_only_unpickler.py).
_PLAIN = re.compile(
    r"torch\.(Float|Half|BFloat16|Double|Long|Int|Short|Char|Byte|Bool|Complex\w*|Quantized\w*|QU?Int\w*)"
    r"(Storage|Tensor)"
    r"|torch\.storage\.(Untyped|Typed|_Untyped|_Typed|\w*)Storage|torch\.(Untyped|Typed)Storage"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|sparse_tensor"
    r"|sparse_csr_tensor|qtensor|meta_tensor_no_storage|nested_tensor|device_tensor_from_numpy"
    r"|device_tensor_from_cpu_tensor|wrapper_subclass|from_type_v2)"
    r"|torch\._tensor\._rebuild_from_type_v2"
    r"|torch\.nn\.parameter\.(Parameter|Buffer|UninitializedParameter)"
    r"|torch\.(Tensor|Size|device|dtype|strided|sparse_coo|sparse_csr|per_tensor_affine|per_channel_affine)"
    r"|torch\.(float|double|half|bfloat16|uint|int|long|short|bool|complex|cfloat|cdouble|float8_\w+|q?u?int\w*"
    r"|float\d+|complex\d+)"
    r"|torch\.serialization\._get_layout"
    r"|collections\.(OrderedDict|defaultdict|Counter|deque)"
    r"|(builtins|__builtin__)\.(set|frozenset|list|dict|tuple|int|float|complex|bytearray|bytes|bool|str|long"
    r"|unicode|slice|range|NoneType)"
    rf"|{_NUMPY}\.multiarray\.(_reconstruct|scalar)|{_NUMPY}\.numeric\._frombuffer"
    r"|numpy\.(ndarray|dtype|bool_|str_|bytes_|float\d+|u?int\d+|complex\d+)|numpy\.dtypes\.\w+DType"
    r"|ml_dtypes\.\w+|_codecs\.encode"
)  # fmt: skip
# Parts of a dotted name that lead to commands, to the network, or to running text as code. A name may go
# through any module (`torch.serialization.os.system`), so every part counts.
_COMMANDS = frozenset({
    "os", "posix", "nt", "subprocess", "_posixsubprocess", "sys", "pty", "commands", "shutil", "socket",
    "runpy", "importlib", "imp", "ctypes", "_ctypes", "pickle", "_pickle", "cPickle", "dill",
    "cloudpickle", "marshal", "joblib", "webbrowser", "pdb", "bdb", "code", "codeop", "cProfile",
    "profile", "timeit", "trace", "pip", "pydoc", "doctest", "asyncio", "multiprocessing", "threading",
    "_thread", "signal", "requests", "urllib", "urllib2", "urllib3", "httplib", "http", "httpx",
    "aiohttp", "ftplib", "smtplib", "telnetlib", "ssl", "tempfile", "pathlib", "zipimport", "pkgutil",
    "ensurepip", "venv", "idlelib", "lib2to3", "distutils", "setuptools", "cpp_extension", "hub",
    "f2py", "types", "gc", "inspect", "logging", "site", "sysconfig", "eval", "exec", "execfile",
    "compile", "getattr", "setattr", "delattr", "__import__", "open", "file", "input", "globals",
    "locals", "vars", "apply", "map", "filter", "breakpoint", "system", "popen", "Popen", "attrgetter",
    "itemgetter", "methodcaller", "partial", "load", "loads", "_load_from_bytes", "load_library",
})  # fmt: skip


def is_plain(name: str) -> bool:
    """Whether loading plain weights may need this global."""
    return _PLAIN.fullmatch(name) is not None


def runs_commands(name: str) -> bool:
    """Whether this global can run commands or text as code, reach the network or other such globals."""
    return not is_plain(name) and not _COMMANDS.isdisjoint(name.split("."))
