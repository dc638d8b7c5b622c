"""The computation of one pipeline stage: consecutive layers of a program's model, on one device.

Between layers, and so between stages, passes a tensor or a tuple of two or more tensors. Here they are always tuples of
tensors, and a tensor's `requires_grad` says whether a gradient will come back for it: an output of one stage can be the
input of the next as it is. No tensor that a stage returns is part of a graph.

Iterations and micro-batches count from 0; `microbatch` is the number within this stage's pipeline. A stage can compute other
pipelines' micro-batches, too, one pipeline after the other: their `number` over all pipelines says what is read and drawn.
"""

import contextlib
import math
from collections import namedtuple

import torch

from troupe.layers.boundary import mapped
from troupe.layers.checkpoint import Checkpoint, Copy
from troupe.layers.data import Batches, Samples
from troupe.errors import ProgramError
from troupe.layers.gradients import Gradients, in_memory
from troupe.layers.loss import Loss
from troupe.layers.precision import LossScale, autocast
from troupe.layers.randomness import Generators, own_generators
from troupe.layers.segment import Segment
from troupe.seeds import seed_of
from troupe.layers.stage_state import StageState
from troupe.layers.updates import Updates

Output = namedtuple("Output", "tensors loss values")

_recomputes = ("none", "stage", "layers")


