"""The figures of a layer's forward: floating-point operations, and bytes that are kept for its backward."""

from collections import namedtuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from troupe.layers.boundary import mapped, versions


class Flops(TorchDispatchMode):
    """Counts those of matrix products, convolutions and attention, 2 for a multiplication and an addition; all else is
    small beside them. Below autograd, so whatever the layers call is counted by what it does.

    casts: a Kept, to which autocast's copies of parameters are free, too. written: places of memory that were changed in
    place, by whatever name."""

    def __init__(self, casts):
        super().__init__()
        self.count, self.written, self._casts = 0, set(), casts

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        name = getattr(getattr(function, "overloadpacket", function), "__name__", "")
        if name.endswith("_") and isinstance(arguments[0], torch.Tensor) and arguments[0].layout == torch.strided:
            self.written.add(_place(arguments[0]))
        if name == "_to_copy":
            self._casts.cast(arguments[0], result)
        elif name in _counts:
            self.count += _counts[name](arguments, result)
        return result


def _product(a, b):
    return 2 * a.numel() * b.shape[-1]


def _convolution(arguments, result):
    # A transposed one multiplies each element of its input with the weights of a channel, another each of its output.
    elements = arguments[0] if arguments[6] else result
    return 2 * elements.numel() * arguments[1][0].numel()


def _attention(arguments, _):
    q, k, v = arguments[:3]
    return 2 * q.numel() * k.shape[-2] + 2 * q.numel() // q.shape[-1] * k.shape[-2] * v.shape[-1]


_counts = {
    "mm": lambda a, _: _product(a[0], a[1]), "bmm": lambda a, _: _product(a[0], a[1]),
    "addmm": lambda a, _: _product(a[1], a[2]), "baddbmm": lambda a, _: _product(a[1], a[2]),
    "mv": lambda a, _: 2 * a[0].numel(), "dot": lambda a, _: 2 * a[0].numel(),
    "convolution": _convolution,
    **{"_scaled_dot_product_" + kind: _attention for kind in (
        "flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention", "fused_attention_overrideable")},
    "_scaled_dot_product_attention_math": lambda a, _: 0,  # made of products
}


class Kept:
    """Bytes of the tensors that a forward saves for its backward. Memory that several of them share counts once; that of
    the tensors `free`, and `before`, which the layer before keeps, not at all. `t in` it: is t's kept, or was it before?"""

    def __init__(self, free=(), before=()):
        self._free, self.bytes, self.cast_bytes = set(map(_place, free)), 0, 0
        self._found = {_place(t): t for t in before}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda t: t)

    def cast(self, t, result):
        """A copy of a free tensor is kept once a micro-batch, however many samples that has."""
        if _place(t) in self._free:
            self._free.add(_place(result))
            self.cast_bytes += _storage(result).nbytes()
            self._found[None, len(self._found)] = result  # alive

    def __contains__(self, t):
        return _place(t) in self._found

    def __enter__(self):
        self._hooks.__enter__()
        return self

    def __exit__(self, *error):
        self._hooks.__exit__(*error)

    def _pack(self, t):
        if t.layout == torch.strided and _place(t) not in self._free and t not in self:
            self._found[_place(t)] = t  # alive, so that nothing else gets its place
            self.bytes += _storage(t).nbytes()
        return t


Measured = namedtuple("Measured", "result flops kept_bytes cast_bytes in_place kept changed")


def measured(layer, value, kept_before, autocast):
    """A forward of a layer with a copy of `value`. kept_before: whether the layer before it keeps each tensor of `value`,
    which then does not count again; kept: a function that says so for the result's. changed: names of parameters that the
    forward writes to."""
    copies, flags = [], iter(kept_before)
    entered = mapped(lambda t: copies.append(t.clone()) or copies[-1], value)
    kept = Kept([*layer.module.parameters(), *layer.module.buffers()], [t for t in copies if next(flags, False)])
    before, flops = versions(entered), Flops(kept)
    with kept, flops, autocast():
        result = layer(entered)
    changed = [name for name, p in layer.module.named_parameters() if p.numel() and _place(p) in flops.written]
    return Measured(result, flops.count, kept.bytes, kept.cast_bytes, versions(entered) != before, kept.__contains__, changed)


def _storage(t):
    return t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()


def _place(t):
    return _storage(t).data_ptr()
