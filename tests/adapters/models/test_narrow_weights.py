"""Large matrices that stay as stored: the same numbers as if they had been widened before."""

from __future__ import annotations

import pytest
import torch

from day0.adapters.models import narrow_weights
from day0.adapters.models.narrow_weights import large_matrices, restore, widen_as_used


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> torch.nn.ModuleDict:
    """An embedding, a head with a bias and a small layer, in bf16."""
    monkeypatch.setattr(narrow_weights, "LARGE", 2**14)
    for name in ("_BLOCK", "_LARGE_BLOCK"):
        monkeypatch.setattr(narrow_weights, name, 4000)  # several blocks, the last one cut off
    torch.manual_seed(0)
    made = {
        "embedding": torch.nn.Embedding(1021, 48, padding_idx=3),
        "head": torch.nn.Linear(48, 1021),
        "small": torch.nn.Linear(48, 48),
    }
    return torch.nn.ModuleDict(made).bfloat16()


def test_only_large_layers_of_torch_itself_stay_narrow(parts: torch.nn.ModuleDict) -> None:
    class Scaled(torch.nn.Embedding):
        """Does more than to look up."""

    parts["scaled"] = Scaled(1021, 48)
    assert set(large_matrices(parts)) == {"embedding.weight", "head.weight"}
    assert set(large_matrices(torch.nn.Linear(2**7, 2**7))) == {"weight"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_they_compute_as_if_widened(parts: torch.nn.ModuleDict, dtype: torch.dtype) -> None:
    ids, values = torch.tensor([[0, 3, 1020], [7, 7, 1]]), torch.randn(2, 5, 48, dtype=dtype)
    head, table = parts["head"], parts["embedding"]
    assert isinstance(head, torch.nn.Linear)
    assert isinstance(table, torch.nn.Embedding)
    bias = head.bias.detach().to(dtype)
    head.bias = torch.nn.Parameter(bias)
    for part in large_matrices(parts).values():
        widen_as_used(part, dtype)
    with torch.no_grad():
        found, looked_up = head(values), table(ids)
    expected = (values.double() @ head.weight.detach().double().T + bias.double()).to(dtype)
    assert found.dtype == looked_up.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(looked_up, table.weight.detach().to(dtype)[ids])
    for part in large_matrices(parts).values():
        restore(part)
    assert table(ids).dtype == torch.bfloat16
