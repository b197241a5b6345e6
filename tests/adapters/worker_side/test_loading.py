from __future__ import annotations

import torch

from day0_worker.loading import weight_bytes
from support.simulated_device import DeviceTensor, register


def test_tied_weights_count_once() -> None:
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8)})
    assert weight_bytes(model) == (8 * 4 + 4 * 8 + 8) * 4
    model["head"].weight = model["embed"].weight
    assert weight_bytes(model) == (8 * 4 + 8) * 4


def test_weights_on_a_device_without_pointers_count() -> None:
    register()
    model = torch.nn.Module()
    model.first = torch.nn.Buffer(DeviceTensor(torch.ones(4, 2)))
    model.second = torch.nn.Buffer(DeviceTensor(torch.ones(3)))
    model.tied = model.first
    assert weight_bytes(model) == (4 * 2 + 3) * 4
