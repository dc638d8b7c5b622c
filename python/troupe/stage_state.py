"""A stage's parameters and buffers by name, and their checkpoints."""

import torch

from troupe import optimizers
from troupe.checkpoint import LayerState


class StageState:
    """own, tied: (layer, name, parameter) of those with a gradient; twin: the tied parameter of a model's last layer where
    the first one's is here. trainable: (name, parameter) in the order of layers, a tied one by its first layer's name."""

    def __init__(self, program, model, built):
        self._program, self._model, self._built = program, model, built
        self.own, self.tied, self.twin = [], [], None
        self._parameters, self._buffers, self._names = {}, {}, {}
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
            self._add_buffers(layer)
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

    def _add_buffers(self, layer):
        for name, module, key in _places(layer, "_buffers"):
            if key in module._non_persistent_buffers_set:
                continue
            known = self._names.setdefault((id(module), key), name)
            if known != name:
                self._aliases[name] = known
            else:
                self._buffers[name] = (layer.index, (module, key))

    def first_state(self, layer):
        return optimizers.first_state(self._program, [(n, p) for n, p in self.trainable if _layer_of(n) == layer])

    def layers(self, optimizer, scale):
        """LayerStates of the layers that this stage saves."""
        state, options = ({}, {}) if optimizer is None else (optimizer.state(), optimizer.options())
        schedule = None if optimizer is None else optimizer.schedule_state()
        return [self._saved(layer.index, state, options, schedule, scale) for layer in self._built]

    def load(self, checkpoint, optimizer):
        """The scale of the loss that was saved."""
        indices = [layer.index for layer in self._built]
        if self._first_layers:
            indices.insert(0, 0)
        state, options, schedule, scale = {}, {}, None, None
        for index in indices:
            expected = self._expected(index)
            if not expected.tensors:
                continue
            keys = self.first_state(index) if optimizer is not None else {}
            found = checkpoint.read(expected, keys, whole=index >= self._built[0].index)
            self._copy(index, found)
            about = found.about
            options.update(about["options"])
            schedule = about["schedule"] if schedule is None else schedule
            scale = about["scale"]
            for name in keys:
                state[name] = dict(about["numbers"].get(name, {}))
                state[name].update((key, found.tensors[f"optim/{key}/{name}"].clone()) for key in keys[name]
                                   if f"optim/{key}/{name}" in found.tensors)
        if optimizer is not None:
            optimizer.restore(state, options, schedule)
        return scale

    def _saved(self, index, state, options, schedule, scale):
        found = self._expected(index)
        mine = [name for name, (layer, _) in self._parameters.items() if layer == index]
        for name in mine:
            for key, value in state.get(name, {}).items():
                if isinstance(value, torch.Tensor):
                    found.tensors[f"optim/{key}/{name}"] = value
                else:
                    found.about["numbers"].setdefault(name, {})[key] = value
        found.about["options"] = {name: options[name] for name in mine if name in options}
        found.about.update(schedule=schedule, scale=scale)
        return found

    # The last stage reads, but does not save, the first layer's tied parameter.
    def _expected(self, index):
        parameters = {name: p for name, (layer, p) in self._parameters.items() if layer == index}
        if index < self._built[0].index:
            parameters = self._first_layers
        frozen = {name: p.troupe_frozen for name, p in parameters.items() if hasattr(p, "troupe_frozen")}
        tensors = {name: p for name, p in parameters.items() if name not in frozen}
        tensors.update((f"frozen/{name}", torch.tensor(list(bytes.fromhex(x["sha256"])), dtype=torch.uint8))
                       for name, x in frozen.items())
        tensors.update((f"buffer/{name}", m._buffers[x]) for name, (layer, (m, x)) in self._buffers.items() if layer == index)
        aliases = {name: one for name, one in self._aliases.items() if _layer_of(one) == index}
        plain = [*parameters, *aliases, *(name for name, (layer, _) in self._buffers.items() if layer == index)]
        about = {"layers": len(self._model), "class": self._model.layers[index].name, "sha256": self._program.sha256,
                 "numbers": {}, "options": {}, "schedule": None, "scale": None, "frozen": frozen, "tied": aliases,
                 "names": {name: self._program.name_of(*_split(name)) for name in plain}}
        return LayerState(index, tensors, about)

    def _copy(self, index, found):
        with torch.no_grad():
            for name, t in self._expected(index).tensors.items():
                if not name.startswith("frozen/"):
                    t.copy_(found.tensors[name])


def _bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def _places(layer, kind):
    """(name, module, key) of each parameter or buffer, by all of its names."""
    for prefix, module in layer.module.named_modules(prefix=str(layer.index), remove_duplicate=False):
        for key, value in getattr(module, kind).items():
            if value is not None:
                yield f"{prefix}.{key}", module, key


def _named(layer, kind):
    return ((name, getattr(module, kind)[key]) for name, module, key in _places(layer, kind))


def _split(name):
    layer, rest = name.split(".", 1)
    return int(layer), rest


def _layer_of(name):
    return _split(name)[0]
