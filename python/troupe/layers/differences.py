"""Where two objects differ that should be copies of each other: values, tensors to the bit, attributes, and what functions
have closed over."""

import random
import types

import torch

from troupe.layers.state_places import attributes_of, is_object

_largest = 100_000  # elements of a container that are compared
_skipped = (type, types.ModuleType, types.BuiltinFunctionType, torch.Generator, random.Random)


class Differences:
    """names: {id of a parameter: name}: parameters of one name count as equal, whatever is in them."""

    def __init__(self, names):
        self._names, self._seen = names, {}

    def first(self, found, expected):
        """The first one as a text, "'state.step' is 1, expected 2"; None without one."""
        return self._at("", found, expected)

    def first_attribute(self, one, other, numbers=False):
        """The first attribute of a module, or of one in it, that differs, besides parameters and buffers. numbers: counts
        and the like alone, which no copy of another tensor can be."""
        others = dict(other.named_modules())
        for prefix, module in one.named_modules():
            hidden = ("_parameters", "_buffers", "_modules", "training")
            for key, value in attributes_of(module).items():
                if key in hidden or "hooks" in key or (numbers and type(value) not in (int, float)):
                    continue
                found = attributes_of(others[prefix]).get(key) if prefix in others else None
                if self._at(key, found, value) is not None:
                    return f"'{prefix + '.' if prefix else ''}{key}'"
        return None

    def _at(self, path, found, expected):
        if found is expected or isinstance(expected, _skipped):
            return None
        if isinstance(expected, torch.Tensor) or isinstance(found, torch.Tensor):
            return self._tensors(path, found, expected)
        if (id(found), id(expected)) in self._seen:
            return None
        self._seen[id(found), id(expected)] = found, expected  # alive
        if isinstance(expected, dict):
            return self._dicts(path, found, expected)
        if isinstance(expected, types.MethodType):
            return self._at(path, getattr(found, "__func__", found), expected.__func__)
        if isinstance(expected, types.FunctionType):
            return self._functions(path, found, expected)
        if hasattr(expected, "__array__"):
            return self._arrays(path, found, expected)
        if isinstance(expected, (list, tuple)) or type(expected).__name__ == "deque":
            return self._items(path, found, expected)
        if is_object(expected):
            if type(found).__name__ != type(expected).__name__:
                return _text(path, found, expected)
            return self._dicts(path, attributes_of(found), attributes_of(expected), ".")
        if isinstance(expected, (bool, int, float, complex, str, bytes, set, frozenset, type(None))):
            same = found == expected or (found != found and expected != expected)
            return None if same and type(found) is type(expected) else _text(path, found, expected)
        return None

    def _tensors(self, path, found, expected):
        names = self._names.get(id(found)), self._names.get(id(expected))
        if names[0] is not None and names[0] == names[1] and path:
            return None
        if not isinstance(found, torch.Tensor) or not isinstance(expected, torch.Tensor):
            return _text(path, found, expected)
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return _text(path, found, expected)
        return None if _equal_bits(found, expected) else f"'{path}' has other values"

    def _dicts(self, path, found, expected, separator=None):
        if not isinstance(found, dict):
            return _text(path, found, expected)
        if expected.get("params") == [] == found.get("params"):
            return None  # a group of nothing
        mine = {self._key(k): v for k, v in found.items()}
        theirs = {self._key(k): v for k, v in expected.items()}
        for key in [*theirs, *(k for k in mine if k not in theirs)]:
            where = f"{path}.{key}" if path else key
            if key not in mine or key not in theirs:
                value = theirs.get(key, mine.get(key))
                if isinstance(value, _skipped) or callable(value):
                    continue
                return f"'{where}' {'is not there' if key not in mine else 'is there, and was not before'}"
            if (difference := self._at(where, mine[key], theirs[key])) is not None:
                return difference
        return None

    def _items(self, path, found, expected):
        if not isinstance(found, type(expected)) or len(found) != len(expected):
            return _text(path, found, expected)
        for i, (a, b) in enumerate(zip(found, expected)):
            if i == _largest:
                break
            if (difference := self._at(f"{path}[{i}]", a, b)) is not None:
                return difference
        return None

    def _functions(self, path, found, expected):
        one, other = (getattr(x, "__closure__", None) or () for x in (found, expected))
        if len(one) != len(other) or getattr(found, "__code__", None) is not expected.__code__:
            return None
        for cell, a, b in zip(expected.__code__.co_freevars, one, other):
            try:
                difference = self._at(f"{path}.{cell}" if path else cell, a.cell_contents, b.cell_contents)
            except ValueError:  # an empty cell
                continue
            if difference is not None:
                return difference
        return None

    @staticmethod
    def _arrays(path, found, expected):
        same = getattr(found, "dtype", None) == expected.dtype and found.shape == expected.shape and (
            expected.dtype.hasobject or found.tobytes() == expected.tobytes())
        return None if same else f"'{path}' has other values"

    def _key(self, key):
        return self._names.get(id(key), "a tensor") if isinstance(key, torch.Tensor) else str(key)


def _equal_bits(a, b):
    if a.layout != torch.strided or b.layout != torch.strided:
        return a.layout == b.layout
    a, b = (x.detach().cpu().contiguous().resolve_conj().resolve_neg().reshape(-1) for x in (a, b))
    return a.numel() == 0 or torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def _text(path, found, expected):
    return f"'{path}' is {_shown(found)}, expected {_shown(expected)}"


def _shown(value):
    if isinstance(value, torch.Tensor):
        return f"{list(value.shape)} {str(value.dtype)[6:]}"
    text = repr(value)
    return text if len(text) <= 60 and isinstance(value, (bool, int, float, str, type(None))) else f"a {type(value).__name__}"