class Stage:
    """Layers `first` to `first + count - 1` of `program` (troupe.model_file.Program), one stage of a worker.

    After the constructor (which builds the layers, and needs no lease): layers, names, own_parameters, tied_parameters
    (32-bit numbers in the gradients' buffers), parameter_bytes and buffer_bytes by layer, has_gradients, needs_norm,
    is_first, is_last. start() comes before all else.

    recompute: "none", "stage" (forward with keep=False, later recompute) or "layers" (each layer's input is kept, and
    backward recomputes layer by layer; keep is ignored, and recompute does nothing).
    """

    def __init__(self, program, first=0, count=None, *, seed=0, rows=1, microbatches=1, pipelines=1, pipeline=0,
                 share=None, recompute="none", device="cpu", precision=None):
        """share: (the number of this pipeline's first micro-batch, that of all pipelines' micro-batches), where pipelines
        have unequal numbers. Raises ProgramError for what cannot be run, LayerError for what a layer raises while it is built."""
        if recompute not in _recomputes:
            raise ProgramError(f"recompute: found {recompute!r}, expected {', '.join(_recomputes)}")
        self._program, self._seed, self._device, self._recompute = program, seed, torch.device(device), recompute
        self._first_microbatch, self._all_microbatches = share or (pipeline * microbatches, microbatches * pipelines)
        self._turn = pipeline, pipelines
        self._batch = {"seed": seed, "rows": rows, "microbatches": microbatches,
                       "share": (self._first_microbatch, self._all_microbatches), "turn": self._turn}
        self._samples = Samples(seed, rows * self._all_microbatches)
        self._batches = {}
        precision = precision or program.precision
        self._autocast = autocast(precision, device)
        self._scale = LossScale(precision)
        self._loss = Loss(program, self._autocast, self._all_microbatches)
        model = program.layers(seed)
        count = len(model) - first if count is None else count
        self._model_tied, self._count = model.tied, len(model)
        self.layers = model.build(first, count, seed, device)
        self.is_first, self.is_last = first == 0, first + count == len(model)
        self._state = StageState(program, model, self.layers)
        self._gradients = Gradients(self._state.own, self._state.tied, self._state.twin, device, summed=pipelines > 1)
        self.names = [layer.name for layer in self.layers]
        self.own_parameters = self._gradients.own_parameters
        self.tied_parameters = self._gradients.tied_parameters
        self.parameter_bytes, self.buffer_bytes = self._state.parameter_bytes, self._state.buffer_bytes
        self.has_gradients = bool(self._state.trainable)
        self.needs_norm = program.clip_norm is not None or self._scale.changes
        self._generators = Generators(device, program.own_generators)
        self._layer_generators = {x.index: self._generators.with_own(own_generators(x.module)) for x in self.layers}
        self._segments = [Segment(part, self._autocast, self._seed_layer, self._watched(part)) for part in self._parts(model)]
        self._model_layers = len(model)
        self._kept, self._iteration = {}, 0
        self._begun = None  # buffers at the begin of an iteration
        self._optimizer = self._probed = None
        self.notes = []

    @property
    def optimizer_state_bytes(self):
        """Found by a step with copies of the parameters, one layer at a time."""
        return self._probe()[0]

    def _probe(self):
        if self._probed is None:
            self._probed = self._state.probe()
        return self._probed

    def start(self, own=None, tied=None):
        """Makes the optimizer, and the gradients as views of flat 32-bit host tensors of own_parameters and
        tied_parameters numbers (torch.frombuffer over shared memory; None: of this process), which are zeroed."""
        self._gradients.start(own, tied)
        if self.has_gradients:
            self._optimizer = Updates(self._program, self._state.trainable, self._seed, self._generators, self._probe()[1])
        for split in ("train",) if self.is_first or self.is_last else ():
            self._data(split)

    def forward(self, iteration, microbatch, inputs=None, keep=True, evaluate=False, number=None):
        """An Output(tensors, loss, values). number: of the micro-batch over all pipelines, or with evaluate of the held-out
        ones; None: by this stage's own pipeline. inputs: a tuple of tensors, None at the first stage. They may be views of
        shared memory, which must stay as it is until the micro-batch's backward (with evaluate: until the call returns).

        At the last stage `tensors` is () and `loss` a float: the mean over the micro-batch's samples, or with the
        program's weights what makes the mean over all micro-batches the weighted one; `values` is {name: (sum, weight)}.
        Elsewhere loss is None and values {}. evaluate: `microbatch` of the held-out samples that this pipeline reads, no
        gradients, nothing is kept or changed; values has their loss, (sum, weight), as held_out_loss.
        Raises NotFinite for a loss that is not finite, unless precision is fp16."""
        split = "held_out" if evaluate else "train"
        number = self._number(microbatch, evaluate) if number is None else number
        if not evaluate:
            self._begin(iteration)
        target = None
        if self.is_first or self.is_last:
            given, target = self._data(split).get(iteration, number)
            inputs = [self._on_device(given)] if self.is_first else inputs
            target = self._on_device(target) if self.is_last else None
        pass_ = _Pass((self._seed, iteration, number), self._loss_of(iteration, number, target, split))
        if evaluate:
            with self._evaluating():
                tensors = self._through(pass_, inputs, evaluate=True)
        else:
            self._kept[microbatch] = pass_
            pass_.keeps = self._recompute == "none" or (self._recompute == "stage" and keep)
            tensors = self._through(pass_, inputs)
        if not self.is_last:
            return Output(tensors, None, {})
        if not evaluate and not self._scale.changes:
            self._loss.check(iteration, microbatch)
        values = self._loss.values
        if not evaluate and self._program.has_rate and number == 0:
            values = {"learning_rate": (self._program.rate(iteration), 1), **values}
        return Output((), self._loss.value, values)

    def recompute(self, iteration, microbatch):
        """Restores what backward needs after a forward with keep=False; no effect if it was kept."""
        pass_ = self._pass(iteration, microbatch)
        if not pass_.keeps and self._recompute == "stage":
            pass_.graphs = [self._again(pass_, 0)]
            pass_.keeps = True

    def backward(self, iteration, microbatch, gradients=()):
        """Adds to the gradients. `gradients`: one tensor for each output that requires_grad, in their order; () at the
        last stage. Returns a tuple with one dense tensor for each input that requires_grad: () for none of them."""
        pass_ = self._pass(iteration, microbatch)
        del self._kept[microbatch]
        if self.is_last:
            gradients = (None,) if pass_.loss_wants else ()
        for i in reversed(range(len(self._segments))):
            graph = pass_.graphs.pop() if pass_.keeps else self._again(pass_, i)
            gradients = graph.backward(gradients)
        self._gradients.after_backward()
        return gradients

    def gradients(self):
        """(own, tied): the flat host tensors of start(), with the sums over all backwards since the last update. A model's
        only stage has added the tied parameters' two gradients, the first layer's first. Sums over pipelines, and the
        other stage's tied ones, are written into them before squared_norms() and update()."""
        return self._gradients.to_hosts()

    def squared_norms(self):
        """A list with one float for each of this stage's layers: the sum of the squares of its gradients, not scaled,
        in double. A tied parameter counts in its first layer."""
        self._gradients.from_hosts()
        return self._gradients.squared_norms([layer.index for layer in self.layers])

    def squared_norm(self):
        """About the sum of squared_norms(), for a curve: in 32 bits, in less than half its time."""
        self._gradients.from_hosts()
        rough = sum(self._gradients.squared_norms([layer.index for layer in self.layers], torch.float32), 0.0)
        return rough if math.isfinite(rough) else sum(self.squared_norms(), 0.0)

    def update(self, squared_norm=None, scale=None):
        """True if the weights were updated; False if the norm was not finite, which skips the update of fp16 and raises
        NotFinite otherwise, or after too many. Either way the gradients are zero afterwards.

        squared_norm: the sum of all stages' squared_norms() from the last layer to the first; required if needs_norm
        (clip_norm or fp16). scale: None for the program's own: 1 / (micro-batches of all pipelines), or 1 with weights."""
        if squared_norm is None and self.needs_norm:
            raise ValueError("found no norm, expected the sum over all stages")
        self._gradients.from_hosts()
        factor = self.scale if scale is None else scale / self._scale.value
        norm = 0.0 if squared_norm is None else math.sqrt(squared_norm) * factor
        finite = math.isfinite(norm)
        if finite and self._optimizer is not None:
            self._gradients.multiply(factor)
            if self._program.clip_norm is not None:
                self._gradients.multiply(min(1.0, self._program.clip_norm / (norm + 1e-6)))
            self._gradients.hand_out()
            self._optimizer.step(self._iteration)
        self._gradients.zero()
        self._scale.updated(norm, self._iteration + 1)
        self._begun = None
        return finite

    @property
    def scale(self):
        """The factor that makes the sum of all gradients that of the loss' mean, with fp16's scale of the loss."""
        count = 1 if self._program.has_weights else self._all_microbatches
        return 1.0 / count / self._scale.value

    def zero_gradients(self):
        """After gradients(), whose buffers the caller has copied: backwards of another pipeline may follow. Before
        squared_norms() or update() it calls gradients() again, and writes the sums into the buffers."""
        self._gradients.zero()

    def moved_buffers(self):
        """Have passes since the last update changed buffers, as those of a BatchNorm do?"""
        return any(segment.differs(begun) for segment, begun in zip(self._segments, self._begun or ()))

    def reset(self):
        """Micro-batches in flight and gradients are forgotten, and buffers are those of the iteration's begin: as before its
        first forward, also after an operation has failed. Weights stay."""
        self._kept = {}
        self._gradients.zero()
        for segment, buffers in zip(self._segments, self._begun or ()):
            segment.restore(buffers)
        self._begun = None

    def copy(self, iteration, whole=False):
        """A Copy (troupe.checkpoint) of weights, buffers and optimizer state in the host's memory, after `iteration`
        updates: the stage may go on at once. Its write(directory, lease=0) returns the names of the files, durable.
        whole: all that load() reads, also the tied parameter of a last stage, which a checkpoint has from the first."""
        data = self._samples.about(iteration)
        return Copy(iteration, self._state.layers(self._optimizer, self._scale.state(), data, whole))

    def load(self, directory, files=None):
        """Reads this stage's layers of a checkpoint written by any stages; returns its iteration. files: names in the
        directory; None: those of its index, or all. Raises ProgramError with the first difference to the program, and for
        another seed or data set. notes: what is another than the program's file and the job say, and goes on."""
        if self.has_gradients and self._optimizer is None:
            raise ValueError("found no optimizer: start() comes before load()")
        checkpoint = Checkpoint(directory, files)
        self.notes = self._samples.resume(checkpoint)
        scale, notes = self._state.load(checkpoint, self._optimizer)
        self.notes += notes
        self._scale.restore(scale)
        self._iteration = checkpoint.iteration
        return checkpoint.iteration

    def weights(self):
        """(own, tied): the parameters as flat 32-bit host tensors, in the order of the gradients. For tests."""
        return tuple(torch.cat([torch.zeros(0), *(in_memory(p.detach()).float().cpu() for _, _, p in found)])
                     for found in (self._state.own, self._state.tied))

    def peak_bytes(self):
        """The largest memory so far: the device's, on a CPU the process's (VmHWM)."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))

    # Layers that share a parameter stay in one graph: its gradient is added once a micro-batch, however they recompute.
    def _parts(self, model):
        parts = []
        for layer in self.layers:
            if parts and (self._recompute != "layers" or not model.can_cut(layer.index)):
                parts[-1].append(layer)
            else:
                parts.append([layer])
        return parts

    def _through(self, pass_, value, evaluate=False):
        for i, segment in enumerate(self._segments):
            loss = pass_.loss if self.is_last and i + 1 == len(self._segments) else None
            buffers = None if pass_.keeps else segment.buffers()
            if evaluate:
                graph = segment.rerun(pass_.key, value, buffers, loss, evaluate)
            else:
                graph = segment.run(pass_.key, value, loss)
            if not pass_.keeps:
                pass_.inputs.append(value)
                pass_.buffers.append(buffers)
            value = tuple(t.detach().requires_grad_(t.requires_grad) for t in graph.roots)
            if pass_.keeps:
                pass_.graphs.append(graph)
            del graph  # else the memory of two segments is used at once
        pass_.loss_wants = self.is_last and value[0].requires_grad
        return value

    def _again(self, pass_, i):
        loss = pass_.loss if self.is_last and i + 1 == len(self._segments) else None
        return self._segments[i].rerun(pass_.key, pass_.inputs[i], pass_.buffers[i], loss)

    def _begin(self, iteration):
        self._iteration = iteration
        if self._begun is None and self._turn[1] > 1:  # one pipeline has no peers, and is never reset
            self._begun = [segment.buffers() for segment in self._segments]

    def _number(self, microbatch, evaluate):
        pipeline, pipelines = self._turn
        return pipeline + microbatch * pipelines if evaluate else self._first_microbatch + microbatch

    def _loss_of(self, iteration, number, target, split):
        if not self.is_last:
            return None
        batches = self._data(split)
        scale = self._scale.value

        def root(output):
            if split != "train":
                return self._loss.held_out(output, target, batches.indices(iteration, number))
            self._generators.seed(seed_of(self._seed, iteration, number, self._model_layers))
            return self._loss.root(output, target, ((split, iteration), indices), scale)

        def indices():
            self._generators.seed(seed_of(self._seed, iteration, "weights"))
            return batches.indices(iteration)

        return root

    def _pass(self, iteration, microbatch):
        pass_ = self._kept.get(microbatch)
        if pass_ is None or pass_.key[1] != iteration:
            raise ValueError(f"found no forward of iteration {iteration}, micro-batch {microbatch}")
        return pass_

    def _data(self, split):
        if split not in self._batches:
            self._batches[split] = Batches(self._program, split=split, samples=self._samples, generators=self._generators,
                                           **self._batch)
        return self._batches[split]

    def _on_device(self, value):
        return value if self._device.type == "cpu" else mapped(lambda t: t.to(self._device), value)

    def _seed_layer(self, layer, seed):
        self._layer_generators[layer.index].seed(seed)

    # A tied parameter of which two stages, or the two ends of one, have copies.
    def _watched(self, part):
        ends = {0: self._model_tied and self._model_tied[0], self._count - 1: self._model_tied and self._model_tied[1]}
        return [(layer, name, p) for layer in part for name, p in layer.module.named_parameters()
                if self._model_tied and name == ends.get(layer.index)]

    @contextlib.contextmanager
    def _evaluating(self):
        modes = [(m, m.training) for layer in self.layers for m in layer.module.modules()]
        try:
            for m, _ in modes:
                m.training = False
            with torch.no_grad():
                yield
        finally:
            for m, training in modes:
                m.training = training


class _Pass:
    """A micro-batch from its forward to its backward: graphs if it keeps them, else inputs and buffers of each segment."""

    def __init__(self, key, loss):
        self.key, self.loss = key, loss
        self.keeps, self.loss_wants = False, False
        self.graphs, self.inputs, self.buffers = [], [], []
