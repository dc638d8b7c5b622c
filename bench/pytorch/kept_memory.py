"""Bytes that a forward keeps for its backward, as `troupe describe` predicts them, beside the growth of what this process has
allocated (glibc's mallinfo2, which knows nothing of PyTorch), for five kinds of layers: bench_pytorch memory.

    kept_memory.py          a JSON object
"""

import ctypes
import gc
import json
import os
import sys
import tempfile

ROWS = 16

common = """
import math, torch, troupe
from torch import nn
from torch.nn import functional as F
def optimizer(parameters): return torch.optim.SGD(parameters, lr=1e-3)
class Data:
    def __len__(self): return 1024
    def __getitem__(self, i): return sample(torch.Generator().manual_seed(i))
def dataset(): return Data()
"""

kinds = {
    "linear": """
class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
    def forward(self, x): return x + self.down(F.gelu(self.up(x)))
def model(): return [troupe.Layer(Block, 256) for _ in range(4)]
def sample(g): return torch.randn(64, 256, generator=g), torch.randn(64, 256, generator=g)
def loss(output, target): return F.mse_loss(output, target)
""",
    "convolution": """
class Block(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer)
    def forward(self, x): return F.relu(self.norm(self.conv(x)))
def model(): return [troupe.Layer(Block, 3, 16), *[troupe.Layer(Block, 16, 16) for _ in range(3)], nn.MaxPool2d(2),
                     troupe.Layer(Block, 16, 32), nn.Flatten(), troupe.Layer(nn.Linear, 32 * 256, 10)]
def sample(g): return torch.randn(3, 32, 32, generator=g), torch.randint(10, (), generator=g)
def loss(output, target): return F.cross_entropy(output, target)
""",
    "attention": """
class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
    def forward(self, x):
        rows, length, hidden = x.shape
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).split(hidden, 2))
        weights = F.dropout((q @ k.transpose(-2, -1) / math.sqrt(hidden)).softmax(-1), 0.1, self.training)
        return x + F.dropout(self.out((weights @ v).transpose(1, 2).reshape(rows, length, hidden)), 0.1, self.training)
def model(): return [troupe.Layer(Block, 128, 4) for _ in range(4)]
def sample(g): return torch.randn(64, 128, generator=g), torch.randn(64, 128, generator=g)
def loss(output, target): return F.mse_loss(output, target)
""",
    "tied": """
class Head(nn.Module):
    def __init__(self, words, hidden):
        super().__init__()
        self.norm, self.weight = nn.LayerNorm(hidden), nn.Parameter(torch.zeros(words, hidden))
    def forward(self, x): return F.linear(self.norm(x), self.weight)
def model(): return [troupe.Layer(nn.Embedding, 1000, 128, tied="words"), troupe.Layer(nn.LayerNorm, 128), nn.GELU(),
                     troupe.Layer(Head, 1000, 128, tied="words")]
def sample(g):
    words = torch.randint(1000, (65,), generator=g)
    return words[:-1], words[1:]
def loss(output, target): return F.cross_entropy(output.flatten(0, 1), target.flatten())
""",
    "tuple": """
class Split(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.left, self.right = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
    def forward(self, x): return torch.tanh(self.left(x)), torch.sigmoid(self.right(x)), (x > 0)
class Mix(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.inner = nn.Linear(hidden, hidden)
    def forward(self, value):
        a, b, mask = value
        return F.gelu(self.inner(a)), a * b, mask
class Join(nn.Module):
    def forward(self, value):
        a, b, mask = value
        return torch.where(mask, a, b)
def model(): return [troupe.Layer(Split, 256), *[troupe.Layer(Mix, 256) for _ in range(3)], troupe.Layer(Join)]
def sample(g): return torch.randn(64, 256, generator=g), torch.randn(64, 256, generator=g)
def loss(output, target): return F.mse_loss(output, target)
""",
}


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


_libc = ctypes.CDLL(None)
_libc.mallinfo2.restype = _Mallinfo2


def allocated():
    gc.collect()
    found = _libc.mallinfo2()
    return found.uordblks + found.hblkhd  # on the heap, and mapped for itself


def grown(call):
    """Bytes that are allocated beside before, as long as call()'s result is alive."""
    before = allocated()
    result = call()
    return allocated() - before, result


def predicted(found, recompute):
    """Bytes of a micro-batch of a model's only stage, after its forward."""
    layers = found["layers"]
    if recompute == "none":
        return ROWS * (sum(x["kept_bytes"] for x in layers) + found["loss_kept_bytes"]) + sum(x["cast_bytes"] for x in layers)
    # The stage's input is the data set's, which is there anyway.
    return ROWS * sum(x["output_bytes"] for x in layers[:-1]) if recompute == "layers" else 0


def measured(program, recompute):
    from troupe.layers.stage import Stage

    stage = Stage(program, rows=ROWS, microbatches=1, recompute=recompute)
    stage.start()
    for iteration in range(2):  # state, caches and the reading ahead of data are there afterwards
        _forward(stage, iteration, recompute)
        stage.backward(iteration, 0)
        stage.update(*([sum(stage.squared_norms())] if stage.needs_norm else []))
    bytes_, _ = grown(lambda: _forward(stage, 2, recompute))
    return bytes_


def _forward(stage, iteration, recompute):
    stage.forward(iteration, 0, keep=recompute == "none")
    stage._batches["train"]._ahead[1].result()  # the next micro-batch is in memory, as before


def main():
    import torch

    from troupe.describe import describe
    from troupe.layers.model_file import Program

    torch.set_num_threads(1)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, text in kinds.items():
            path = os.path.join(folder, f"{kind}.py")
            with open(path, "w") as file:
                file.write(common + text)
            description = describe(path)
            if description["refusals"]:
                raise SystemExit(description["refusals"][0])
            for recompute in ("none", "layers", "stage"):
                found.append({"kind": kind, "recompute": recompute, "predicted_bytes": predicted(description, recompute),
                              "measured_bytes": measured(Program(path), recompute)})
    for x in found:
        x["ratio"] = round(x["predicted_bytes"] / x["measured_bytes"], 4) if x["predicted_bytes"] else None
    worst = max(abs(x["ratio"] - 1) for x in found if x["recompute"] == "none")
    print(json.dumps({"rows": ROWS, "worst": round(worst, 4), "kinds": found}))
    return 0 if worst <= 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
