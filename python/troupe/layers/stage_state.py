"""A stage's parameters, buffers and extra states by name, and their checkpoints."""

import torch

from troupe.layers.boundary import dense
from troupe.layers.checkpoint import LayerState
from troupe.errors import Error, LayerError, ProgramError
from troupe.layers.optimizers import SavedState
from troupe.layers.updates import probed
from troupe.layers.values import Unsaved, decoded, encoded


class StageState:
    """own, tied: (layer, name, parameter) of those with a gradient; twin: the tied parameter of a model's last layer where
    the first one's is here. trainable: (name, parameter) in the order of layers, a tied one by its first layer's name."""

    def __init__(self, program, model, built):
        self._program, self._model, self._built = program, model, built
        self.own, self.tied, self.twin = [], [], None
        self._parameters, self._names = {}, {}
        self._first_layers = {}  # the tied parameter of a last stage
        self._aliases = {}  # other names of a parameter or buffer: {name: the one it is saved by}
        last = len(model) - 1
        tied = model.tied and (f"0.{model.tied[0]}", f"{last}.{model.tied[1]}")
        if tied:
            self._aliases[tied[1]] = tied[0]
        for layer in built:
            for name, p in _named(layer, "_parameters"):
                if id(p) in self._names:
                    self._aliases[name] = self._names[id(p)]
                elif tied and name == tied[1]:
                    self._add_last(p, tied[0])
                else:
                    self._names[id(p)] = name
                    self._parameters[name] = (layer.index, p)
                    if p.requires_grad:
                        (self.tied if tied and name == tied[0] else self.own).append((layer.index, name, p))
        # As the file has made them: what they are later may have other shapes.
        self._first_buffers = {name: _form(t) for name, _, t in self._buffers()}
        self.trainable = sorted(((name, p) for _, name, p in (*self.tied, *self.own)), key=lambda x: _layer_of(x[0]))
        self.parameter_bytes = [_bytes(p for i, p in self._parameters.values() if i == layer.index) for layer in built]
        self.buffer_bytes = [_bytes(layer.module.buffers()) for layer in built]

    # Its values are the first layer's, in whose file they are saved.
    def _add_last(self, p, first_name):
        if self._built[0].index == 0:
            self.twin = p if p.requires_grad else None
            return
        self._names[id(p)] = first_name
        self._first_layers = {first_name: p}
        if p.requires_grad:
            self.tied.append((0, first_name, p))

    # (name, (module, key), tensor) of the persistent ones as they are now. A module that layers share has one name.
    def _buffers(self, index=None):
        known = {}
        for layer in self._built:
            for name, module, key in _places(layer, "_buffers"):
                if key in module._non_persistent_buffers_set:
                    continue
                first = known.setdefault((id(module), key), name)
                if first != name:
                    self._aliases[name] = first
                elif index is None or layer.index == index:
                    yield name, (module, key), module._buffers[key]

    def probe(self):
        """(bytes of the optimizer's state, whether an update draws random numbers): found one layer at a time."""
        layers = sorted({_layer_of(name) for name, _ in self.trainable})
        found = {i: probed(self._program, [(n, p) for n, p in self.trainable if _layer_of(n) == i]) for i in layers}
        here = {layer.index for layer in self._built}
        return sum(x for i, (x, _) in found.items() if i in here), any(draws for _, draws in found.values())

    def layers(self, updates, scale, data, whole=False):
        """LayerStates of the layers that this stage saves. updates: None without parameters. data: which samples it has
        read, of which data. whole: of all that it loads."""
        tensors = {}
        saved = updates.saved(tensors.__setitem__) if updates is not None else []
        found = [self._saved(layer, saved, tensors, scale, data) for layer in self._built]
        if whole and self._first_layers:
            found.insert(0, self._with_updates(0, list(self._first_layers), saved, tensors, scale, data))
        return found

    def load(self, checkpoint, updates):
        """(scale of the loss that was saved, texts about options that the file gives otherwise now)."""
        indices = [layer.index for layer in self._built]
        if self._first_layers:
            indices.insert(0, 0)
        found, scale = {}, None
        for index in indices:
            expected = self._expected(index)
            if not expected.tensors and index not in checkpoint.layers:
                continue
            found[index] = checkpoint.read(expected, whole=index >= self._built[0].index)
            self._blamed(index, lambda: self._copy(index, found[index]))
            scale = found[index].about["scale"]
        notes = updates.restore(lambda names: _joined(found, names)) if updates is not None else []
        return scale, notes

    def _blamed(self, index, call):
        try:
            call()
        except Error:
            raise
        except Exception as error:
            raise LayerError(index, self._model.layers[index].name, error) from error

    # A layer's parameters, and what the optimizer has of them.
    def _with_updates(self, index, names, saved, tensors, scale, data):
        found = self._expected(index)
        found.about.update(schedule=None, scale=scale, data=data, arguments=self._program.arguments)
        for of, one in saved:
            if of & set(names):
                _add(found, names, one, tensors)
        return found

    def _saved(self, layer, saved, tensors, scale, data):
        mine = [name for name, (index, _) in self._parameters.items() if index == layer.index]
        found = self._with_updates(layer.index, mine, saved, tensors, scale, data)
        for name, _, t in self._buffers(layer.index):
            first = self._first_buffers.get(name)
            if _form(t) != first:
                found.about.setdefault("first", {})[name] = first
        here = {name for name, _, t in self._buffers(layer.index) if t is not None}
        gone = [x for x, form in self._first_buffers.items() if _layer_of(x) == layer.index and form and x not in here]
        if gone:
            found.about["gone"] = gone
        self._add_extra(found, layer)
        return found

    def _add_extra(self, found, layer):
        for name, module in extra_states(layer.module, str(layer.index)):
            try:
                kept = encoded(module.get_extra_state(), f"optim/extra/{name}", found.tensors.__setitem__)
            except Unsaved as error:
                raise ProgramError(f"layer {layer.index} ({layer.name}): get_extra_state() has {error}, expected tensors and "
                                   "plain values") from None
            found.about.setdefault("extra", {})[name] = kept
        if "extra" in found.about and not any(not x.startswith("optim/") for x in found.tensors):
            # An index has files by their tensors, of which this one has none of its own.
            found.tensors[f"frozen/{layer.index}._extra_state"] = torch.zeros(0, dtype=torch.uint8)

    # The last stage reads, but does not save, the first layer's tied parameter.
    def _expected(self, index):
        parameters = {name: p for name, (layer, p) in self._parameters.items() if layer == index}
        if index < self._built[0].index:
            parameters = self._first_layers
        frozen = {name: p.troupe_frozen for name, p in parameters.items() if hasattr(p, "troupe_frozen")}
        tensors = {name: p for name, p in parameters.items() if name not in frozen}
        tensors.update((f"frozen/{name}", torch.tensor(list(bytes.fromhex(x["sha256"])), dtype=torch.uint8))
                       for name, x in frozen.items())
        buffers = {name: t for name, _, t in self._buffers(index) if t is not None}
        tensors.update((f"buffer/{name}", t) for name, t in buffers.items())
        aliases = {name: one for name, one in self._aliases.items() if _layer_of(one) == index}
        about = {"layers": len(self._model), "class": self._model.layers[index].name, "sha256": self._program.sha256,
                 "numbers": {}, "options": {}, "schedule": None, "scale": None, "frozen": frozen, "tied": aliases,
                 "names": {name: self._program.name_of(*_split(name)) for name in (*parameters, *aliases, *buffers)}}
        return LayerState(index, tensors, about)

    def _copy(self, index, found):
        with torch.no_grad():
            for name, p in (*self._parameters.items(), *self._first_layers.items()):
                p = p[1] if isinstance(p, tuple) else p
                if _layer_of(name) == index and not hasattr(p, "troupe_frozen"):
                    p.copy_(found.tensors[name])
        layer = next((x for x in self._built if x.index == index), None)
        if layer is None:
            return
        here = {name: place for name, place, _ in self._buffers(index)}
        for name in found.about.get("gone", ()):
            here[name][0]._buffers[here[name][1]] = None
        for name in found.tensors:
            if name.startswith("buffer/"):
                _set_buffer(layer, name[len("buffer/"):], here, found.tensors[name])
        for name, module in extra_states(layer.module, str(index)):
            if name in found.about.get("extra", {}):
                module.set_extra_state(decoded(found.about["extra"][name], found.tensors.__getitem__, _device(layer)))


