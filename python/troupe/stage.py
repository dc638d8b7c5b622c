"""The computation of one pipeline stage: consecutive layers of a program's model, on one device.

Between layers, and so between stages, passes a tensor or a tuple of two or more tensors. Here they are always tuples of
tensors, and a tensor's `requires_grad` says whether a gradient will come back for it: an output of one stage can be the
input of the next as it is. No tensor that a stage returns is part of a graph.

Iterations and micro-batches count from 0; `microbatch` is the number within this stage's pipeline.
"""


class Stage:
    """Layers `first` to `first + count - 1` of `program` (troupe.model_file.Program), one member of a worker.

    After the constructor (which builds the layers, and needs no lease): layers, names, own_parameters, tied_parameters
    (32-bit numbers in the gradients' buffers), parameter_bytes and buffer_bytes by layer, optimizer_state_bytes,
    has_gradients, needs_norm, is_first, is_last. start() comes before all else.

    recompute: "none", "stage" (forward with keep=False, later recompute) or "layers" (each layer's input is kept, and
    backward recomputes layer by layer; keep is ignored, and recompute does nothing).
    """

    def __init__(self, program, first=0, count=None, *, seed=0, rows=1, microbatches=1, pipelines=1, pipeline=0,
                 recompute="none", device="cpu", precision=None):
        """Raises ProgramError for what cannot be run, LayerError for what a layer raises while it is built."""

    def start(self, own=None, tied=None):
        """Makes the optimizer, and the gradients as views of flat 32-bit host tensors of own_parameters and
        tied_parameters numbers (torch.frombuffer over shared memory; None: of this process), which are zeroed."""

    def forward(self, iteration, microbatch, inputs=None, keep=True, evaluate=False):
        """An Output(tensors, loss, values). inputs: a tuple of tensors, None at the first stage. They may be views of
        shared memory, which must stay as it is until the micro-batch's backward (with evaluate: until the call returns).

        At the last stage `tensors` is () and `loss` a float: the mean over the micro-batch's samples, or with the
        program's weights what makes the mean over all micro-batches the weighted one; `values` is {name: (sum, weight)}.
        Elsewhere loss is None and values {}. evaluate: held-out data, no gradients, nothing is kept or changed.
        Raises NotFinite for a loss that is not finite, unless precision is fp16."""

    def recompute(self, iteration, microbatch):
        """Restores what backward needs after a forward with keep=False; no effect if it was kept."""

    def backward(self, iteration, microbatch, gradients=()):
        """Adds to the gradients. `gradients`: one tensor for each output that requires_grad, in their order; () at the
        last stage. Returns a tuple with one dense tensor for each input that requires_grad: () for none of them."""

    def gradients(self):
        """(own, tied): the flat host tensors of start(), with the sums over all backwards since the last update. A model's
        only stage has added the tied parameters' two gradients, the first layer's first. Sums over pipelines, and the
        other stage's tied ones, are written into them before squared_norms() and update()."""

    def squared_norms(self):
        """A list with one float for each of this stage's layers: the sum of the squares of its gradients, not scaled,
        in double. A tied parameter counts in its first layer."""

    def update(self, squared_norm=None, scale=None):
        """True if the weights were updated; False if the norm was not finite, which skips the update. Either way the
        gradients are zero afterwards.

        squared_norm: the sum of all stages' squared_norms() in the order of layers; required if needs_norm (clip_norm
        or fp16). scale: None for the program's own: 1 / (micro-batches of all pipelines), or 1 with weights."""

    def copy(self, iteration):
        """A Copy (troupe.checkpoint) of weights, buffers and optimizer state in the host's memory, after `iteration`
        updates: the stage may go on at once. Its write(directory, lease=0) returns the names of the files, durable."""

    def load(self, directory, files=None):
        """Reads this stage's layers of a checkpoint written by any stages; returns its iteration. files: names in the
        directory; None: those of its index, or all. Raises ProgramError with the first difference to the program."""

    def weights(self):
        """(own, tied): the parameters as flat 32-bit host tensors, in the order of the gradients. For tests."""

    def peak_bytes(self):
        """The largest memory so far: the device's, on a CPU the process's (VmHWM)."""
