"""A program for bench_profile: twelve layers of many elementwise operations and no products, and twelve of products that take
less than half of their time. Equal numbers of layers, and equal FLOPs, make uneven stages."""

import torch
from torch import nn

import troupe

SEQUENCE, HIDDEN = 128, 256


class Smooth(nn.Module):
    def __init__(self, times):
        super().__init__()
        self.times, self.scale = times, nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        x = x * self.scale
        for _ in range(self.times):
            x = torch.tanh(x)
        return x


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, inner), nn.Linear(inner, HIDDEN)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def model(times=16, inner=32):
    return [*[troupe.Layer(Smooth, times) for _ in range(12)], *[troupe.Layer(Block, inner) for _ in range(12)]]


def loss(output, target):
    return ((output - target) ** 2).mean()


class Noise:
    """Made in advance: what a sample takes to load is not in the times of layers."""

    def __init__(self, kinds=64):
        self.kinds = torch.randn(kinds, SEQUENCE, HIDDEN, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        noise = self.kinds[i % len(self.kinds)]
        return noise, noise.flip(0)


def dataset():
    return Noise()


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4)
