"""Python read as text: what it defines, imports, asks for and calls; hostile text ends in a sentence."""

from __future__ import annotations

import pytest

from day0.adapters.models.code_reading import MAX_BYTES, Reading, read_code

PATHS = {"modeling_x.py", "configuration_x.py", "sub/__init__.py", "sub/inner.py"}


def reading(text: str, path: str = "modeling_x.py") -> Reading:
    return read_code(path, text.encode(), PATHS)


def kinds(text: str) -> set[tuple[str, str]]:
    return {(kind, name) for kind, name, _ in reading(text).calls}


def test_definitions_imports_and_kernels() -> None:
    found = reading(
        "import torch, triton, triton.language as tl\n"
        "from typing import Any\n"
        "from einops import rearrange\n"
        "from .configuration_x import Conf\n"
        "from .missing import B\n"
        "from . import sub\n"
        "try:\n    from .optional import C\n    from fla.ops.kda import chunk_kda\nexcept ImportError: pass\n"
        "from kernels import get_kernel\n"
        "flash = get_kernel('kernels-community/flash-attn')\n"
        "@triton.autotune(configs=[])\n@triton.jit\ndef scan(x): pass\n"
        "class Net(torch.nn.Module, Base):\n    def forward(self, x):\n        return torch.ops.acme.mm(x)\n"
    )
    assert found.classes == [("Net", 16, ("torch.nn.Module", "Base"))]
    assert found.functions == 2
    assert found.packages == {"torch", "triton", "einops", "fla", "kernels"}
    assert found.relative == {"configuration_x.py", "sub/__init__.py"}
    assert found.missing == {".missing"}
    assert found.kernels == {"package:triton", "package:fla", "package:kernels", "triton:scan",
                             "hub:kernels-community/flash-attn", "torch:acme.mm"}  # fmt: skip
    assert not found.calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os as o\no.system('x')", ("process", "os.system")),
        ("from os import system as s\ns('x')", ("process", "os.system")),
        ("import os\nf = os.popen", ("process", "os.popen")),
        ("import os\ngetattr(os, 'sys' 'tem')('x')", ("process", "os.system")),
        ("import os\ngetattr(os, name)('x')", ("execute", "getattr(os, ...)")),
        ("__import__('os').system('x')", ("process", "os.system")),
        ("import subprocess\nsubprocess.Popen('x')", ("process", "subprocess.Popen")),
        ("map(exec, texts)", ("execute", "exec")),
        ("().__class__.__base__.__subclasses__()", ("execute", "__subclasses__")),
        ("import base64\nexec(base64.b64decode('eA=='))", ("execute", "decoded text")),
        ("import socket\ns = socket.socket()", ("network", "socket.socket")),
        ("import requests\nrequests.get(u)", ("network", "requests.get")),
        ("from urllib.request import urlopen\nurlopen(u)", ("network", "urllib.request.urlopen")),
        ("import pickle\npickle.loads(b)", ("unpickle", "pickle.loads")),
        ("import torch\ntorch.load(f)", ("unpickle", "torch.load")),
        ("import torch\ntorch.load(f, weights_only=False)", ("unpickle", "torch.load")),
        ("import numpy as np\nnp.load(f, allow_pickle=True)", ("unpickle", "numpy.load")),
        ("import yaml\nyaml.load(f)", ("unpickle", "yaml.load")),
        ("import importlib\nimportlib.import_module(n)", ("import", "importlib.import_module")),
        ("import ctypes\nctypes.CDLL('x')", ("native", "ctypes.CDLL")),
        ("from torch.utils.cpp_extension import load_inline\nload_inline(n)",
         ("native", "torch.utils.cpp_extension.load_inline")),
        ("open(f, 'wb')", ("write", "open")),
        ("open(f, mode='a')", ("write", "open")),
        ("p.write_text('x')", ("write", "p.write_text")),
        ("# -*- coding: rot13 -*-\nx = 1", ("execute", "coding rot13")),
    ],
)  # fmt: skip
def test_calls_that_do_more_than_compute(text: str, expected: tuple[str, str]) -> None:
    assert expected in kinds(text)


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()\nre = x.compile()",
        "import torch, re\ntorch.compile(m)\nre.compile('x')",
        "import torch\ntorch.load(f, weights_only=True)",
        "open(f)\nopen(f, 'rb')\nself.open(f)",
        "import os\nos.path.join(a, b)\nos.environ.get('x')",
        "code = text\ncode.split()\nsocket = 1\nsocket.close()",
        "from urllib.parse import urlparse\nurlparse(u)",
        "import importlib.metadata\nimportlib.metadata.version('x')",
        "import yaml\nyaml.load(f, Loader=yaml.SafeLoader)",
        "import requests",
    ],
)
def test_ordinary_code_raises_no_alarm(text: str) -> None:
    assert kinds(text) == set()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"def f(:\n", "is not Python"),
        (b"x = '\xff'", "not UTF-8 at byte 5"),
        (b"a\0b", "is not Python"),
        (b"-" * 100_000 + b"1", "nested too deeply"),
        (b"1" + b"+1" * 100_000, "nested too deeply"),
        (b"(" * 5000, "is not Python"),
        (b"x=" + b"9" * 5000, "is not Python"),
        (b"#" * (MAX_BYTES + 1), "more than"),
    ],
)
def test_hostile_text_ends_in_a_sentence(data: bytes, error: str) -> None:
    assert error in read_code("x.py", data, set()).error


def test_relative_imports_from_a_folder() -> None:
    found = reading("from ..configuration_x import A\nfrom .inner import B\nfrom ...out import C", "sub/x.py")
    assert found.relative == {"configuration_x.py", "sub/inner.py"}
    assert found.missing == {"...out"}
