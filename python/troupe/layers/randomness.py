"""The generators of random numbers that a program draws from: torch's, Python's and numpy's, and its own objects of these
libraries. All are seeded before each call of the program's code, so that what it draws is a function of that call."""

import os
import random
import re
import sys
import sysconfig
import types

import torch

from troupe.layers.state_places import attributes_of, is_object

_before = set(sys.modules)  # what has been loaded since is the program's, or the program's libraries'
_most = 100  # elements of a container that are looked at
_draws = re.compile(r"random|rand|bernoulli|multinomial|poisson|normal|uniform|shuffle|choice|dropout|manual_seed|seed$")


class Generators:
    """own: the program's objects. Python's and numpy's generators are seeded if a file of the program knows them."""

    def __init__(self, device="cpu", own=()):
        self._cuda = torch.device(device).type == "cuda"
        self._own = list(own)
        self._python, self._numpy = _known("random"), "numpy" in sys.modules and _known("numpy")

    def with_own(self, own):
        """These, and `own`."""
        known = {id(x) for x in self._own}
        more = [x for x in own if id(x) not in known]
        if not more:
            return self
        made = object.__new__(Generators)
        made.__dict__.update(self.__dict__, _own=[*self._own, *more])
        return made

    @property
    def has_own(self):
        return bool(self._own)

    def seed(self, number):
        torch.default_generator.manual_seed(number)
        if self._cuda:
            torch.cuda.manual_seed(number)
        if self._python:
            random.seed(number)
        if self._numpy:
            sys.modules["numpy"].random.seed(number & 0xFFFFFFFF)
        for i, one in enumerate(self._own):
            _seed_own(one, (number + i + 1) & 0x7FFFFFFFFFFFFFFF)


class Watch:
    """Whether anything has drawn from the generators since it was made. own: the program's objects."""

    def __init__(self, own=()):
        self._own, self._before = list(own), None
        self._before = self._states()

    def drawn(self):
        """The names of those that have."""
        now = self._states()
        return [name for name, state in self._before.items() if not _equal(state, now[name])]

    def _states(self):
        found = {"torch's": torch.get_rng_state(), "Python's": random.getstate()}
        if torch.cuda.is_initialized():
            found["torch's of the GPU"] = torch.cuda.get_rng_state()
        if "numpy" in sys.modules:
            found["numpy's"] = sys.modules["numpy"].random.get_state()
        found.update((f"its own ({type(x).__name__} {i})", _state_of(x)) for i, x in enumerate(self._own))
        return found


def own_generators(*roots):
    """The generators that these objects hold, in the order in which they are found."""
    found, seen, todo = [], {}, list(reversed(roots))
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if _is_generator(value):
            found.append(value)
        elif isinstance(value, dict):
            todo += list(value.values())[:_most][::-1]
        elif isinstance(value, (list, tuple, set)):
            todo += list(value)[:_most][::-1]
        elif isinstance(value, torch.nn.Module) or is_object(value):
            todo += list(attributes_of(value).values())[::-1]
    return found


def own_of_file(module):
    """Those of a file's global names, and of their values' attributes."""
    hidden = (type, types.FunctionType, types.ModuleType, torch.Tensor)
    return own_generators(*(v for k, v in vars(module).items() if not k.startswith("__") and not isinstance(v, hidden)))


def mentions_draws(function, depth=4):
    """Whether the function, or one of its file that it calls, names something that draws."""
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)
    known = getattr(function, "__globals__", {})
    todo, names = [code] if code else [], set()
    while todo:
        one = todo.pop()
        names.update(one.co_names)
        todo += [c for c in one.co_consts if isinstance(c, types.CodeType)]
    if any(map(_draws.match, names)):
        return True
    return depth > 0 and any(isinstance(known.get(x), types.FunctionType) and mentions_draws(known[x], depth - 1) for x in names)


def _is_generator(value):
    if isinstance(value, (torch.Generator, random.Random)):
        return value is not torch.default_generator
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState))


def _seed_own(one, number):
    if isinstance(one, torch.Generator):
        one.manual_seed(number)
    elif hasattr(one, "bit_generator"):
        one.bit_generator.state = type(one.bit_generator)(number).state
    else:
        one.seed(number if isinstance(one, random.Random) else number & 0xFFFFFFFF)


def _state_of(one):
    if isinstance(one, torch.Generator):
        return one.get_state()
    if isinstance(one, random.Random):
        return one.getstate()
    return repr(one.bit_generator.state if hasattr(one, "bit_generator") else one.get_state())


def _equal(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool((a == b).all()) if hasattr(a, "__array__") else a == b


def _known(name):
    """Whether a module of the program, or a library that it has loaded, has that module, or names it in its text."""
    wanted = sys.modules.get(name)
    for key in set(sys.modules) - _before:
        module = sys.modules.get(key)
        path = getattr(module, "__file__", None)
        if not path or path.startswith(_hidden()) or (path.startswith(_library()) and "-packages" not in path):
            continue
        if any(value is wanted for value in list(vars(module).values())):
            return True
        if "-packages" not in path and name in _text(path):
            return True
    return False


def _text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _hidden():
    """Folders of what draws from Python's or numpy's generators for nobody."""
    numpy = getattr(sys.modules.get("numpy"), "__file__", None)
    found = [os.path.dirname(os.path.abspath(x)) + os.sep for x in (torch.__file__, __file__, numpy) if x]
    return tuple(found)


def _library():
    return sysconfig.get_paths()["stdlib"] + os.sep