def extra_states(module, prefix=""):
    """(name, module) of those whose state_dict() has an extra state."""
    for name, one in module.named_modules(prefix=prefix):
        if type(one).get_extra_state is not torch.nn.Module.get_extra_state:
            yield f"{name}._extra_state" if name else "_extra_state", one


# A state that is of no parameter is in the files of all its layers.
def _add(found, mine, one, tensors):
    about = found.about
    for key, part in (("numbers", one.values), ("options", one.options), ("given", one.given)):
        kept = {name: part[name] for name in mine if name in part}
        if kept:
            about.setdefault(key, {}).update(kept)
    about["optimizer"] = one.about()
    found.tensors.update((x, tensors[x]) for key in ("numbers", "options", "optimizer") for x in _tensors_of(about[key]))


def _tensors_of(value):
    if isinstance(value, dict):
        if value.get("$") == "tensor":
            yield value["v"]
        else:
            for x in value.values():
                yield from _tensors_of(x)
    elif isinstance(value, list):
        for x in value:
            yield from _tensors_of(x)


def _joined(found, names):
    """The SavedState of these parameters in the layers' files: {layer: LayerState}."""
    values, options, given, tensors, parts = {}, {}, {}, {}, []
    for index, one in sorted(found.items()):
        mine = [name for name in names if _layer_of(name) == index]
        for name in mine:
            values[name] = one.about["numbers"].get(name, {})
            options[name] = one.about["options"].get(name, {})
            given[name] = one.about.get("given", {}).get(name, {})
            if "optimizer" not in one.about:
                values[name] = {**values[name], **_older(name, one)}
        if mine:
            parts.append(one)
            tensors.update(one.tensors)
    return SavedState(values, options, given, _merged(parts), tensors.__getitem__)


