"""Stages of a program in one process, and a loop that shares nothing with them but the seeds and the order of data."""

import collections
import importlib.util

import torch

from troupe import order
from troupe.layers.model_file import Program
from troupe.seeds import seed_of
from troupe.layers.stage import Stage

SEED = 5


class Pipeline:
    """One pipeline's stages. Tensors between them lie in memory that is used again after their backward, as a worker's.
    late: the last stage gets a tied parameter's sum after its norms."""

    def __init__(self, program, cuts=(), recompute="none", rows=3, microbatches=4, schedule="1f1b", late=False, **more):
        self.program = program if isinstance(program, Program) else Program(program)
        layers, bounds = len(self.program.layers(SEED)), None
        bounds = [0, *cuts, layers]
        self.stages = [Stage(self.program, first, end - first, seed=SEED, rows=rows, microbatches=microbatches,
                             recompute=recompute, **more) for first, end in zip(bounds, bounds[1:])]
        for stage in self.stages:
            own, tied = (torch.frombuffer(bytearray(4 * n), dtype=torch.float32) if n else None
                         for n in (stage.own_parameters, stage.tied_parameters))
            stage.start(own, tied)
        self.microbatches, self.recompute, self.schedule, self.late = microbatches, recompute, schedule, late

    def iteration(self, n):
        """Its loss: the mean over the micro-batches."""
        losses = self.passes(n)
        self.exchange([self])
        self.update()
        return sum(losses) / self.microbatches

    def passes(self, n):
        todo = [self._order(s) for s in range(len(self.stages))]
        self._ready = {(0, "forward", m): None for m in range(self.microbatches)}
        self._ready.update({(len(self.stages) - 1, "backward", m): () for m in range(self.microbatches)})
        self._buffers, losses = {}, []
        while any(todo):
            before = sum(map(len, todo))
            for s, steps in enumerate(todo):
                if steps and self._may(s, *steps[0]):
                    self._step(n, s, *steps.pop(0), losses)
            assert sum(map(len, todo)) < before, "the order of operations cannot go on"
        return losses

    @staticmethod
    def exchange(pipelines):
        """As hosts do: sums over pipelines, a tied parameter's in the first stage before them."""
        found = [[stage.gradients() for stage in p.stages] for p in pipelines]
        for stages in found:
            if len(stages) > 1 and stages[0][1].numel():
                stages[0][1].add_(stages[-1][1])
        for stages in found[1:]:
            for (own, tied), (sum_own, sum_tied) in zip(stages, found[0]):
                sum_own.add_(own)
                sum_tied.add_(tied)
        for stages in found:
            for (own, tied), (sum_own, _) in zip(stages, found[0]):
                own.copy_(sum_own)
                if tied.numel():
                    tied.copy_(found[0][0][1])

    def update(self):
        tied = self.stages[-1]._gradients._hosts[1] if self.late else None
        if self.late:
            late = tied.clone()
            tied.fill_(7)
        norm = 0.0
        for stage in reversed(self.stages):
            for one in reversed(stage.squared_norms()):
                norm += one
        if self.late:
            tied.copy_(late)
        return [stage.update(norm) for stage in self.stages]

    def weights(self):
        """{name: tensor} of parameters and buffers."""
        return {f"{layer.index}.{name}": t.clone() for stage in self.stages for layer in stage.layers
                for name, t in layer.module.state_dict().items() if isinstance(t, torch.Tensor)}

    def states(self):
        """{name: {key: tensor or number}} of the optimizers."""
        return {name: values for stage in self.stages if stage._optimizer for name, values in stage._optimizer.state().items()}

    def _order(self, s):
        all_, ahead = range(self.microbatches), min(self.microbatches, len(self.stages) - s)
        if self.schedule == "gpipe":
            ahead = self.microbatches
        steps = [("forward", m) for m in all_[:ahead]]
        for m in all_:
            steps += [("recompute", m)] if self.recompute == "stage" else []
            steps += [("backward", m)] + [("forward", m + ahead)] * (m + ahead < self.microbatches)
        return steps

    def _may(self, s, what, m):
        return what == "recompute" or (s, what, m) in self._ready

    def _step(self, n, s, what, m, losses):
        stage = self.stages[s]
        if what == "recompute":
            return stage.recompute(n, m)
        given = self._ready.pop((s, what, m))
        if what == "forward":
            out = stage.forward(n, m, given, keep=self.recompute != "stage")
            if stage.is_last:
                losses.append(out.loss)
            else:
                self._ready[s + 1, what, m] = self._sent(out.tensors, (s + 1, m))
        else:
            found = stage.backward(n, m, given)
            for buffer in self._buffers.pop((s, m), ()):
                buffer.fill_(85)
            if s > 0:
                self._ready[s - 1, what, m] = self._sent(found, (s, -1 - m))

    def _sent(self, tensors, key):
        buffers, found = [], []
        for t in tensors:
            assert t.grad_fn is None
            buffer = torch.frombuffer(bytearray(t.numel() * t.element_size()), dtype=torch.uint8)
            copy = buffer.view(t.dtype).as_strided(t.shape, t.stride()).copy_(t.detach())
            buffers.append(buffer)
            found.append(copy.requires_grad_(t.requires_grad))
        self._buffers[key] = buffers
        return tuple(found)


