"""Consecutive layers that run as one graph: all layers of a stage, or, if recomputed layer by layer, as few as can be."""

import copy

import torch

from troupe.layers.boundary import Entry, dense, mapped, tensors_of, value_of, versions
from troupe.errors import Error, LayerError, ProgramError
from troupe.seeds import seed_of
from troupe.layers.stage_state import extra_states


class Graph:
    """A forward's graph. roots: what backward begins with: the outputs, or the loss."""

    def __init__(self, given, roots, segment):
        self.roots, self._given, self._segment = roots, given, segment

    def backward(self, gradients):
        """`gradients`: one for each root that requires_grad. One dense tensor for each input that requires_grad."""
        roots = [r for r in self.roots if r.requires_grad]
        if len(roots) != len(gradients):
            raise ValueError(f"found {len(gradients)} gradients, expected {len(roots)}")
        if roots:
            self._segment.blamed(lambda: torch.autograd.backward(roots, list(gradients)))
        return self._given.gradients()


class Segment:
    """`layers`: BuiltLayers. autocast: a function that returns a context manager. generators: a function (layer, seed) that
    seeds all random numbers. watched: names and parameters, (layer, name, parameter), that no forward may change: other
    stages have them, too. loss: the last segment's function of its output, else None."""

    def __init__(self, layers, autocast, generators, watched=()):
        self._layers, self._autocast, self._generators = layers, autocast, generators
        self._watched = watched
        self._changes_input = None  # unknown until the first forward of a training
        self._buffers = list({(id(m), name): (m, name) for x in layers for m in x.module.modules()
                              for name in m._buffers if m._buffers[name] is not None}.values())
        self._last_buffers = [None] * len(self._buffers)
        self._extra = [m for x in layers for _, m in extra_states(x.module)]
        self._at = layers[0]

    def run(self, key, value, loss=None, evaluate=False):
        """The Graph of the layers (and of `loss`, a function of the last one's output) for `value`: a tuple of tensors, or
        in a first stage what the program's collate returns, in a list. key: seed, iteration and micro-batch."""
        given = _Input(value, copied=evaluate or self._changes_input is not False)
        learns, value = self._changes_input is None and not evaluate, given.value
        watched = versions([p for _, _, p in self._watched]) if learns else []
        for layer in self._layers:
            result = self._called(layer, key, value, evaluate)
            if learns:
                self._changes_input = given.copy_is_changed()
                self._check_watched(watched)
            if given.is_changed():
                raise ProgramError(f"{_who(layer)} has changed its input in place, which it had not done for the first "
                                   "micro-batch: the input is still needed")
            if loss is not None and layer is self._layers[-1]:
                return Graph(given, (loss(result),), self)
            value = value_of(tuple(self._passed(layer, t, value) for t in tensors_of(result, _who(layer))))
        return Graph(given, value if isinstance(value, tuple) else (value,), self)

    def buffers(self):
        """Copies of the buffers as they are now, for rerun(). What has not changed since the last call is not copied."""
        for i, (module, name) in enumerate(self._buffers):
            now = module._buffers[name]
            if not _are_equal(now, self._last_buffers[i]):
                self._last_buffers[i] = None if now is None else now.detach().clone()
        return list(self._last_buffers), [copy.deepcopy(m.get_extra_state()) for m in self._extra]

    def differs(self, state):
        """Are buffers others than buffers() has returned? Extra states count as others."""
        return bool(self._extra) or not all(_are_equal(module._buffers[name], then)
                                            for (module, name), then in zip(self._buffers, state[0]))

    def restore(self, state):
        """Puts back what buffers() has returned."""
        for (module, name), then in zip(self._buffers, state[0]):
            module._buffers[name] = None if then is None else then.clone()
        for module, then in zip(self._extra, state[1]):
            module.set_extra_state(copy.deepcopy(then))

    def rerun(self, key, value, state, loss=None, evaluate=False):
        """run() with copies of these buffers and extra states. Those of now are put back: they are a forward's, or must not
        change."""
        now = [module._buffers[name] for module, name in self._buffers]
        extra = [copy.deepcopy(m.get_extra_state()) for m in self._extra]
        self.restore(state)
        try:
            return self.run(key, value, loss, evaluate)
        finally:
            for (module, name), buffer in zip(self._buffers, now):
                module._buffers[name] = buffer
            for module, then in zip(self._extra, extra):
                module.set_extra_state(then)

    def blamed(self, call):
        """call(), whose exceptions are those of the layer that the backward has reached."""
        self._at = self._layers[-1]
        try:
            return call()
        except Exception as error:
            self._raise(self._at, error)

    def _called(self, layer, key, value, evaluate):
        self._at = layer
        if not evaluate:
            self._generators(layer, seed_of(*key, layer.index))
        try:
            with self._autocast():
                return layer(value)
        except Exception as error:
            self._raise(layer, error)

    def _check_watched(self, before):
        for (layer, name, p), version in zip(self._watched, before):
            if p._version != version:
                raise ProgramError(f"{_who(layer)}: its forward has changed '{name}', of which another layer has a copy: expected "
                                   "changes of a tied parameter by the optimizer alone")

    def _raise(self, layer, error):
        if isinstance(error, Error):
            raise error
        raise LayerError(layer.index, layer.name, error) from error

    # An in-place layer returns its input's tensor, whose hooks belong to the graph before it; and a hook on a parameter
    # would stay there.
    def _passed(self, layer, t, value):
        t = dense(t)
        if not t.requires_grad:
            return t
        if t.grad_fn is None or any(t is x for x in (value if isinstance(value, tuple) else (value,))):
            t = t.view_as(t)

        def arrived(gradient):
            self._at = layer
            return dense(gradient)

        t.register_hook(arrived)
        return t


class _Input:
    """A segment's input, whose tensors may be another process' memory: views of them, or copies where layers would change
    them in place."""

    def __init__(self, given, copied):
        first, self._box = isinstance(given, list), []
        self._tensors = () if first else tuple(x.detach().requires_grad_(x.requires_grad) for x in given)
        self._kept = given[0] if first else self._tensors
        value = mapped(torch.Tensor.detach, self._kept) if first else value_of(self._entered())
        self.value = mapped(torch.clone, value) if copied else value
        self._versions, self._copy_versions = versions(self._kept), versions(self.value)

    def is_changed(self):
        return versions(self._kept) != self._versions

    def copy_is_changed(self):
        return versions(self.value) != self._copy_versions

    def gradients(self):
        """After a backward: of each tensor that requires_grad, dense."""
        found = iter(self._box)
        wanted = ((next(found, None), x) for x in self._tensors if x.requires_grad)
        return tuple(torch.zeros_like(x) if g is None else dense(g) for g, x in wanted)

    def _entered(self):
        wanted = [x for x in self._tensors if x.requires_grad]
        graph = wanted and torch.is_grad_enabled()
        entered = iter(Entry.apply(self._box, *wanted) if graph else [x.detach() for x in wanted])
        return tuple(next(entered) if x.requires_grad else x.detach() for x in self._tensors)


def _are_equal(now, then):
    """Of buffers, which may be None."""
    if now is None or then is None:
        return now is then
    return now.shape == then.shape and now.dtype == then.dtype and torch.equal(now, then)


def _who(layer):
    return f"layer {layer.index} ({layer.name})"
