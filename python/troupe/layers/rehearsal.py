"""A layer's checkpoint, tried before anything runs: after a step a second copy of the layer is loaded with it, and the two
go on with the same input and the same gradients. Where they differ, a part of the program's state is in no checkpoint."""

import os
import tempfile

import torch

from troupe.layers.boundary import mapped
from troupe.layers.checkpoint import Checkpoint, Copy
from troupe.layers.differences import Differences
from troupe.errors import Error, LayerError, ProgramError
from troupe.layers.randomness import Generators, own_generators
from troupe.seeds import seed_of
from troupe.layers.stage_state import StageState
from troupe.layers.updates import Updates

_small_bytes = 1 << 22  # of parameters: more steps cost next to nothing
_iteration = 1


class Rehearsal:
    """Of the layers of a program's model, one after the other. autocast: a function that returns a context manager."""

    def __init__(self, program, model, seed, autocast):
        self._program, self._model, self._seed, self._autocast = program, model, seed, autocast
        self._generators = Generators(own=program.own_generators)

    def state_of(self, layer):
        """The StageState of a BuiltLayer, made before its first forward."""
        return StageState(self._program, _Alone(self._model.layers), [layer])

    def layer(self, layer, state, value, draws):
        """Raises ProgramError for what a checkpoint of the layer, called with `value`, would not have. state: state_of() it.
        draws: whether its updates draw random numbers. Returns texts that deserve a warning."""
        one, other = self._copy_of(layer, draws, state), self._copy_of(self._fresh(layer.index), draws)
        one.step(1)
        one.save_into(other)
        one.compare(other)
        warnings = self._pass_of_both(one, other, value)
        one.step(2)
        other.step(2)
        one.compare_results(other, "its next update")
        if sum(p.numel() * p.element_size() for p in layer.module.parameters()) <= _small_bytes:
            self._later(one, draws)
        return warnings

    # Some states come, go or change their shape only after some steps.
    def _later(self, one, draws):
        for i in range(3, 7):
            one.step(i)
        third = self._copy_of(self._fresh(one.layer.index), draws)
        one.save_into(third)
        one.compare(third)
        for i in range(7, 9):
            one.step(i)
            third.step(i)
        one.compare_results(third, "an update")

    def _fresh(self, index):
        if self._model.layers[index].module is None:
            return self._model.build_alone(index, self._seed)
        return self._program.layers(self._seed).build_alone(index, self._seed)  # the file has built it itself

    def _copy_of(self, layer, draws, state=None):
        return _Copy(self._program, layer, state or self.state_of(layer), self._seed, self._generators, draws)

    def _pass_of_both(self, one, other, value):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums of several have no order
        try:
            return self._compared(one, other, value)
        finally:
            torch.set_num_threads(threads)

    def _compared(self, one, other, value):
        outputs = [self._passed(x, value) for x in (one, other)]
        if (found := one.differences(other).first(*outputs)) is None:
            if (found := one.differences(other).first(*(x.gradients() for x in (one, other)))) is None:
                one.compare_results(other, "its next forward")
                return one.changed_numbers(other)
        self._refuse(one, other, found)

    def _refuse(self, one, other, found):
        suspect = one.suspect(other)
        if suspect:
            raise ProgramError(f"{one.who}: its output depends on its attribute {suspect}, which a forward changes and no "
                               "checkpoint has: expected a buffer, or get_extra_state()")
        raise ProgramError(f"{one.who}: its output is another one when it is computed again with the same input, weights, "
                           f"buffers and seeds ({found}): recomputation and a resumed training would differ from the first "
                           "one; expected random numbers of torch's, Python's or numpy's generators, and state in buffers")

    def _passed(self, copy, value):
        layer = copy.layer
        for p in layer.module.parameters():
            p.grad = None
        entered = mapped(lambda t: t.detach().requires_grad_(t.requires_grad).clone(), value)
        copy.generators.seed(seed_of(self._seed, _iteration, 0, layer.index))
        try:
            with self._autocast():
                result = layer(entered)
            roots = [t for t in (result if isinstance(result, tuple) else (result,)) if t.requires_grad]
            if roots:
                torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
        except Error:
            raise
        except Exception as error:
            raise LayerError(layer.index, layer.name, error) from error
        return mapped(torch.Tensor.detach, result)


