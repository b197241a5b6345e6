from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from day0.adapters.base.errors import SkeletonError
from day0.adapters.base.target import Call
from day0.adapters.models.walk import Glue, NodeCall, Walk
from day0_worker.trees import decode_arguments, encode
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
TOKENS = [[3, 4, 5, 6], [7, 8, 9, 10]]


def answer(model: TinyRelease, call: NodeCall) -> Call:
    """Runs the node inside stock transformers."""
    args, kwargs = decode_arguments(call.call.tree, call.call.tensors)
    kwargs.pop("cache", None)
    with torch.no_grad():
        return Call(*encode(model.stock.get_submodule(call.node)(*args, **kwargs)))


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "day0-walk"] == []


@pytest.mark.usefixtures("no_thread_left")
def test_a_walk_hands_every_node_over_and_ends_with_the_models_own_logits(tiny: Tiny) -> None:
    model = tiny("llama")
    names = []
    with Walk(model.skeleton, TOKENS, "fp32") as walk:
        for call in walk:
            names.append(call.node)
            call.reply(answer(model, call))
    assert names == [node.name for node in model.skeleton.nodes]
    with torch.no_grad():
        expected = model.stock(torch.tensor(TOKENS)).logits
    assert torch.equal(walk.logits, expected)


@pytest.mark.usefixtures("no_thread_left")
def test_walks_go_in_lockstep_over_one_glue(tiny: Tiny) -> None:
    model = tiny("llama")
    glue = Glue(model.skeleton, "fp32")
    with (
        Walk(model.skeleton, TOKENS, "fp32", glue=glue) as first,
        Walk(model.skeleton, TOKENS[:1], "fp32", glue=glue) as second,
    ):
        for one, other in zip(first, second, strict=True):
            assert (one.node, one.index) == (other.node, other.index)
            one.reply(answer(model, one))
            other.reply(answer(model, other))
    torch.testing.assert_close(first.logits[:1], second.logits, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("answered", [0, 1, 3])
def test_a_walk_that_is_left_early_leaves_no_thread(tiny: Tiny, answered: int) -> None:
    model = tiny("llama")
    with Walk(model.skeleton, TOKENS, "fp32") as walk:
        for call in walk:
            if call.index == answered:
                break
            call.reply(answer(model, call))
    with pytest.raises(ValueError, match="not finished"):
        _ = walk.logits


@pytest.mark.usefixtures("no_thread_left")
def test_a_walk_that_never_began_can_be_closed(tiny: Tiny) -> None:
    Walk(tiny("llama").skeleton, TOKENS, "fp32").close()


@pytest.mark.usefixtures("no_thread_left")
def test_each_call_takes_one_reply(tiny: Tiny) -> None:
    model = tiny("llama")
    with Walk(model.skeleton, TOKENS, "fp32") as walk:
        call = next(walk)
        with pytest.raises(RuntimeError, match="not answered"):
            next(walk)
        call.reply(answer(model, call))
        with pytest.raises(RuntimeError, match="does not wait"):
            call.reply(answer(model, call))


@pytest.mark.usefixtures("no_thread_left")
def test_a_wrong_reply_shows_as_a_failure_of_the_glue(tiny: Tiny) -> None:
    with Walk(tiny("llama").skeleton, TOKENS, "fp32") as walk:
        next(walk).reply(Call("not a tensor", {}))
        with pytest.raises(SkeletonError) as caught:
            next(walk)
    assert caught.value.code == "E410"


@pytest.mark.usefixtures("no_thread_left")
def test_masks_follow_the_stacks_attention(tiny: Tiny) -> None:
    def mask(attention: str) -> object:
        model = tiny("llama")
        with Walk(model.skeleton, TOKENS, "bf16", options={"attn": attention}) as walk:
            for call in walk:
                if call.node == "model.layers.0":
                    return call.call.tree["kwargs"]["attention_mask"]
                call.reply(answer(model, call))
        raise AssertionError("no layer was called")

    assert mask("sdpa") is None
    assert mask("eager") is not None
