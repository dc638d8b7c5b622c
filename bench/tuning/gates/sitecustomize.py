"""Workers of `bench_tuning.py resume` wait at gates, where they are killed. Python imports this module of itself: the folder is in
PYTHONPATH.

A gate is a file KIND-ITERATION-PLACE in the folder $TUNING_GATES. The worker that comes by takes it, by a new name,
reached-KIND-ITERATION-PLACE-PROCESS, and waits there until that is removed. Places are a layer and a number. forward,
evaluation: the micro-batch; update: 0 before the optimizer's step, 1 after it; save: 0 before the layer's part of a checkpoint is
written into memory, 1 after it: its node writes the durable file from there. $TUNING_FAULT: a fault to plant.

$TUNING_MARKS: cpu or memory. A line "ITERATION FIGURE" in the file `marks` of that folder, when an iteration begins: the seconds of
processor time that it and its node have used so far, or the bytes by which this process has grown since it has
trained a small model (PSS without shared libraries, the largest since the iteration before began). `marks-used` has the same without
memory that the allocator has and nobody uses.
"""

import ctypes
import os
import time

folder, fault = os.environ.get("TUNING_GATES", ""), os.environ.get("TUNING_FAULT", "")
marks = os.environ.get("TUNING_MARKS", "")


def gate(kind, iteration, layer, at):
    place = f"{kind}-{iteration}-{layer}.{at}"
    reached = os.path.join(folder, f"reached-{place}-{os.getpid()}")
    try:
        os.rename(os.path.join(folder, place), reached)
    except FileNotFoundError:
        return
    end = time.monotonic() + 60
    while os.path.exists(reached):
        if time.monotonic() > end:
            raise TimeoutError(f"{reached}: nobody has opened it")
        time.sleep(0.0005)


def gated_stage():
    from troupe.layers.stage import Stage

    forward, update = Stage.forward, Stage.update

    def gated_forward(self, iteration, microbatch, *given, evaluate=False, **more):
        # An evaluation has the number of no iteration: it is behind an update.
        kind, number = ("evaluation", self.tuning_update) if evaluate else ("forward", iteration)
        for layer in self.layers:
            gate(kind, number, layer.index, microbatch)
        return forward(self, iteration, microbatch, *given, evaluate=evaluate, **more)

    def gated_update(self, *given, **more):
        number = self._iteration
        for layer in self.layers:
            gate("update", number, layer.index, 0)
        found = update(self, *given, **more)
        for layer in self.layers:
            gate("update", number, layer.index, 1)
        self.tuning_update = number + 1
        return found

    Stage.forward, Stage.update = gated_forward, gated_update


# -- marks

def mark(iteration, figure, name="marks"):
    with open(os.path.join(folder, name), "a") as file:
        file.write(f"{iteration} {figure}\n")


class Cpu:
    """Of this worker and its node: the processes above it that have this folder in their environment, but for the outermost, which has
    started the training and runs no part of it."""

    def __init__(self):
        self.processes, pid = [], os.getpid()
        while pid > 1 and f"TUNING_GATES={folder}\0".encode() in read(pid, "environ"):
            self.processes.append(pid)
            pid = int(read(pid, "stat").rsplit(b")", 1)[1].split()[1])
        self.processes.pop()

    def seconds(self):
        return sum(self.of(pid) for pid in self.processes) / 1e9

    @staticmethod
    def of(pid):
        total = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        return total


def read(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def pss():
    """Of all but shared libraries: their part changes with whoever else on the machine has them mapped. Gradients in memory that the
    node has mapped, too, count whole."""
    total, counted = 0, ""
    with open("/proc/self/smaps") as file:
        for line in file:
            words = line.split()
            if "-" in words[0]:
                library = len(words) > 5 and ".so" in os.path.basename(words[5])
                counted = "" if library else "Rss:" if words[1].endswith("s") else "Pss:"
            elif words[0] == counted:
                total += int(words[1]) << 10
    return total


def free_in_heaps():
    """Bytes that the C library's allocator has and nobody uses: what small tensors leave between others."""
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()

    class Info(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in names]

    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Info
    return ask().fordblks


def small_training():
    """PyTorch and a BLAS read and allocate much of their own with their first products, gradients and updates."""
    import torch
    from torch.nn import functional as F

    w, tokens = torch.nn.Parameter(torch.ones(64, 64)), torch.arange(64).view(1, 64)
    x = F.silu(F.linear(F.embedding(tokens, w), w)) * torch.rsqrt(w.pow(2).mean(-1, keepdim=True) + 1)
    x = torch.softmax((x @ x.transpose(-2, -1)).masked_fill(tokens[0, :, None] < tokens[0], float("-inf")), dim=-1) @ x
    F.cross_entropy(x.view(64, 64), tokens.view(64), reduction="sum").backward()
    torch.optim.AdamW([w], lr=1e-3).step()


def marked_stage():
    from troupe.layers.stage import Stage

    forward, backward, update = Stage.forward, Stage.backward, Stage.update
    small_training()
    cpu, largest = Cpu(), [0, 0]
    before, used_before = pss(), pss() - free_in_heaps()

    def seen():
        if marks == "memory":
            now = pss()
            largest[:] = max(largest[0], now - before), max(largest[1], now - free_in_heaps() - used_before)

    def marked_forward(self, iteration, microbatch, *given, evaluate=False, **more):
        if microbatch == 0 and not evaluate:
            mark(iteration, cpu.seconds() if marks == "cpu" else largest[0])
            mark(iteration, largest[1], "marks-used")
            largest[:] = 0, 0
        found = forward(self, iteration, microbatch, *given, evaluate=evaluate, **more)
        seen()
        return found

    def then_seen(call):
        def called(self, *given, **more):
            found = call(self, *given, **more)
            seen()
            return found
        return called

    Stage.forward, Stage.backward, Stage.update = marked_forward, then_seen(backward), then_seen(update)


def gated_copies():
    from troupe.layers.checkpoint import Copy

    write = Copy._write

    def gated_write(self, directory, state, lease):
        gate("save", self.iteration, state.layer, 0)
        found = write(self, directory, state, lease)
        gate("save", self.iteration, state.layer, 1)
        return found

    Copy._write = gated_write


# -- faults

def plant_moments_lost():
    """A training that is resumed begins with an optimizer that knows nothing."""
    from troupe.layers import updates

    updates.Updates.restore = lambda self, found: []


def plant_held_rows_twice():
    """The last held-out micro-batch is filled up with rows of the first."""
    from troupe.layers import data

    indices = data.Batches.indices

    def wrapped(self, iteration, microbatch=None):
        found = indices(self, iteration, microbatch)
        return found if self._split == "train" else (found + list(range(self._rows)))[:self._rows]

    data.Batches.indices = wrapped


def plant_gradients_of_base():
    """Weights that are not trained get gradients, which nothing reads."""
    from troupe.models import tuned

    parameter = tuned.TunedWeights.parameter

    def wanting(self, name, shape):
        found = parameter(self, name, shape)
        if not found.requires_grad:
            del found.troupe_frozen
        return found.requires_grad_()

    tuned.TunedWeights.parameter = wanting


if folder and "TROUPE_WORKER_SOCKET" in os.environ:
    marked_stage() if marks else gated_stage()
    gated_copies()
    if fault:
        globals()["plant_" + fault]()
