"""The program's optimizer and schedule of a stage's parameters, and their state by the parameters' names."""

import inspect

import torch

from troupe.errors import LayerError, ProgramError
from troupe.layers.state_places import Places
from troupe.layers.values import Unsaved, decoded, encoded, refilled


class SavedState:
    """What a checkpoint has of an optimizer and its schedule, as JSON with tensors by name.

    values, options: {parameter: {key: value}}; given: those options that differ from what the program's file has given;
    common: values of no parameter, by place; by: kinds of places whose values are by parameter; constant: places of common
    whose values have not changed since they were made; classes: of the objects, by place. `tensor` gives one by its name."""

    def __init__(self, values=None, options=None, given=None, about=None, tensor=None):
        about = about or {}
        self.values, self.options, self.given = values or {}, options or {}, given or {}
        self.common, self.by = dict(about.get("common", {})), dict(about.get("by", {}))
        self.schedule = about.get("schedule")  # the state_dict() of checkpoints that have no values by place
        self.constant, self.classes = set(about.get("constant", ())), dict(about.get("classes", {}))
        self.tensor = tensor

    def about(self):
        """The part that is of no parameter."""
        return {"classes": self.classes, "by": self.by, "common": self.common, "constant": sorted(self.constant)}


class Optimizer:
    """Made from (name, parameter) pairs, of which the file's optimizer() may take a part; `optimizer` is None if it takes
    none. Its state must be tensors and values of each parameter, or of all: then it can be saved for one cut and read for
    another."""

    def __init__(self, program, named):
        self._keeps_options = program.has_rate
        self._file, self._names, self.schedule = program.file, {id(p): name for name, p in named}, None
        self.optimizer = program.optimizer(named)
        if self.optimizer is None:
            self.left_out = [name for name, _ in named]
            return
        self._check(self.optimizer)
        taken = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        self.left_out = [name for name, p in named if id(p) not in taken]
        self._given = self._options(lambda name, t: None)
        self.schedule = program.schedule(self.optimizer)
        if self.schedule is not None:
            self._check_schedule(self.schedule)
        self._first = self._values(self._places(), _no_tensor)[0]

    def _check(self, optimizer):
        who = type(optimizer).__name__
        needed = _needed(optimizer.step)
        if needed:
            what = "a closure" if "closure" in needed else repr(needed[0])
            raise ProgramError(f"{self._file}: {who}.step() needs {what}, expected an optimizer that computes nothing again")
        for group in optimizer.param_groups:
            if any(id(p) not in self._names for p in group["params"]):
                raise ProgramError(f"{self._file}: {who} has a parameter that optimizer() was not given")

    def _check_schedule(self, schedule):
        who = type(schedule).__name__
        if not callable(getattr(schedule, "step", None)):
            raise ProgramError(f"{self._file}: schedule() returned {who}, expected a schedule with step()")
        needed = _needed(schedule.step)
        if "metrics" in needed:
            raise ProgramError(f"{self._file}: {who}.step() needs a metric, expected a schedule of iterations alone")
        if needed:
            raise ProgramError(f"{self._file}: {who}.step() needs {', '.join(repr(x) for x in needed)}, expected a schedule "
                               "whose step() counts the iterations by itself")

    def set_rate(self, rate):
        """Of the next update. None: it stays."""
        for group in self.optimizer.param_groups if rate is not None and self.optimizer is not None else ():
            group["lr"] = rate

    def step(self, before=None, before_schedule=None):
        """before..: functions that are called before the optimizer's step and before the schedule's."""
        if self.optimizer is None:
            return
        self._called(self.optimizer, before)
        if self.schedule is not None:
            self._called(self.schedule, before_schedule)

    @staticmethod
    def _called(stepped, before):
        if before is not None:
            before()
        try:
            stepped.step()
        except Exception as error:
            raise LayerError(None, type(stepped).__name__ + ".step", error) from error

    def state(self):
        """{parameter: {key: value}} of the optimizer and of those that it wraps."""
        found = {}
        for place in self._places().found if self.optimizer is not None else ():
            for p, key, value in self._by_parameter(place) if place.kind != "grouped" else ():
                found.setdefault(self._names[id(p)], {})[key] = value
        return found

    def saved_names(self):
        return [self._names[id(p)] for p in self.parameters()]

    def parameters(self):
        """Those that it takes, in its order."""
        return [p for group in self.optimizer.param_groups for p in group["params"]] if self.optimizer is not None else []

    def bytes(self):
        """Of the tensors of its state."""
        sizes = {}
        if self.optimizer is not None:
            self.saved(lambda name, t: sizes.setdefault(name, t.numel() * t.element_size()), options=False)
        return sum(sizes.values())

    def saved(self, put, options=True):
        """Its SavedState. put(parameter or None, key, tensor) for each tensor."""
        found = SavedState()
        if self.optimizer is None:
            return found
        places = self._places()
        found.common, found.by = self._values(places, put)
        found.constant = {path for path, value in found.common.items() if self._first.get(path, found) == value}
        found.classes = dict(places.classes)
        for place in places.found:
            for p, key, value in self._by_parameter(place):
                name = self._names[id(p)]
                kept = self._encoded(value, f"optim/{key}/{name}", put, f"'{key}' of '{name}'")
                found.values.setdefault(name, {})[key] = kept
        if options:
            found.options = self._options(put)
            found.given = {name: given for name, options in found.options.items()
                           if (given := {k: v for k, v in self._given[name].items() if options.get(k) != v})}
        return found

    def restore(self, saved):
        """Takes a SavedState, which may have other parameters, too. A text for each option that is not what the program's
        file gives now, and that was another when it was saved."""
        if self.optimizer is None:
            return []
        changed = self._changed_options(saved)
        if self.schedule is not None and saved.schedule is not None:
            self.schedule.load_state_dict(saved.schedule)
        places = self._places()
        for path, name in saved.classes.items():
            if places.classes.get(path, name) != name:
                raise ProgramError(f"{self._file}: found the state of {name}, expected {places.classes[path]}'s")
        device = self.parameters()[0].device if self.parameters() else "cpu"
        for place in places.found:
            if place.kind == "groups":
                self._restore_groups(place, saved, device)
            elif place.path in saved.by or place.path in saved.common:
                _set(place, self._restored(place, saved, device))
        known = {place.path for place in places.found}
        for path in (*saved.by, *saved.common):  # what the objects have only once they have stepped
            owner, _, key = path.rpartition(".")
            if path not in known and owner in places.objects:
                place = _new_place(path, places.objects[owner], key)
                _set(place, self._restored(place, saved, device))
        return changed

    def _by_parameter(self, place):
        return _by_parameter(place, self.parameters(), self.optimizer.param_groups)

    def _places(self):
        return Places(self.optimizer, self.schedule, self._names)

    # (values of no parameter, kinds of the places whose values are by parameter)
    def _values(self, places, put):
        def kept(name, t):
            places.refuse_parameter(name, t)
            put(name, t)

        common, by = {}, {}
        for place in places.found:
            value = place.value
            if place.kind in ("state", "aligned", "grouped"):
                by[place.path] = place.kind
                if place.kind == "aligned":
                    continue
            if place.kind == "state":
                value = {k: v for k, v in value.items() if not places.is_parameter(k)}
                if not value:
                    continue
            if place.kind != "groups":
                try:
                    common[place.path] = encoded(value, f"optim/common/{place.path}", kept)
                except Unsaved:
                    pass  # the file makes it again; `describe` compares what comes of that
        return common, by

    def _options(self, put):
        found = {self._names[id(p)]: {} for p in self.parameters()}
        for place in Places(self.optimizer, None, self._names).found:
            for group in place.value if place.kind == "groups" else ():
                for p in group["params"]:
                    name = self._names[id(p)]
                    for key, value in group.items():
                        if key != "params":
                            self._add_option(found[name], _prefix(place) + key, value, name, put)
        return found

    @staticmethod
    def _add_option(options, key, value, name, put):
        # A tuple of numbers is a list in JSON, and again a tuple where the file has one.
        value = list(value) if type(value) is tuple and all(isinstance(x, (bool, int, float)) for x in value) else value
        try:
            options[key] = encoded(value, f"optim/group.{key}/{name}", put)
        except Unsaved:
            pass

    def _encoded(self, value, name, put, what):
        try:
            return encoded(value, name, put)
        except Unsaved as error:
            raise ProgramError(f"{self._file}: {type(self.optimizer).__name__} keeps {error} as {what}, expected tensors and "
                               "plain values") from None

    def _restored(self, place, saved, device):
        kind = saved.by.get(place.path)
        rest = saved.common.get(place.path)
        if kind is None or (kind == "grouped" and place.kind != "grouped"):
            return place.value if rest is None else decoded(rest, saved.tensor, device, place.value)
        prefix = _prefix(place)
        if kind == "grouped":
            # A group without parameters here has what the stage had that has written it, or what the file gives.
            known = rest if isinstance(rest, list) and len(rest) == len(place.value) else place.value
            firsts = [next(iter(group["params"]), None) for group in self.optimizer.param_groups]
            return [old if p is None or (new := self._of(p, prefix, saved)) is None else new
                    for p, old in zip(firsts, known)]
        if kind == "aligned":
            return [self._of(p, prefix, saved) for p in self.parameters()]
        found = {p: value for p in self.parameters() if (value := self._of(p, prefix, saved)) is not None}
        found.update({} if rest is None else decoded(rest, saved.tensor, device))
        return refilled(place.value, found.items()) if isinstance(place.value, dict) else found

    # A parameter's value at a place: {key: value}, or the value itself, whose key is empty.
    def _of(self, p, prefix, saved):
        found = {key[len(prefix):]: decoded(value, saved.tensor, p.device)
                 for key, value in saved.values.get(self._names[id(p)], {}).items()
                 if key.startswith(prefix) and ":" not in key[len(prefix):]}
        return found[""] if "" in found else found or None

    def _restore_groups(self, place, saved, device):
        prefix = _prefix(place)
        for group in place.value:
            names = [self._names[id(p)] for p in group["params"] if self._names[id(p)] in saved.options]
            mine = {name: {k[len(prefix):]: v for k, v in saved.options[name].items()
                           if k.startswith(prefix) and ":" not in k[len(prefix):]} for name in names}
            for other in names[1:]:
                self._compare_options(names[0], mine[names[0]], other, mine[other], saved)
            for key, value in mine[names[0]].items() if names else ():
                group[key] = decoded(value, saved.tensor, device, group.get(key))
            if names and self._keeps_options and not prefix:
                self._restore_given(group, names[0], saved, device)

    # What the file gives otherwise than it did for the checkpoint.
    def _restore_given(self, group, name, saved, device):
        then = {**saved.options[name], **saved.given.get(name, {})}
        for key, now in self._given[name].items():
            if key in group and then.get(key) != now:
                group[key] = decoded(now, saved.tensor, device, group[key])

    def _compare_options(self, one, options, other, others, saved):
        if options.keys() == others.keys() and all(_same(v, others[k], saved.tensor) for k, v in options.items()):
            return
        raise ProgramError(f"{self._file}: '{one}' and '{other}' are in one group of {type(self.optimizer).__name__}, and had "
                           "different options in the checkpoint")

    def _changed_options(self, saved):
        found = {}
        for name, now in self._given.items() if not self._keeps_options else ():
            then = {**saved.options.get(name, {}), **saved.given.get(name, {})}
            for key, value in then.items():
                if key in now and _is_number(value) and _is_number(now[key]) and value != now[key]:
                    found.setdefault(f"{key}: the file gives {now[key]}, and had given {value} for the checkpoint, whose "
                                     f"{saved.options[name].get(key)} goes on", name)
        new = [f"'{name}' was not trained when the checkpoint was written: its optimizer's state begins anew"
               for name in self._given if name not in saved.options]
        return [*(f"{text} ('{name}')" for text, name in found.items()), *new]


