"""A program whose layers take a chosen time, for bench_pytorch; by itself, the same layers in a plain PyTorch loop.

    worker_step.py COUNT INNER      a step for each line of the standard input; prints its wall and processor time in ms
"""

import os
import sys
import time

# As a node does for a worker: a BLAS reads it when it is loaded, and ignores torch.set_num_threads().
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import torch
from torch import nn

ROWS, SEQUENCE, HIDDEN = 8, 64, 512  # 1 MiB


class Last(nn.Module):
    def forward(self, x):
        return x


class First(nn.Module):
    """Learns, so that a gradient is computed for the first block's input, too: all blocks do the same work."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x):
        return x + self.bias


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, inner), nn.Linear(inner, HIDDEN)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def model(count, inner):
    import troupe

    return [troupe.Layer(First), *[troupe.Layer(Block, inner) for _ in range(count)], troupe.Layer(Last)]


def loss(output, target):
    return output.mean()


class Data:
    def __len__(self):
        return 1024

    def __getitem__(self, i):
        return torch.full((SEQUENCE, HIDDEN), 1 / (1 + i)), torch.zeros(1)


def dataset():
    return Data()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1e-6)


def plain(count, inner):
    torch.set_num_threads(1)
    layers = nn.Sequential(*[Block(inner) for _ in range(count)])
    update = optimizer(layers.parameters())
    x = torch.full((ROWS, SEQUENCE, HIDDEN), 0.5, requires_grad=True)
    gradient = torch.full_like(x, 1e-3)
    for _ in sys.stdin:
        began, cpu = time.perf_counter(), time.process_time()
        output = layers(x)
        output.backward(gradient)
        update.step()
        update.zero_grad(set_to_none=False)
        x.grad = None
        print((time.perf_counter() - began) * 1e3, (time.process_time() - cpu) * 1e3, flush=True)


if __name__ == "__main__":
    plain(int(sys.argv[1]), int(sys.argv[2]))
