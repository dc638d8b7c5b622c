"""The program's optimizer and schedule of a stage's parameters, and their state by the parameters' names."""

import inspect
import json

import torch

from troupe.errors import LayerError, ProgramError


class Optimizer:
    """Made from (name, parameter) pairs. Its state must be tensors and numbers of each parameter: then it can be saved for
    one cut and read for another."""

    def __init__(self, program, named):
        self._file, self._names = program.file, {id(p): name for name, p in named}
        self.optimizer = program.optimizer(named)
        who = type(self.optimizer).__name__
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise ProgramError(f"{self._file}: optimizer() returned {who}, expected a torch.optim.Optimizer")
        if _needs(self.optimizer.step, "closure"):
            raise ProgramError(f"{self._file}: {who}.step() needs a closure, expected an optimizer that computes nothing "
                               "again")
        for group in self.optimizer.param_groups:
            if any(id(p) not in self._names for p in group["params"]):
                raise ProgramError(f"{self._file}: {who} has a parameter that optimizer() was not given")
        self.schedule = program.schedule(self.optimizer)
        if self.schedule is not None and _needs(self.schedule.step, "metrics"):
            raise ProgramError(f"{self._file}: {type(self.schedule).__name__}.step() needs a metric, expected a schedule of "
                               "iterations alone")

    def step(self):
        try:
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
        except Exception as error:
            raise LayerError(None, self._who() + ".step", error) from error

    def state(self):
        """{parameter: {key: tensor or number}}; keys without a value are left out."""
        found = {}
        for p, values in self.optimizer.state.items():
            name = self._names.get(id(p))
            if name is None:
                raise ProgramError(f"{self._file}: {self._who()} has a state of its own ({p!r:.60}), expected one of each "
                                   "parameter")
            found[name] = {key: self._plain(name, key, value) for key, value in values.items() if value is not None}
        return found

    def options(self):
        """{parameter: {option: value}}: its group's, as JSON has them."""
        return {self._names[id(p)]: _round_trips(_options(group)) for group in self.optimizer.param_groups
                for p in group["params"]}

    def schedule_state(self):
        """The schedule's numbers and texts; functions in it are made again by the file."""
        return None if self.schedule is None else _round_trips(self.schedule.state_dict())

    def restore(self, state, options, schedule):
        """Takes the results of state(), options() and schedule_state(), which may have other parameters, too."""
        if self.schedule is not None and schedule is not None:
            try:
                self.schedule.load_state_dict(schedule)
            except Exception as error:
                raise ProgramError(f"{self._file}: {type(self.schedule).__name__} does not take the checkpoint's state: "
                                   f"{type(error).__name__}: {error}") from error
        for group in self.optimizer.param_groups:
            names = [self._names[id(p)] for p in group["params"]]
            saved = [name for name in names if name in options]
            for other in saved[1:]:
                if options[other] != options[saved[0]]:
                    raise ProgramError(f"{self._file}: '{saved[0]}' and '{other}' are in one group of {self._who()}, and had "
                                       "different options in the checkpoint")
            for key, value in options[saved[0]].items() if saved else ():
                group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
            for p, name in zip(group["params"], names):
                self.optimizer.state[p] = {k: v.to(p.device) if _lies_with(p, k, v) else v
                                           for k, v in state.get(name, {}).items()}

    def _who(self):
        return type(self.optimizer).__name__

    def _plain(self, name, key, value):
        if isinstance(value, (torch.Tensor, bool, int, float)):
            return value
        raise ProgramError(f"{self._file}: {self._who()} keeps a {type(value).__name__} as '{key}' of '{name}', expected "
                           "tensors and numbers")


def first_state(program, named):
    """The state that an optimizer of such parameters has after a step, found with copies: none may be stepped yet."""
    copies = [(name, torch.nn.Parameter(torch.zeros_like(p))) for name, p in named]
    if not copies:
        return {}
    for _, p in copies:
        p.grad = torch.zeros_like(p)
    optimizer = Optimizer(program, copies)
    optimizer.step()
    return optimizer.state()


def bytes_of(state):
    return sum(v.numel() * v.element_size() for values in state.values() for v in values.values()
               if isinstance(v, torch.Tensor))


def _needs(function, name):
    found = inspect.signature(function).parameters.get(name)
    return found is not None and found.default is inspect.Parameter.empty


def _options(group):
    return {key: value for key, value in group.items() if key != "params"}


# A count of steps stays in the host's memory, unless the optimizer keeps it beside its parameter.
def _lies_with(parameter, key, value):
    return isinstance(value, torch.Tensor) and (value.dim() > 0 or parameter.device == value.device)


_dropped = object()


def _round_trips(value):
    """`value` without what JSON would not give back: functions, tuples, keys that are no texts. Options that are tuples
    become lists, which restore() turns back."""
    found = _kept(value)
    return {} if found is _dropped else found


def _kept(value):
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        found = {k: _kept(v) for k, v in value.items()}
        return {k: v for k, v in found.items() if v is not _dropped}
    if isinstance(value, (list, tuple)):
        found = [_kept(v) for v in value]
        return _dropped if any(v is _dropped for v in found) else found
    try:
        return value if json.loads(json.dumps(value)) == value else _dropped
    except (TypeError, ValueError):
        return _dropped
