"""Where an optimizer and its schedule keep their state: in their own attributes, and in those of the objects that they
hold, as an optimizer that wraps another one."""

import collections
import enum
import random
import sys
import types

import torch

from troupe.layers.values import Unsaved, encoded

Place = collections.namedtuple("Place", "kind path owner key value")

_functions = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, types.GeneratorType)
_library = getattr(sys, "stdlib_module_names", frozenset(sys.builtin_module_names)) | {"numpy"}


class Places:
    """Walks the objects. classes and objects: {path: ..} of those that it has met; the optimizer's path is "".

    Kinds of places: "groups" (a list of groups), "state" (a dict by parameters), "aligned" (a list with a tensor of each
    parameter, in their order and of their shapes), "grouped" (a schedule's list with a number of each group), "value"
    (anything else). What two objects share is met once."""

    def __init__(self, optimizer, schedule, names):
        self._names, self._seen, self.classes, self.objects = names, {}, {}, {}
        self._groups = len(optimizer.param_groups)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.found = list(self._object(optimizer, ""))
        if schedule is not None:
            self.found += self._object(schedule, "schedule")

    def is_parameter(self, value):
        return isinstance(value, torch.Tensor) and id(value) in self._names

    def _object(self, found, path):
        if self._met(found):
            return
        self.classes[path], self.objects[path] = type(found).__name__, found
        attributes = attributes_of(found)
        if isinstance(found, torch.optim.Optimizer):
            attributes.pop("defaults", None)
            groups = attributes.pop("param_groups", None)
            if groups is not None and not self._met(groups):
                yield Place("groups", path, found, "param_groups", groups)
        for key, value in attributes.items():
            yield from self._at(found, key, value, f"{path}.{key}" if path else key)

    def _at(self, owner, key, value, path):
        # A list of numbers may be another one tomorrow: it is a value, and no object that two have.
        if isinstance(value, (dict, list, collections.deque)) and not is_numbers(value) and self._met(value):
            return
        if isinstance(value, dict) and any(map(self.is_parameter, value)):
            yield Place("state", path, owner, key, value)
        elif self._is_aligned(value):
            yield Place("aligned", path, owner, key, value)
        elif path.startswith("schedule.") and type(value) is list and len(value) == self._groups and all(
                isinstance(x, (int, float)) for x in value):
            yield Place("grouped", path, owner, key, value)
        elif is_object(value):
            yield from self._object(value, path)
        elif isinstance(value, (dict, list, tuple)) and not self._is_encodable(value):
            for k, x in list(value.items() if isinstance(value, dict) else enumerate(value)):
                yield from self._at(value, k, x, f"{path}[{k}]")
        else:
            yield Place("value", path, owner, key, value)

    def _met(self, found):
        known = id(found) in self._seen
        self._seen[id(found)] = found
        return known

    def _is_aligned(self, value):
        return type(value) is list and len(value) == len(self._parameters) and bool(value) and all(
            isinstance(x, torch.Tensor) and not self.is_parameter(x) and x.shape == p.shape
            for x, p in zip(value, self._parameters))

    def _is_encodable(self, value):
        try:
            encoded(value, "", self.refuse_parameter)
        except Unsaved:
            return False
        return True

    def refuse_parameter(self, _, tensor):
        if self.is_parameter(tensor):
            raise Unsaved("a parameter")


def is_numbers(value):
    return type(value) is list and all(x is None or isinstance(x, (bool, int, float, str)) for x in value)


def attributes_of(found):
    slots = [s for c in type(found).__mro__ for s in ([c.__slots__] if isinstance(getattr(c, "__slots__", ()), str)
                                                      else getattr(c, "__slots__", ()))]
    here = {s: getattr(found, s) for s in slots if s not in ("__dict__", "__weakref__") and hasattr(found, s)}
    return {**here, **getattr(found, "__dict__", {})}


def is_object(value):
    """Whether its attributes may be state: not a value, a function, a class, or an object of Python's library."""
    if value is None or isinstance(value, (*_functions, torch.Tensor, torch.Generator, random.Random, enum.Enum, dict, list,
                                           tuple, set, frozenset, collections.deque)):
        return False
    module = type(value).__module__.partition(".")[0]
    if module in _library and not isinstance(value, types.SimpleNamespace):
        return False
    return hasattr(value, "__dict__") or bool(attributes_of(value))
