from __future__ import annotations

import torch

from day0.adapters.models.buffers import Buffers

MIB = 2**20


def test_memory_is_used_again_only_when_nobody_holds_the_tensor() -> None:
    buffers = Buffers(64 * MIB)
    first = buffers.take([MIB], torch.float32)
    place, view = first.data_ptr(), first[5:].view(torch.int32)
    del first
    second = buffers.take([MIB], torch.float32)
    assert second.data_ptr() != place
    del view
    third = buffers.take([2, MIB // 2 - 7], torch.float32)
    assert third.data_ptr() == place
    assert third.shape == (2, MIB // 2 - 7)


def test_a_buffer_does_not_serve_much_smaller_tensors() -> None:
    buffers = Buffers(64 * MIB)
    place = buffers.take([8 * MIB], torch.uint8).data_ptr()
    held = buffers.take([2 * MIB], torch.uint8)
    assert held.data_ptr() != place
    assert buffers.take([5 * MIB], torch.uint8).data_ptr() == place


def test_no_more_is_kept_than_may_be() -> None:
    buffers = Buffers(4 * MIB)
    held = [buffers.take([2 * MIB], torch.uint8) for _ in range(4)]
    places = {tensor.data_ptr() for tensor in held}
    held.clear()
    again = [buffers.take([2 * MIB], torch.uint8) for _ in range(2)]
    assert {tensor.data_ptr() for tensor in again} <= places
    assert len(buffers._free) == 0
    again.clear()
    assert len(buffers._free) == 2
    buffers.clear()
    assert len(buffers._free) == 0


def test_small_tensors_come_from_the_allocator() -> None:
    buffers = Buffers(MIB)
    tensor = buffers.take([3, 4], torch.bfloat16)
    assert tensor.shape == (3, 4)
    assert tensor.dtype == torch.bfloat16
