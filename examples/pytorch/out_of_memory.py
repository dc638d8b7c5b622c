"""A layer that needs the memory of a large GPU, whatever computes it: on a type that $TROUPE_GPU_TYPE names as small it
raises what PyTorch raises. The job's memory is then planned higher, and it runs again on a larger GPU."""

import os

import torch
import troupe
from torch import nn

small = {"T4": 16, "V100": 16, "P100": 16}  # gigabytes


class Large(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        gpu = os.environ.get("TROUPE_GPU_TYPE", "")
        if gpu in small:
            raise getattr(torch.cuda, "OutOfMemoryError", MemoryError)(
                f"CUDA out of memory. Tried to allocate 20.00 GiB (GPU 0; {small[gpu]}.00 GiB total capacity)")
        return self.linear(x)


def model(width=16):
    return [troupe.Layer(nn.Linear, width, width), troupe.Layer(Large, width), troupe.Layer(nn.Linear, width, 1)]


def loss(output, target):
    return ((output - target) ** 2).mean()


class Numbers:
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        x = torch.arange(16) * (i + 1) % 7 / 7
        return x, x.sum()[None]


def dataset():
    return Numbers()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01)
