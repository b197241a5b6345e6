"""What a router chose from."""

from __future__ import annotations

import torch

from day0.adapters.models.router_scores import RouterScores


def test_choices_of_the_largest_are_kept_as_they_were() -> None:
    scores = torch.randn(5, 8)
    with RouterScores(8) as recorder:
        values, ids = scores.topk(3)
        before = scores.clone()
        scores.zero_()  # a router may go on to write into them
        ids.zero_()
        torch.topk(torch.randn(5, 2, 4), k=2, dim=2)
    first, second = recorder.taken()
    assert torch.equal(first.scores, before)
    assert first.k == 3
    assert torch.equal(before.gather(1, first.ids), values)
    assert second.scores.shape == (5, 2, 4)
    assert recorder.taken() == ()


def test_other_choices_are_left_out() -> None:
    with RouterScores(8) as recorder:
        torch.randn(8, 5).topk(2, dim=0)
        torch.randn(5, 8).topk(2, largest=False)
        torch.randn(5, 9).topk(2)  # more than there are experts: an indexer's choice of positions
        torch.tensor(1.0).topk(1)
        torch.randn(5, 8).sort(descending=True)
    assert recorder.taken() == ()
