"""examples/pytorch/gpt.py, whose workers wait at gates: there bench_pipelines kills them, their keepers or their nodes.

A gate is a file KIND-ITERATION-PLACE in the folder `gates`. The worker that comes by takes it, by a new name,
reached-KIND-ITERATION-PLACE-PROCESS, and waits there until that is removed. Places are a layer and a number. forward:
the call within the iteration, recomputation included; update: 0 before the optimizer's step, 1 after it; save: 0 before
the layer's file is durable, 1 before it has its name. A worker's first forward leaves a file
begin-PROCESS-ITERATION-NEWEST with the newest complete checkpoint.
"""

import os
import re
import sys
import time

import torch
import troupe
from troupe.layers import checkpoint

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "pytorch"))

import gpt  # noqa: E402
from gpt import clip_norm, dataset, loss, precision  # noqa: E402

__all__ = ["clip_norm", "dataset", "loss", "precision"]

folder = saved = ""
optimizers = {}  # by the identity of their parameters
in_worker = "TROUPE_WORKER_SOCKET" in os.environ
replace, fsync = os.replace, os.fsync


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


class Layer:
    """Gates of one layer's forwards."""

    def __init__(self, index):
        self.index, self.iteration, self.calls = index, None, 0

    def __call__(self, module, _):
        owner = next((optimizers[id(p)] for p in module.parameters() if id(p) in optimizers), None)
        if owner is None:
            return
        iteration = owner.troupe_schedule.last_epoch
        if self.iteration is None:
            begin(iteration)
        if iteration != self.iteration:
            self.iteration, self.calls = iteration, 0
        gate("forward", iteration, self.index, self.calls)
        self.calls += 1


def begin(iteration):
    found = checkpoint.newest(saved)
    newest = 0 if found is None else int(found.rsplit("-", 1)[1])
    with open(os.path.join(folder, f"begin-{os.getpid()}-{iteration}-{newest}"), "w"):
        pass


def gated(index, make, *arguments):
    module = make(*arguments)
    if in_worker:
        module.register_forward_pre_hook(Layer(index))
    return module


def model(layers=4, hidden=64, heads=4, sequence=64, dropout=0.1, gates="", saves=""):
    global folder, saved
    folder, saved = gates, saves
    found = gpt.model(layers, hidden, heads, sequence, dropout)
    return [troupe.Layer(gated, i, x.make, *x.args, tied=x.tied) for i, x in enumerate(found)]


class Optimizer(torch.optim.AdamW):
    def step(self, closure=None):
        iteration = self.troupe_schedule.last_epoch
        for layer in self.troupe_layers if in_worker else ():
            gate("update", iteration, layer, 0)
        super().step(closure)
        for layer in self.troupe_layers if in_worker else ():
            gate("update", iteration, layer, 1)


def optimizer(parameters, rate=1e-3):
    made = gpt.optimizer(parameters, rate)
    made.__class__ = Optimizer
    made.troupe_layers = sorted({int(name.split(".")[0]) for name, _ in parameters.named()})
    optimizers.update((id(p), made) for p in parameters)
    return made


def schedule(optimizer, warmup=20):
    optimizer.troupe_schedule = gpt.schedule(optimizer, warmup)
    return optimizer.troupe_schedule


def at_file(path, at):
    found = re.search(r"iteration-(\d+)/layer-(\d+)[^/]*$", path)
    if found:
        gate("save", int(found[1]), int(found[2]), at)


def gated_fsync(descriptor):
    at_file(os.readlink(f"/proc/self/fd/{descriptor}"), 0)
    fsync(descriptor)


def gated_replace(source, target):
    at_file(str(target), 1)
    replace(source, target)


if in_worker:
    os.fsync, os.replace = gated_fsync, gated_replace