def first_state(program, named):
    """An Optimizer after a step, with copies of the parameters: none may be stepped yet. None without parameters."""
    copies = [(name, torch.nn.Parameter(torch.zeros_like(p))) for name, p in named]
    if not copies:
        return None
    for _, p in copies:
        p.grad = torch.zeros_like(p)
    optimizer = Optimizer(program, copies)
    optimizer.step()
    return optimizer


# (parameter, key, value) of a place whose values are by parameter.
def _by_parameter(place, parameters, groups):
    prefix = _prefix(place)
    if place.kind == "aligned":
        yield from ((p, prefix, value) for p, value in zip(parameters, place.value))
    elif place.kind == "state":
        mine = {id(p) for p in parameters}
        for p, value in place.value.items():
            if id(p) not in mine:
                continue
            if isinstance(value, dict) and value and all(isinstance(k, str) and ":" not in k for k in value):
                yield from ((p, prefix + k, v) for k, v in value.items())
            else:
                yield p, prefix, value
    elif place.kind == "grouped":
        group_of = {id(p): i for i, group in enumerate(groups) for p in group["params"]}
        yield from ((p, prefix, place.value[group_of[id(p)]]) for p in parameters)


def _prefix(place):
    if place.kind == "groups":
        return place.path and place.path + ":"
    return "" if place.path == "state" else place.path + ":"


def _new_place(path, owner, key):
    from troupe.layers.state_places import Place

    return Place("value", path, owner, key, None)


def _set(place, value):
    if isinstance(place.owner, (dict, list)):
        place.owner[place.key] = value
    elif not isinstance(place.owner, tuple) and getattr(place.owner, place.key, None) is not value:
        setattr(place.owner, place.key, value)


def _same(one, other, tensor):
    if isinstance(one, dict) and isinstance(other, dict) and one.get("$") == other.get("$") == "tensor":
        return torch.equal(tensor(one["v"]), tensor(other["v"]))
    return one == other


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _no_tensor(name, t):
    raise Unsaved("a tensor")  # it may change without another name


def _needed(function):
    """The names of arguments without which it cannot be called."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [x.name for x in known if x.kind in plain and x.default is x.empty]