class Loop:
    """A program trained in plain PyTorch. tied: names of two parameters that are one."""

    def __init__(self, path, rows=3, microbatches=4, tied=None, clip=None, arguments=None):
        spec = importlib.util.spec_from_file_location("independent", path)
        self.file = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.file)
        self.rows, self.microbatches, self.clip = rows, microbatches, clip
        arguments = arguments or {}
        data = {k: v for k, v in arguments.items() if k in self.file.dataset.__code__.co_varnames}
        self.layers, self.dataset = [], self.file.dataset(**data)
        for i, layer in enumerate(self.file.model(**arguments)):
            torch.manual_seed(seed_of(SEED, "init", i))
            self.layers.append(layer if isinstance(layer, torch.nn.Module) else layer.make(*layer.args, **layer.kwargs))
        if tied:
            setattr(self.layers[-1], tied[1], getattr(self.layers[0], tied[0]))
        self.module = torch.nn.Sequential(*self.layers)
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = self.file.optimizer(self.trained)
        self.schedule = self.file.schedule(self.optimizer) if hasattr(self.file, "schedule") else None
        for p in self.trained:
            p.grad = torch.zeros_like(p)

    def iteration(self, n):
        total = 0.0
        for m in range(self.microbatches):
            first = n * self.rows * self.microbatches + m * self.rows
            samples = [self.dataset[i] for i in order.samples(first, self.rows, len(self.dataset), SEED)]
            value, target = (stacked([x[k] for x in samples]) for k in (0, 1))
            for i, layer in enumerate(self.layers):
                torch.manual_seed(seed_of(SEED, n, m, i))
                value = layer(value)
            torch.manual_seed(seed_of(SEED, n, m, len(self.layers)))
            loss = self.file.loss(value, target)
            loss.backward()
            total += loss.item()
        for p in self.trained:
            p.grad.mul_(1 / self.microbatches)
        if self.clip:
            self.norm = torch.nn.utils.clip_grad_norm_(self.trained, self.clip)
        self.optimizer.step()
        if self.schedule:
            self.schedule.step()
        self.optimizer.zero_grad(set_to_none=False)
        return total / self.microbatches

    def weights(self):
        return self.module.state_dict()

    def states(self):
        names = {id(p): name for name, p in self.module.named_parameters()}
        return {names[id(p)]: values for p, values in self.optimizer.state.items()}


def stacked(values):
    if isinstance(values[0], tuple):
        return tuple(map(stacked, zip(*values)))
    return torch.stack([torch.as_tensor(x) for x in values])


def unequal(one, other):
    """Where two nested dicts, lists, numbers or tensors differ: a text, empty if nowhere."""
    if isinstance(one, dict):
        keys = sorted(set(one) ^ set(other))
        return f"keys {keys}" if keys else next((f"{k}: {d}" for k in one if (d := unequal(one[k], other[k]))), "")
    if isinstance(one, (list, tuple, collections.deque)):
        return next((f"{i}: {d}" for i, (a, b) in enumerate(zip(one, other)) if (d := unequal(a, b))), "")
    if isinstance(one, torch.Tensor):
        return "" if one.dtype == other.dtype and torch.equal(one, other) else f"{one.flatten()[:3]} {other.flatten()[:3]}"
    return "" if one == other else f"{one} {other}"
