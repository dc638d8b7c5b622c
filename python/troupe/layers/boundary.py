"""The boundary between two layers, the same whether a stage ends there or not: which values may pass, in which memory
layout, and how the graphs of the two sides are kept apart."""

import torch

from troupe.errors import ProgramError

dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool)


def dense(t):
    """`t`, or a contiguous copy where its elements, in some order of dimensions, do not fill a piece of memory. Kernels
    may choose by strides, and a tensor from another stage is always dense."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(t.shape, t.stride()) if size > 1):
        if stride != expected:
            return t.contiguous()
        expected *= size
    return t


def tensors_of(value, who):
    """The tensors that a layer returned, as a tuple. Raises ProgramError for other values, with the layer's name."""
    found = value if type(value) is tuple else (value,)
    if type(value) is tuple and len(value) < 2:
        raise ProgramError(f"{who} returned a tuple of {len(value)}, expected a tensor or a tuple of two or more")
    for t in found:
        if not isinstance(t, torch.Tensor):
            what = "None" if t is None else f"a {type(t).__name__}"
            raise ProgramError(f"{who} returned {what}{' in a tuple' if found is value else ''}, expected a tensor or a "
                               "tuple of tensors")
        if t.layout != torch.strided:
            raise ProgramError(f"{who} returned a tensor of layout {t.layout}, expected a dense one")
        if t.dtype not in dtypes:
            raise ProgramError(f"{who} returned a tensor of {t.dtype}, expected one of "
                               f"{', '.join(str(d)[6:] for d in dtypes)}")
    return found


def value_of(tensors):
    """The next layer's argument: these, as tensors_of() found them."""
    return tensors[0] if len(tensors) == 1 else tensors


def mapped(function, value):
    """`function` of each tensor in nested tuples, lists and dicts; other values stay."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple):
        values = [mapped(function, x) for x in value]
        return type(value)(*values) if hasattr(value, "_fields") else tuple(values)
    if isinstance(value, list):
        return [mapped(function, x) for x in value]
    if isinstance(value, dict):
        return {k: mapped(function, x) for k, x in value.items()}
    return value


def versions(value):
    """How often each tensor of `value` was changed in place."""
    found = []
    mapped(lambda t: found.append(t._version), value)
    return found


class Entry(torch.autograd.Function):
    """The identity. Its backward leaves the gradients in `box` as they are: the gradient of a leaf would be copied, and in
    the leaf's own layout."""

    @staticmethod
    def forward(ctx, box, *inputs):
        ctx.box = box
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for x in inputs)

    @staticmethod
    def backward(ctx, *gradients):
        ctx.box[:] = gradients
        return (None,) * (1 + len(gradients))