# Checkpoints once had a state's tensors by their names alone, and the schedule's state_dict().
def _older(name, one):
    return {x[len("optim/"):-len(name) - 1]: {"$": "tensor", "v": x} for x in one.tensors
            if x.startswith("optim/") and x.endswith("/" + name)}


def _merged(parts):
    """What is of no parameter, of a stage that others have written in parts."""
    found = [one for one in parts if "optimizer" in one.about]
    if not found:
        schedule = next((one.about["schedule"] for one in parts if one.about["schedule"] is not None), None)
        return {"by": {"state": "state"}, "schedule": schedule}
    first = found[0].about["optimizer"]
    merged = {key: first[key].copy() for key in ("classes", "by", "common", "constant")}
    for one in found[1:]:
        other = one.about["optimizer"]
        merged["by"].update(other["by"])
        for path, value in other["common"].items():
            if other["by"].get(path) == "grouped":
                continue  # as each parameter's group has it
            known = merged["common"].setdefault(path, value)
            if known == value and all(_equal(found[0].tensors[x], one.tensors[x]) for x in _tensors_of(value)):
                continue
            if path not in other["constant"] or path not in merged["constant"]:
                raise ProgramError(f"{one.path}: found another '{path}' of {first['classes'].get('', 'the optimizer')} than in "
                                   f"{found[0].path}: it is computed from the parameters of one stage, expected the stages "
                                   "that have written it")
            del merged["common"][path]  # it depends on the cut, and the file makes it so
    return merged


def _equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


# -- buffers

def _form(t):
    return None if t is None else [list(t.shape), str(t.dtype)[6:]]


def _set_buffer(layer, name, here, value):
    module, key = here[name] if name in here else _place(layer, name)
    old = module._buffers.get(key)
    if old is not None and old.shape == value.shape and old.dtype == value.dtype and dense(old) is old:
        old.copy_(value)  # others may refer to it
        return
    value = value.clone().to(_device(layer) if old is None else old.device)
    module._buffers[key] = _expanded(value, old)


# One number that is many elements stays one, where all of them are equal.
def _expanded(value, old):
    if old is None or old.shape != value.shape or not any(n > 1 and s == 0 for n, s in zip(old.shape, old.stride())):
        return value
    one = value
    for dimension, (size, stride) in enumerate(zip(old.shape, old.stride())):
        if size > 1 and stride == 0:
            one = one.narrow(dimension, 0, 1)
    return one.clone().expand(value.shape) if _equal(one.expand(value.shape), value) else value


def _place(layer, name):
    module = layer.module
    *path, key = name.split(".")[1:]
    try:
        for part in path:
            module = getattr(module, part)
    except AttributeError:
        module = None
    if not isinstance(module, torch.nn.Module):
        raise ProgramError(f"layer {layer.index} ({layer.name}): found 'buffer/{name}' in the checkpoint, which the program "
                           "has not")
    if key not in module._buffers:
        module.register_buffer(key, None)
    return module, key


def _device(layer):
    return next((t.device for t in (*layer.module.parameters(), *layer.module.buffers())), torch.device("cpu"))


def _bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def _places(layer, kind):
    """(name, module, key) of each parameter or buffer, by all of its names; of buffers, those that are None, too."""
    for prefix, module in layer.module.named_modules(prefix=str(layer.index), remove_duplicate=False):
        for key, value in list(getattr(module, kind).items()):
            if value is not None or kind == "_buffers":
                yield f"{prefix}.{key}", module, key


def _named(layer, kind):
    return ((name, getattr(module, kind)[key]) for name, module, key in _places(layer, kind))


def _split(name):
    layer, rest = name.split(".", 1)
    return int(layer), rest


def _layer_of(name):
    return _split(name)[0]
