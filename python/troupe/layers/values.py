"""Values of a program's state as JSON with tensors beside it: what may be in an optimizer, a schedule or a layer's extra
state, without pickle. Numbers, texts, booleans, None and lists of them are themselves; all else is {"$": kind, ...}."""

import base64
import collections
import sys

import torch


class Unsaved(Exception):
    """A value that no checkpoint can have: a function, a class, an object whose type is unknown here."""


_containers = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
_names = {kind: name for name, kind in _containers.items()}


def encoded(value, name, put):
    """JSON of `value`. put(name, tensor) keeps a tensor, for which `name` with its place is unique. Raises Unsaved."""
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if type(value) is float:
        return value if value - value == 0 else {"$": "float", "v": repr(value)}
    if isinstance(value, torch.Tensor):
        return _tensor(value, name, put)
    if type(value) is list:
        return [encoded(x, f"{name}.{i}", put) for i, x in enumerate(value)]
    if type(value) in _names or isinstance(value, tuple):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else list(value)
        found = {"$": _names.get(type(value), "tuple"), "v": encoded(items, name, put)}
        return dict(found, n=value.maxlen) if getattr(value, "maxlen", None) is not None else found
    if isinstance(value, dict):
        pairs = [[encoded(k, f"{name}.{i}", put), encoded(v, f"{name}.{i}.v", put)] for i, (k, v) in enumerate(value.items())]
        return {"$": "dict", "v": pairs}
    return _other(value, name, put)


def _tensor(t, name, put):
    if t.layout != torch.strided:
        raise Unsaved(f"a tensor of layout {t.layout}")
    put(name, t)
    found = {"$": "tensor", "v": name}
    # A number beside its parameter stays there; a number of the host's memory stays in that.
    return dict(found, beside=True) if t.dim() == 0 and t.device.type != "cpu" else found


def _other(value, name, put):
    if isinstance(value, bytes):
        return {"$": "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, complex):
        return {"$": "complex", "v": [encoded(value.real, name, put), encoded(value.imag, name, put)]}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"$": type(value).__name__, "v": str(value)}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)) and not value.dtype.hasobject:
        array = numpy.ascontiguousarray(value)
        return {"$": "numpy", "t": array.dtype.str, "s": list(value.shape), "one": isinstance(value, numpy.generic),
                "v": base64.b64encode(array.tobytes()).decode()}
    raise Unsaved(f"a {type(value).__name__}")


def decoded(found, tensor, device="cpu", old=None):
    """The value of which encoded() made `found`; tensor(name): what put() got. Containers and tensors of `old` are changed
    in place where they can be, for others may refer to them."""
    if isinstance(found, list):
        items = [decoded(x, tensor, device, _at(old, i)) for i, x in enumerate(found)]
        if type(old) is list and any(isinstance(x, (dict, list)) for x in found):
            old[:] = items
            return old
        return tuple(items) if type(old) is tuple else items
    if not isinstance(found, dict):
        return found
    kind, value = found["$"], found.get("v")
    if kind == "tensor":
        return _placed(tensor(value), found.get("beside", False), device, old)
    if kind == "dict":
        items = [(decoded(k, tensor), v) for k, v in value]
        known = old if isinstance(old, dict) else {}
        items = [(k, decoded(v, tensor, device, known.get(k))) for k, v in items]
        if not isinstance(old, dict):
            return dict(items)
        return refilled(old, items)
    if kind in _containers:
        items = [decoded(x, tensor, device, _at(old, i)) for i, x in enumerate(value)]
        if kind == "tuple" and hasattr(old, "_fields"):
            return type(old)(*items)
        return collections.deque(items, found.get("n")) if kind == "deque" else _containers[kind](items)
    return _scalar(kind, value, found)


def refilled(old, items):
    """The dict `old` with other items; a Counter's update() would add them."""
    old.clear()
    for key, value in items:
        old[key] = value
    return old


def _scalar(kind, value, found):
    if kind == "float":
        return float(value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "complex":
        return complex(*(decoded(x, None) for x in value))
    if kind == "dtype":
        return getattr(torch, value.rsplit(".", 1)[-1])
    if kind == "device":
        return torch.device(value)
    if kind == "numpy":
        import numpy

        array = numpy.frombuffer(base64.b64decode(value), dtype=found["t"]).reshape(found["s"]).copy()
        return array[()] if found["one"] else array
    raise ValueError(f"found a value of kind {kind!r}")


def _at(old, i):
    return old[i] if isinstance(old, (list, tuple, collections.deque)) and i < len(old) else None


def _placed(t, beside, device, old):
    if isinstance(old, torch.Tensor) and old.shape == t.shape and old.dtype == t.dtype and old.layout == torch.strided:
        if not any(stride == 0 and size > 1 for size, stride in zip(old.shape, old.stride())):
            with torch.no_grad():
                return old.copy_(t)
    return t.clone().to(device if beside or t.dim() > 0 else "cpu")
