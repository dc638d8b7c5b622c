"""Times of the layers of a stage, for `python3 -m troupe.profile`."""

import time
from statistics import median, quantiles

import torch

from troupe.layers.data import Batches
from troupe.layers.layer import Model
from troupe.layers.optimizers import Optimizer
from troupe.layers.stage import Stage

_steps = ("forward_s", "recompute_s", "backward_s")
_passes = 3  # of a round: to warm up, recomputed, kept


class Timing:
    """A stage of the layers `kept` of the program's, which trains in rounds: an iteration for each of `rows`."""

    def __init__(self, program, kept, seed, rows, device="cpu"):
        self._kept = kept
        self._clock = _DeviceClock() if device == "cuda" else _HostClock()
        program = _SomeLayers(program, kept)
        self._stage = Stage(program, seed=seed, rows=rows[0], microbatches=_passes, recompute="stage", device=device)
        self._stage.start()
        self._batches = {n: {"train": Batches(program, seed=seed, rows=n, microbatches=_passes)} for n in rows}
        self._samples = {n: _Samples(len(kept)) for n in rows}
        self._iteration = 0
        self._marks = None  # of the pass that is timed
        for i, layer in enumerate(self._stage.layers):
            layer._call = self._marked(i, layer._call)
        self._shares, self._tied_share = self._shares_of_updates(program)

    def round(self):
        # In turn, so that slow changes of the machine affect all of them equally.
        for rows, batches in self._batches.items():
            self._stage._batches = batches
            self._one(self._samples[rows])
            self._iteration += 1

    def points(self, same_as):
        """For each number of rows: the times of all the model's layers, of the loss, and of a tied parameter that another
        stage has, too. same_as: of each layer, the first one that it is equal to."""
        found = []
        for rows, samples in self._samples.items():
            mine = samples.layers(self._shares)
            equal = {}
            for at, index in enumerate(self._kept):
                equal.setdefault(same_as[index], []).append(mine[at])
            means = {first: _mean(times) for first, times in equal.items()}
            found.append({"rows": rows, "layers": [means[first] for first in same_as], "loss": samples.loss(),
                          "tied": samples.updates(*self._tied_share)})
        return found

    def _one(self, samples):
        stage, n = self._stage, self._iteration
        self._pass(0, None)
        forward = self._timed(lambda: stage.forward(n, 1, keep=False))
        recompute = self._timed(lambda: stage.recompute(n, 1))
        samples.add("forward_s", self._forwards(*forward))
        samples.add("recompute_s", self._forwards(*recompute))
        samples.add("backward_s", self._backwards(*self._timed(lambda: stage.backward(n, 1))))
        self._pass(2, samples)
        samples.gradients.append(self._whole(stage.gradients))
        norms = []
        # As the worker: a clipped update has a step of its own for its norm, and each one reports the curve's.
        spent = self._whole(lambda: norms.extend(stage.squared_norms())) if stage.needs_norm else 0.0
        spent += self._whole(stage.squared_norm)
        samples.update.append(spent + self._whole(lambda: stage.update(sum(norms) if stage.needs_norm else None)))

    def _pass(self, microbatch, samples):
        stage, n = self._stage, self._iteration
        forward = self._timed(lambda: stage.forward(n, microbatch, keep=True))
        backward = self._timed(lambda: stage.backward(n, microbatch))
        if samples is not None:
            samples.add("recompute_s", self._forwards(*forward))
            samples.add("backward_s", self._backwards(*backward))

    def _timed(self, call):
        self._marks = {"forward": {}, "backward": {}}
        begin = self._clock.now()
        call()
        end = self._clock.now()
        marks, self._marks = self._marks, None
        return self._clock.seconds(begin, end, marks)

    def _whole(self, call):
        return self._timed(call)[1]

    def _marked(self, index, compute):
        last = index + 1 == len(self._kept)

        def call(module, value):
            marks = self._marks
            if marks is not None:
                marks["forward"][index] = self._clock.now()
            result = module(value) if compute is None else compute(module, value)
            if marks is not None and last:
                marks["forward"][index + 1] = self._clock.now()
            for t in result if isinstance(result, tuple) else (result,):
                if isinstance(t, torch.Tensor) and t.grad_fn is not None:
                    t.register_hook(arrived)
            return result

        def arrived(_):
            if self._marks is not None:
                self._marks["backward"].setdefault(index, self._clock.now())

        return call

    # What comes before the first layer is its data's; what follows the last one is the loss.
    def _forwards(self, begin, end, marks):
        at = [begin, *(marks["forward"][i] for i in range(1, len(self._kept) + 1)), end]
        return [b - a for a, b in zip(at, at[1:])]

    # A layer without gradients takes no time.
    def _backwards(self, begin, end, marks):
        at = [end]
        for i in range(len(self._kept)):
            at.append(min(marks["backward"].get(i, at[-1]), at[-1]))
        at.append(begin)
        return [a - b for a, b in zip(at, at[1:])]

    # Optimizers see one layer after the other, so that no state is there twice at once.
    def _shares_of_updates(self, program):
        steps, sizes = [], []
        for layer in range(len(self._kept)):
            named = [(name, p) for name, p in self._stage._state.trainable if name.split(".", 1)[0] == str(layer)]
            sizes.append(sum(p.numel() for _, p in named))
            steps.append(self._step_s(program, named) if named else 0.0)
        shares = [(_share(step, steps), _share(size, sizes)) for step, size in zip(steps, sizes)]
        tied = [(name, p) for _, name, p in self._stage._state.tied]
        if not tied:
            return shares, (0.0, 0.0)
        return shares, (_share(self._step_s(program, tied), steps), _share(sum(p.numel() for _, p in tied), sizes))

    def _step_s(self, program, named):
        optimizer = Optimizer(program, named)
        for _, p in named:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        optimizer.step()
        times = [self._whole(optimizer.step) for _ in range(5)]
        for _, p in named:
            if p.dtype != torch.float32:
                p.grad = None
        return median(times)


