"""A program's file trained in plain PyTorch: a loop with nothing of Troupe's but the seeds and the order of data.

    plain_loop.py FILE.py --arguments JSON --batch 16 --microbatches 4 --iterations 4 --seed 3 [--out STATE.pt]

Prints {"losses", "norms", "seconds"}: the gradients' norms before they are clipped, where the file has `clip_norm`, and
each iteration's time. STATE.pt gets weights, buffers and the optimizer's state, by the names that checkpoints have.
"""

import argparse
import importlib.util
import inspect
import json
import os
import sys
import time

import torch
from troupe.order import samples
from troupe.seeds import seed_of


class Loop:
    def __init__(self, path, arguments, seed, rows, microbatches):
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        spec = importlib.util.spec_from_file_location("program", path)
        self.file = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.file)
        self.seed, self.rows, self.microbatches = seed, rows, microbatches
        self.clip_norm = getattr(self.file, "clip_norm", None)

        def call(name, *values):
            function = getattr(self.file, name)
            named = inspect.signature(function).parameters
            return function(*values, **{k: v for k, v in arguments.items() if k in named})

        self.dataset = call("dataset")
        specified = list(call("model"))
        self.layers = torch.nn.Sequential(*map(self._built, range(len(specified)), specified))
        self._tie(specified)
        self.trained = [p for p in self.layers.parameters() if p.requires_grad]
        self.optimizer = call("optimizer", self.trained)
        self.schedule = call("schedule", self.optimizer) if hasattr(self.file, "schedule") else None
        for p in self.trained:
            p.grad = torch.zeros_like(p)

    def iteration(self, n):
        """Its loss, and the norm of its gradients if they are clipped."""
        total, batch = 0.0, self.rows * self.microbatches
        for m in range(self.microbatches):
            picked = samples(n * batch + m * self.rows, self.rows, len(self.dataset), self.seed)
            value, target = stacked([self.dataset[i] for i in picked])
            for i, layer in enumerate(self.layers):
                torch.manual_seed(seed_of(self.seed, n, m, i))
                value = layer(value)
            torch.manual_seed(seed_of(self.seed, n, m, len(self.layers)))
            loss = self.file.loss(value, target)
            loss.backward()
            total += loss.item()
        for p in self.trained:
            p.grad.mul_(1 / self.microbatches)
        norm = float(torch.nn.utils.clip_grad_norm_(self.trained, self.clip_norm)) if self.clip_norm else None
        self.optimizer.step()
        if self.schedule:
            self.schedule.step()
        self.optimizer.zero_grad(set_to_none=False)
        return total / self.microbatches, norm

    def state(self):
        names = {id(p): name for name, p in self.layers.named_parameters()}
        found = dict(self.layers.named_parameters())
        found.update((f"buffer/{name}", b) for name, b in self.layers.named_buffers())
        found.update((f"optim/{key}/{names[id(p)]}", value) for p, values in self.optimizer.state.items()
                     for key, value in values.items() if isinstance(value, torch.Tensor))
        return {name: t.detach().clone() for name, t in found.items()}

    def _built(self, i, layer):
        if isinstance(layer, torch.nn.Module):
            return layer
        torch.manual_seed(seed_of(self.seed, "init", i))
        return layer.make(*layer.args, **layer.kwargs)

    def _tie(self, specified):
        firsts = {}
        for module, layer in zip(self.layers, specified):
            if getattr(layer, "tied", None):
                text, name = layer.tied
                setattr(module, name, firsts.setdefault(text, getattr(module, name)))


def stacked(values):
    if isinstance(values[0], tuple):
        return tuple(map(stacked, zip(*values)))
    return torch.stack([torch.as_tensor(x) for x in values])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--arguments", type=json.loads, default={})
    parser.add_argument("--out")
    for name in ("batch", "microbatches", "iterations", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    o = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    loop = Loop(o.file, o.arguments, o.seed, o.batch // o.microbatches, o.microbatches)
    losses, norms, seconds = [], [], []
    for n in range(o.iterations):
        began = time.perf_counter()
        loss, norm = loop.iteration(n)
        seconds.append(time.perf_counter() - began)
        losses.append(loss)
        norms.append(norm)
    if o.out:
        torch.save(loop.state(), o.out)
    print(json.dumps({"losses": losses, "norms": norms, "seconds": seconds}))


if __name__ == "__main__":
    main()
