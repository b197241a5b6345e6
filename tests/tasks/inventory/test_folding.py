"""Names folded into rows with exact sets: nothing invented, nothing lost, however they are damaged."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from day0.tasks.inventory.folding import MAX_ROWS, Fold, fold_names
from day0.tasks.inventory.index_sets import parse_indices


def spelt(fold: Fold) -> set[str]:
    """All names that a whole row stands for."""
    names = {fold.pattern}
    others = iter(fold.others)
    for mark in re.findall(r"\{[lei]\}", fold.pattern):
        text = {"{l}": fold.layers, "{e}": fold.experts}.get(mark) or next(others)
        names = {
            name.replace(mark, str(index), 1) for name in names for index in parse_indices(text)
        }  # fmt: skip
    return names


def test_equal_layers_share_a_row() -> None:
    names = [f"model.layers.{i}.mlp.experts.{e}.w1.weight" for i in range(3, 61) for e in range(157, 256)]
    (fold,) = fold_names(names)
    assert fold.where == "layers 3-60, experts 157-255"
    assert (fold.tensors, fold.whole) == (58 * 99, True)


def test_layers_that_lack_other_indices_have_rows_of_their_own() -> None:
    names = ["a.layers.0.experts.1.w", "a.layers.0.experts.2.w", "a.layers.1.experts.2.w", "b"]
    assert [(fold.where, fold.tensors) for fold in fold_names(names)] == [
        ("layers 0, experts 1-2", 2),
        ("layers 1, experts 2", 1),
        ("", 1),
    ]


def test_many_kinds_of_damage_end_in_one_row_that_says_so() -> None:
    names = [f"a.layers.{layer}.experts.{layer}.w" for layer in range(500)]
    folds = fold_names(names)
    assert len(folds) == MAX_ROWS
    assert (folds[-1].whole, sum(fold.tensors for fold in folds)) == (False, 500)
    assert folds[-1].where.endswith("(not all combinations)")


@settings(max_examples=60, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1))
def test_rows_stand_for_exactly_the_names(indices: set[tuple[int, int]]) -> None:
    names = {f"m.layers.{layer}.mlp.experts.{expert}.up.weight" for layer, expert in indices}
    folds = fold_names(sorted(names))
    assert all(fold.whole for fold in folds)
    assert set().union(*(spelt(fold) for fold in folds)) == names
    assert sum(fold.tensors for fold in folds) == len(names)
