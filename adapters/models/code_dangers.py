"""Which names in a stranger's Python can do more than compute, and which ask for kernels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

# Dotted prefixes -> kind; the longest prefix that fits decides, an empty kind is harmless.
_PREFIXES: dict[str, str] = {
    "exec": "execute", "eval": "execute", "builtins.exec": "execute", "builtins.eval": "execute",
    "builtins.compile": "execute", "builtins.__import__": "import", "runpy": "execute", "code": "execute",
    "codeop": "execute", "types.FunctionType": "execute", "types.CodeType": "execute",
    "__builtins__": "execute",
    "os.system": "process", "os.popen": "process", "os.exec": "process", "os.spawn": "process",
    "os.posix_spawn": "process", "os.fork": "process", "os.startfile": "process", "posix": "process",
    "nt.system": "process", "subprocess": "process", "pty": "process", "commands": "process",
    "asyncio.create_subprocess": "process", "pexpect": "process", "sh": "process",
    "socket": "network", "requests": "network", "urllib": "network", "urllib.parse": "", "urllib3": "network",
    "urllib2": "network", "httpx": "network", "aiohttp": "network", "http.client": "network",
    "http.server": "network", "ftplib": "network", "smtplib": "network", "telnetlib": "network",
    "paramiko": "network", "websocket": "network", "websockets": "network", "wget": "network",
    "pycurl": "network", "asyncio.open_connection": "network", "xmlrpc": "network",
    "huggingface_hub.hf_hub_download": "network", "huggingface_hub.snapshot_download": "network",
    "huggingface_hub.HfApi": "network", "requests.exceptions": "", "socket.gethostname": "",
    "torch.hub": "network",
    "pickle.load": "unpickle", "pickle.Unpickler": "unpickle", "_pickle.load": "unpickle",
    "_pickle.Unpickler": "unpickle", "cPickle.load": "unpickle", "dill.load": "unpickle",
    "cloudpickle.load": "unpickle", "joblib.load": "unpickle", "marshal.load": "unpickle",
    "shelve.open": "unpickle", "pandas.read_pickle": "unpickle", "yaml.unsafe_load": "unpickle",
    "yaml.full_load": "unpickle", "jsonpickle": "unpickle",
    "__import__": "import", "importlib": "import", "importlib.metadata": "", "importlib.resources": "",
    "importlib.util.find_spec": "", "importlib.util.module_from_spec": "import", "imp": "import",
    "zipimport": "import", "pkgutil.get_loader": "import",
    "transformers.dynamic_module_utils": "import",
    "ctypes": "native", "cffi": "native", "torch.utils.cpp_extension": "native",
    "torch.ops.load_library": "native", "torch.classes.load_library": "native", "cupy.RawKernel": "native",
    "cupy.RawModule": "native", "numba.cfunc": "native",
    "os.remove": "write", "os.unlink": "write", "os.rmdir": "write", "os.removedirs": "write",
    "os.rename": "write", "os.replace": "write", "os.chmod": "write", "os.symlink": "write",
    "os.putenv": "write", "shutil.rmtree": "write", "shutil.move": "write", "shutil.copy": "write",
}  # fmt: skip
_CONTINUES = frozenset({"os.exec", "os.spawn", "os.fork", "os.posix_spawn", "asyncio.create_subprocess",
                        "shutil.copy", "pickle.load", "_pickle.load", "cPickle.load", "dill.load",
                        "cloudpickle.load", "marshal.load"})  # fmt: skip
# Attributes that lead from any object to the interpreter's inside.
INSIDE = frozenset({"__subclasses__", "__globals__", "__builtins__", "__code__", "__loader__"})
DECODERS = frozenset({"base64.b64decode", "base64.b85decode", "base64.b32decode", "base64.a85decode",
                      "base64.decodebytes", "zlib.decompress", "codecs.decode", "bytes.fromhex",
                      "binascii.unhexlify", "binascii.a2b_base64", "bz2.decompress",
                      "lzma.decompress"})  # fmt: skip
# Packages whose kernels a target must provide, by the name that is imported.
KERNEL_PACKAGES = frozenset({
    "flash_attn", "flash_attn_interface", "flash_attn_2_cuda", "flash_attn_3", "mamba_ssm", "causal_conv1d",
    "causal_conv1d_cuda", "selective_scan_cuda", "fla", "xformers", "deep_gemm", "deep_ep", "flash_mla",
    "flashinfer", "triton", "tilelang", "kernels", "apex", "transformer_engine", "bitsandbytes",
    "liger_kernel", "grouped_gemm", "megablocks", "sageattention", "natten", "vllm", "sgl_kernel", "sglang",
    "torch_npu", "torch_mlu", "awq_ext", "awq", "auto_gptq", "gptqmodel", "hqq", "torchao", "cutlass",
    "quack", "xlstm", "mlstm_kernels", "flash_linear_attention", "lightning_attn", "accelerated_scan",
    "rwkv_cuda",
})  # fmt: skip
_WRITING = re.compile(r"[wax+]")
_NETWORK_SAFE_CONSTANTS = frozenset({"socket.error", "socket.timeout"})


def danger_of(name: str) -> str:
    """The kind of a dotted name; empty for a harmless one."""
    if name in _NETWORK_SAFE_CONSTANTS:
        return ""
    if name in _PREFIXES:
        return _PREFIXES[name]
    for prefix in _CONTINUES:  # `os.execve`, `pickle.loads`
        if name.startswith(prefix):
            return _PREFIXES[prefix]
    parts = name.split(".")
    for stop in range(len(parts) - 1, 0, -1):
        found = _PREFIXES.get(".".join(parts[:stop]))
        if found is not None:
            return found
    return ""


def call_danger(name: str, call: ast.Call) -> str:
    """The kind of a call that only its arguments make dangerous; empty for a harmless one."""
    keywords = {item.arg: item.value for item in call.keywords}
    last = name.rpartition(".")[2]
    if name == "compile":
        return "execute"
    if name == "torch.load":
        return "" if _is_true(keywords.get("weights_only")) else "unpickle"
    if name in ("numpy.load", "np.load"):
        return "unpickle" if "allow_pickle" in keywords and not _is_false(keywords["allow_pickle"]) else ""
    if name == "yaml.load":
        return (
            "" if "Safe" in ast.dump(keywords.get("Loader") or ast.Tuple(elts=call.args[1:2])) else "unpickle"
        )
    if name in ("open", "io.open", "codecs.open", "gzip.open"):
        return "write" if _writes(call.args[1:2], keywords) else ""
    if last == "open" and "." in name:  # `Path(...).open("w")`
        return "write" if _writes(call.args[:1], keywords) else ""
    return "write" if last in ("write_text", "write_bytes") and "." in name else ""


def _writes(mode: Iterable[ast.expr], keywords: dict[str | None, ast.expr]) -> bool:
    given = next(iter(mode), keywords.get("mode"))
    return (
        isinstance(given, ast.Constant)
        and isinstance(given.value, str)
        and len(given.value) < 5
        and bool(_WRITING.search(given.value))
    )


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