class _Copy:
    """One of the copies, with an optimizer."""

    def __init__(self, program, layer, state, seed, generators, draws):
        self.layer, self.who = layer, f"layer {layer.index} ({layer.name})"
        self.generators = generators.with_own(own_generators(layer.module))
        self._state, self._seed = state, seed
        self.updates = Updates(program, self._state.trainable, seed, generators, draws) if self._state.trainable else None

    def step(self, iteration):
        if self.updates is None:
            return
        generator = torch.Generator().manual_seed(seed_of(self._seed, "rehearsal", iteration))
        for _, p in self._state.trainable:
            kind = p.dtype if p.is_complex() else torch.float32
            p.grad = (torch.randn(p.shape, dtype=kind, generator=generator) / 64).to(p.dtype)
        self.updates.step(iteration)
        for _, p in self._state.trainable:
            p.grad = None

    def save_into(self, other):
        other.scramble()
        with tempfile.TemporaryDirectory(prefix="troupe-describe-", dir=_folder(self.layer)) as folder:
            Copy(_iteration, self._state.layers(self.updates, [1.0, 0], None)).write(folder)
            if not os.listdir(folder):
                return
            try:
                other._state.load(Checkpoint(folder), other.updates)
            except Error as error:
                raise ProgramError(f"{self.who}: its checkpoint cannot be read: {error}") from error

    # What is not restored shall not be equal by chance.
    def scramble(self):
        with torch.no_grad():
            for t in self.layer.module.state_dict(keep_vars=True).values():
                if isinstance(t, torch.Tensor) and not hasattr(t, "troupe_frozen") and 0 not in _strides(t):
                    t.logical_not_() if t.dtype == torch.bool else t.add_(1)
        for optimizer in self.updates.optimizers if self.updates is not None else ():
            for group in optimizer.optimizer.param_groups if optimizer.optimizer is not None else ():
                for key, value in group.items():
                    if type(value) in (int, float):
                        group[key] = value + 1
            for owner in (optimizer.optimizer, optimizer.schedule):
                for key, value in list(getattr(owner, "__dict__", {}).items()):
                    if type(value) in (int, float):
                        setattr(owner, key, value + 1)

    def differences(self, other):
        names = {id(p): name for x in (self, other) for name, p in x._state.trainable}
        return Differences(names)

    def compare(self, other):
        """The two as PyTorch's own state_dict() has them, and all that their optimizers' and schedules' objects hold."""
        self._compare(other, "", self.layer.module.state_dict(), other.layer.module.state_dict())
        for one, two in self._pairs(other):
            if one.optimizer is None:
                continue
            for a, b in ((one.optimizer, two.optimizer), (one.schedule, two.schedule)):
                who = type(a).__name__
                self._compare(other, f" of {who}", _state_dict(a), _state_dict(b))
                self._compare(other, f" of {who}", a, b)

    def _compare(self, other, of, one, two):
        found = self.differences(other).first(two, one)
        if found is not None:
            raise ProgramError(f"{self.who}: a checkpoint of it would not have all of the program's state{of}: after it was "
                               f"loaded, {found}")

    def compare_results(self, other, what):
        found = self.differences(other).first(other._results(), self._results())
        if found is not None:
            raise ProgramError(f"{self.who}: {what} after its checkpoint was loaded is another than without: {found}: state "
                               "is kept where no checkpoint has it")

    def _results(self):
        return {"state": self.layer.module.state_dict(), "optimizer": self.updates.state() if self.updates is not None else {}}

    def gradients(self):
        return {name: p.grad for name, p in self._state.trainable}

    def suspect(self, other):
        """The attribute of the layer in which the two differ, as a text; None if there is none."""
        return self.differences(other).first_attribute(self.layer.module, other.layer.module)

    def changed_numbers(self, other):
        found = self.differences(other).first_attribute(self.layer.module, other.layer.module, numbers=True)
        return [f"{self.who}: its attribute {found} changes in a forward and is in no checkpoint: expected a buffer, or "
                "get_extra_state()"] if found else []

    def _pairs(self, other):
        return zip(self.updates.optimizers, other.updates.optimizers) if self.updates is not None else ()


class _Alone:
    """The model for a layer that shares nothing."""

    tied = None

    def __init__(self, layers):
        self.layers = layers

    def __len__(self):
        return len(self.layers)


def _state_dict(found):
    try:
        return found.state_dict()
    except Exception:  # of one that has none
        return None


def _strides(t):
    return [stride for stride, size in zip(t.stride(), t.shape) if size > 1] if t.layout == torch.strided else [0]


# Memory, where the layer is small.
def _folder(layer):
    small = sum(t.numel() * t.element_size() for t in layer.module.state_dict().values() if isinstance(t, torch.Tensor)) < 1 << 26
    return "/dev/shm" if small and os.access("/dev/shm", os.W_OK) else None
