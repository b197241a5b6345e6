from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from day0_worker.failures import answer, classify
from day0_worker.stack import ERROR_KINDS, StackError


class OutOfMemoryError(RuntimeError):
    pass


def raised(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except Exception as error:
        # The very errors that torch raises are what is classified here.
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (lambda: torch.ones(2, 3) @ torch.ones(2, 3), "shape"),
        (lambda: torch.ones(2, 3) + torch.ones(4), "shape"),
        (lambda: torch.ones(2).to(torch.float8_e4m3fn).sum(), "dtype"),
        (lambda: torch.ones(2, 2) @ torch.ones(2, 2).half(), "dtype"),
        (lambda: torch.embedding(torch.ones(2, 2), torch.tensor([5])), "shape"),
        (lambda: torch.empty(2**60), "memory"),
        (lambda: torch.nn.Linear(2, 2).load_state_dict({}), "key_mismatch"),
        (lambda: __import__("package_that_is_nowhere"), "import"),
        (lambda: 1 // 0, "runtime"),
    ],
)
def test_errors_of_torch_are_classified(work: Callable[[], object], kind: str) -> None:
    assert classify(raised(work)) == kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            NotImplementedError("Could not run 'aten::histc' with arguments from the 'PrivateUse1' backend."),
            "missing_operator",
        ),
        (RuntimeError("\"histogram_mps\" not implemented for 'Int'"), "dtype"),
        (
            RuntimeError(
                "NOT_IMPLEMENTED : Could not find an implementation for Gelu(20) node with name 'n'"
            ),
            "missing_operator",
        ),
        (RuntimeError("No ONNX function found for <OpOverload(op='aten._grouped_mm')>"), "missing_operator"),
        (RuntimeError("type fp8e4nv not supported in this architecture"), "dtype"),
        (RuntimeError("CUDA error: out of memory"), "memory"),
        (OutOfMemoryError("tried to allocate 20 GiB"), "memory"),
        (MemoryError(), "memory"),
        (StackError("no", "unsupported"), "unsupported"),
        (StackError("no", "a kind of its own"), "runtime"),
        (NotImplementedError("later"), "unsupported"),
    ],
)
def test_errors_of_other_stacks_are_classified(error: BaseException, kind: str) -> None:
    assert classify(error) == kind
    assert kind in ERROR_KINDS


def test_the_cause_counts_and_the_frames_are_shown() -> None:
    def inner() -> None:
        raise RuntimeError("expected scalar type Half but found Float")

    def outer() -> None:
        try:
            inner()
        except RuntimeError as error:
            raise ValueError("the exporter gave up") from error

    said = answer(raised(outer))
    assert said["kind"] == "dtype"
    assert said["type"] == "ValueError"
    assert "caused by RuntimeError: expected scalar type Half" in said["message"]
    assert any("test_failures.py" in frame for frame in said["frames"])


def test_a_refusal_stays_one_whoever_wraps_it() -> None:
    def refuse() -> None:
        raise StackError("layer 0 keeps its state in a HybridCache; the shape is its own", "unsupported")

    def export() -> None:
        try:
            refuse()
        except StackError as error:
            raise RuntimeError("Failed to export the model; shape mismatch") from error

    said = answer(raised(export))
    assert said["kind"] == "unsupported"
    assert said["message"] == "layer 0 keeps its state in a HybridCache; the shape is its own"


def test_messages_are_bounded() -> None:
    assert len(answer(RuntimeError("x" * 100_000))["message"]) <= 4000
