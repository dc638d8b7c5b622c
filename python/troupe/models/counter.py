"""Random numbers of integer operations on tensors: equal with every PyTorch, on every machine."""

import math

import torch

from troupe.seeds import seed_of

_golden, _first, _second = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64


def uniform(name, count):
    """`count` doubles in [0, 1) that depend on the name and on the seed of torch's generator, which it does not change."""
    z = _signed(seed_of(torch.initial_seed(), name)) + (torch.arange(count, dtype=torch.int64) + 1) * _signed(_golden)
    z = (z ^ _shifted(z, 30)) * _signed(_first)
    z = (z ^ _shifted(z, 27)) * _signed(_second)
    return _shifted(z ^ _shifted(z, 31), 11).double() * 2.0 ** -53


def normal(name, count):
    """Normal ones, of two uniform ones each (Box and Muller)."""
    one, other = uniform(name + "/1", count), uniform(name + "/2", count)
    return torch.sqrt(-2 * torch.log(1 - one)) * torch.cos(2 * math.pi * other)


# Products and sums wrap round, as of whole numbers of 64 bits.
def _signed(number):
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _shifted(z, bits):
    return (z >> bits) & ((1 << (64 - bits)) - 1)
