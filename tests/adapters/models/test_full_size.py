from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from day0.adapters.base.skeleton import Skeleton
from day0.adapters.models.skeleton import build_skeleton
from day0.flows.demo_model import ensure_demo_model
from support.layouts import RELEASES, layout_release

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).parents[2]
BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
from day0.adapters.models.skeleton import build_skeleton
from support.layouts import layout_release
from support.peak import peak_resident_bytes
text = build_skeleton(layout_release(sys.argv[2])).model_dump_json()
print(peak_resident_bytes())
sys.stderr.write(text)
"""


def test_a_671b_model_is_built_within_one_gigabyte() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", BUILD, str(SUPPORT), "deepseek-ai--DeepSeek-R1"],
        capture_output=True, text=True, check=True, timeout=280,
    )  # fmt: skip
    peak = int(answer.stdout)
    text = answer.stderr[answer.stderr.index('{"architecture"') :]
    assert peak < 2**30
    assert len(text) < 8 * 2**20
    skeleton = Skeleton.model_validate_json(text)
    assert Counter(node.role for node in skeleton.nodes) == {
        "embedding": 1, "position": 1, "layer": 61, "norm": 1, "head": 1,
    }  # fmt: skip
    assert all(not node.missing for node in skeleton.nodes)
    assert {name.split(".")[2] for name in skeleton.unused} == {"61"}  # the prediction layer
    experts = skeleton.node("model.layers.60").weights["mlp.experts.gate_up_proj"]
    assert tuple(experts.shape) == (256, 4096, 7168)
    assert len(experts.tensors) == 2 * 2 * 256
    assert skeleton.node("model.layers.3").state.per_token == 512 + 64


@pytest.mark.parametrize("name", [name for name in RELEASES if "DeepSeek" not in name])
def test_packed_layouts_are_mapped_whole(name: str) -> None:
    skeleton = build_skeleton(layout_release(name))
    assert [node.missing for node in skeleton.nodes if node.missing] == []
    assert skeleton.anomalies == []
    experts = {node.experts for node in skeleton.nodes if node.feed_forward == "moe"}
    assert experts == {"mlp.experts"}


REFERENCE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from transformers import AutoModelForCausalLM
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.reference import StreamingReference
from day0.adapters.models.skeleton import build_skeleton
from support.peak import peak_resident_bytes
release = open_release(sys.argv[2])
reference = StreamingReference(build_skeleton(release), release.checkpoint, noise="bf16")
tokens = [[504, 3575, 282, 4649, 314, *range(1000, 1059)]]
before = peak_resident_bytes()
ours = reference.forward(tokens)
grown = peak_resident_bytes() - before
model = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
with torch.no_grad():
    print(grown, torch.equal(ours, model(torch.tensor(tokens)).logits))
"""


def test_the_demo_model_is_bit_equal_to_stock_within_its_bound(tmp_path: Path) -> None:
    folder = ensure_demo_model(tmp_path)
    answer = subprocess.run(
        [sys.executable, "-c", REFERENCE, str(SUPPORT), str(folder)],
        capture_output=True, text=True, check=True, timeout=280,
    )  # fmt: skip
    grown, equal = answer.stdout.split()
    assert equal == "True"
    embedding = 49152 * 576
    assert int(grown) < (4 + 2 + 2) * embedding + 2**28  # fp32, bf16, the file's pages, and room to compute