class _Samples:
    def __init__(self, layers):
        self._layers, self.update, self.gradients = layers, [], []
        self._times = {step: [[] for _ in range(layers + 1)] for step in _steps}

    def add(self, step, times):
        for samples, t in zip(self._times[step], times):
            samples.append(t)

    def layers(self, shares):
        return [{**self.updates(*share), **self._of(i)} for i, share in enumerate(shares)]

    def loss(self):
        return {**self.updates(0.0, 0.0), **self._of(self._layers)}

    def updates(self, step, size):
        """Of parameters that have these parts of all optimizers' steps, and of all numbers."""
        return {**dict.fromkeys((*_steps, "spread"), 0.0), "update_s": median(self.update) * step,
                "gradients_s": median(self.gradients) * size}

    def _of(self, i):
        found = {step: median(samples[i]) for step, samples in self._times.items()}
        found["spread"] = max(_spread(self._times[step][i]) for step in ("forward_s", "backward_s"))
        return found


class _SomeLayers:
    """A program with some of its layers."""

    def __init__(self, program, kept):
        self._program, self._chosen = program, kept

    def layers(self, seed):
        model = self._program.layers(seed)
        return Model([model.layers[i] for i in self._chosen], model.file)

    def __getattr__(self, name):
        return getattr(self._program, name)


class _HostClock:
    now = staticmethod(time.perf_counter)

    @staticmethod
    def seconds(begin, end, marks):
        return 0.0, end - begin, {kind: {i: t - begin for i, t in times.items()} for kind, times in marks.items()}


class _DeviceClock:
    """Of the kernels that are launched; host times would be those of launches."""

    @staticmethod
    def now():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @staticmethod
    def seconds(begin, end, marks):
        end.synchronize()

        def since(event):
            return begin.elapsed_time(event) * 1e-3

        return 0.0, since(end), {kind: {i: since(e) for i, e in events.items()} for kind, events in marks.items()}


def _share(value, values):
    total = sum(values)
    return value / total if total > 0 else 0.0


def _mean(times):
    return {key: sum(t[key] for t in times) / len(times) for key in times[0]}


# The interquartile range over the median: single outliers do not count.
def _spread(samples):
    middle = median(samples)
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle if middle > 0 else 0.0
