"""Tensors of PyTorch in a worker's shared memory (protocol.py has the layout)."""

import ctypes

import torch

from troupe.worker import protocol

_types = tuple(getattr(torch, name) for name, _ in protocol.TYPES)
_numbers = {t: i for i, t in enumerate(_types)}


def _view(memory, kind, offset, sizes, strides):
    count = protocol.numbers(sizes)
    if count == 0:
        return torch.empty(sizes, dtype=_types[kind])
    flat = torch.frombuffer(memory, dtype=_types[kind], count=count, offset=offset)
    return torch.as_strided(flat, sizes, strides)


def read(memory, place, copy=False):
    """The tensors in a slot, as views of it unless `copy`; requires_grad says whether a gradient is wanted."""
    tensors = []
    for t in protocol.read_description(memory, place):
        tensor = _view(memory, t.type, t.offset, t.sizes, t.strides)
        if copy:
            tensor = tensor.clone()
        tensors.append(tensor.requires_grad_() if t.wants_gradient else tensor)
    return tuple(tensors)


class Outgoing:
    """Tensors on their way into a slot. Whether one wants a gradient is its requires_grad."""

    def __init__(self, tensors):
        # A tensor whose numbers overlap, or have gaps, has no such layout.
        self._tensors = [t.resolve_neg() if protocol.is_dense(t.shape, t.stride()) else t.contiguous() for t in tensors]
        self._described = []
        for t in self._tensors:
            if t.dtype not in _numbers:
                raise TypeError(f"found a tensor of {t.dtype} between layers, expected one of "
                                + ", ".join(name for name, _ in protocol.TYPES))
            self._described.append((_numbers[t.dtype], t.requires_grad, tuple(t.shape), tuple(t.stride())))
        self.bytes, self._offsets = protocol.place_tensors(self._described)

    def write(self, memory, offset):
        protocol.write_description(memory, offset, self._described, self.bytes)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + offset
        for tensor, (kind, _, sizes, strides), at in zip(self._tensors, self._described, self._offsets):
            if tensor.device.type == "cpu":
                # Dense numbers, in the order of their strides here and there: PyTorch's copy is slower.
                ctypes.memmove(begin + at, tensor.data_ptr(), tensor.numel() * tensor.element_size())
            elif tensor.numel() > 0:
                _view(memory, kind, offset + at, sizes, strides).copy_(tensor.detach())


def flat(memory, offset, count):
    """`count` 32-bit numbers of a region."""
    if count == 0:
        return torch.empty(0)
    return torch.frombuffer(memory, dtype=torch.float32, count=count, offset=offset)
