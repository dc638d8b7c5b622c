"""Layers of many kinds: a tuple with whole numbers between them, dropout, batch norm, an output that is transposed and one
that is expanded, an in-place layer, frozen and unused parameters, buffers that the output depends on, a loss that drops."""

import torch
import troupe
from torch import nn


class Entrance(nn.Module):
    def __init__(self, vocabulary, hidden):
        super().__init__()
        self.table = nn.Embedding(vocabulary, hidden)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, given):
        tokens, features = given
        return self.table(tokens) + features[..., None], tokens


class Mixing(nn.Module):
    """Passes its second tensor through, and rolls a buffer that its output depends on."""

    def __init__(self, hidden):
        super().__init__()
        self.linear, self.dropout = nn.Linear(hidden, hidden), nn.Dropout(0.3)
        self.frozen = nn.Parameter(torch.randn(hidden), requires_grad=False)
        self.register_buffer("factors", torch.tensor([1.0, 1.25, 0.75]))

    def forward(self, given):
        x, tokens = given
        self.factors = self.factors.roll(1)
        x = x + self.dropout(torch.tanh(self.linear(x) * self.factors[0] + self.frozen))
        return x * (tokens[..., None] % 2 + 1), tokens


class Norm(nn.Module):
    """Returns a transposed view, and one of which each element is many."""

    def __init__(self, hidden):
        super().__init__()
        self.norm, self.shift = nn.BatchNorm1d(hidden), nn.Parameter(torch.zeros(1, 1, hidden))

    def forward(self, given):
        x, tokens = given
        return self.norm(x.transpose(1, 2)).transpose(1, 2), self.shift.expand(x.shape)


class Sum(nn.Module):
    def forward(self, given):
        return given[0] + given[1]


class Exit(nn.Module):
    def __init__(self, hidden, vocabulary):
        super().__init__()
        self.dropout, self.linear = nn.Dropout(0.2), nn.Linear(hidden, vocabulary)

    def forward(self, x):
        return self.linear(self.dropout(x))


def model(hidden=12):
    return [troupe.Layer(Entrance, 19, hidden), troupe.Layer(Mixing, hidden), troupe.Layer(Norm, hidden),
            troupe.Layer(Sum), nn.ReLU(inplace=True), troupe.Layer(Exit, hidden, 19)]


def loss(output, target):
    return nn.functional.cross_entropy(nn.functional.dropout(output, 0.1).transpose(1, 2), target)


class Numbers:
    def __len__(self):
        return 50

    def __getitem__(self, i):
        tokens = torch.tensor([(i * k + k * k) % 19 for k in range(1, 8)])
        return (tokens, tokens / 19), (tokens * 3 + 1) % 19


def dataset():
    return Numbers()


def optimizer(parameters):
    return torch.optim.AdamW(troupe.no_decay(parameters, 0.1), lr=0.01)


def schedule(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=50)
