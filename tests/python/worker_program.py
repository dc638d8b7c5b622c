"""A program for tests of the worker: dropout, a tuple with an int64, a transposed output, a tied embedding."""

import torch
from torch import nn

import troupe

failures = {}  # {layer's name: what it raises}


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(11, 8))

    def forward(self, tokens):
        return nn.functional.embedding(tokens, self.weight), tokens


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(8, 8), nn.Dropout(0.2)

    def forward(self, both):
        x, tokens = both
        x = self.drop(torch.relu(self.linear(x)))
        return x.transpose(1, 2).contiguous().transpose(1, 2), tokens


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(11, 8))

    def forward(self, both):
        return both[0] @ self.weight.t()


class Raises(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, both):
        if self.how == "memory":
            raise MemoryError("no more")
        return both[0] @ both[0], both[1]  # shapes do not fit


def model(raises=""):
    return [troupe.Layer(First, tied="tokens"), troupe.Layer(Mixed), troupe.Layer(Mixed),
            *([troupe.Layer(Raises, raises)] if raises else []), troupe.Layer(Last, tied="tokens")]


def loss(output, target):
    return (nn.functional.cross_entropy(output.flatten(0, 1), target.flatten()),
            {"right": (float((output.argmax(-1) == target).sum()), float(target.numel()))})


class Data:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        row = torch.tensor([(i * k + 3) % 11 for k in range(6)])
        return row[:-1], row[1:]


def dataset(split="train"):
    return Data()


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)
