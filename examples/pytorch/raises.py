"""A layer that raises in its third iteration: the job fails with the layer, the exception and its line, and the traceback is
in `troupe logs`."""

import torch
import troupe
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.calls = nn.Linear(width, width), 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 8:  # of four micro-batches an iteration
            x = x[:, 1:]
        return torch.relu(self.linear(x))


def model(width=16):
    return [troupe.Layer(nn.Linear, width, width), troupe.Layer(Block, width), troupe.Layer(nn.Linear, width, 1)]


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
