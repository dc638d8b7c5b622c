"""The order in which a dataset is read.

Position p = n B + k is sample k of iteration n with the global batch B, counted from 0 over the whole job. Its epoch is
p // length, and its sample is permuted(p % length, length, seed, epoch). Thus any number of ranks reads the same global
batch, and a program resumes by arithmetic, without a sampler's state.

The permutation, in unsigned 64-bit arithmetic (all sums and products modulo 2^64; // and % of integers):

    mix(x):   x ^= x >> 30;  x *= 0xbf58476d1ce4e5b9;  x ^= x >> 27;  x *= 0x94d049bb133111eb;  x ^= x >> 31
    start   = mix(mix(seed + G) + epoch + G)                 G = 0x9e3779b97f4a7c15
    key[r]  = mix(start + (r + 1) G)                         r = 0 .. 5
    F(r, v): z = v * 0xd1342543de82ef95 + key[r];  z ^= z >> 32;  z *= 0xaef17502108ef2d9;  z >> 32

    a = the smallest number with a * a >= length;  b = the smallest number with a * b >= length
    x -> (u, v) = (x // b, x % b);                           u < a, v < b
         r = 0, 2, 4:  u = (u + F(r, v)) % a;  v = (v + F(r + 1, u)) % b
         x = u * b + v;  again, from (u, v), while x >= length

Each line changes one half by a function of the other, so it can be undone and the whole is a permutation of 0 .. a b - 1;
a b - length < a, so few numbers go round again.
"""

from functools import lru_cache
from math import isqrt

_ones = (1 << 64) - 1
_golden = 0x9E3779B97F4A7C15


def _mix(x):
    x &= _ones
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _ones
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _ones
    return x ^ x >> 31


@lru_cache(maxsize=8)
def _keys(seed, epoch):
    start = _mix(_mix(seed + _golden) + epoch + _golden)
    return tuple(_mix(start + (r + 1) * _golden) for r in range(6))


def _halves(length):
    a = isqrt(length - 1) + 1 if length > 1 else 1
    return a, -(-length // a)


def _permuted(x, length, a, b, keys):
    k0, k1, k2, k3, k4, k5 = keys
    u, v = divmod(x, b)
    while True:
        for first, second in ((k0, k1), (k2, k3), (k4, k5)):
            z = (v * 0xD1342543DE82EF95 + first) & _ones
            u = (u + (((z ^ z >> 32) * 0xAEF17502108EF2D9 & _ones) >> 32)) % a
            z = (u * 0xD1342543DE82EF95 + second) & _ones
            v = (v + (((z ^ z >> 32) * 0xAEF17502108EF2D9 & _ones) >> 32)) % b
        x = u * b + v
        if x < length:
            return x


def permuted(x, length, seed=0, epoch=0):
    """Number `x` of 0 .. length - 1 in the permutation of (seed, epoch)."""
    if not 0 <= x < length:
        raise ValueError(f"found number {x}, expected 0 to {length - 1}")
    return _permuted(x, length, *_halves(length), _keys(seed, epoch))


def samples(first, count, length, seed):
    """The samples at the positions first .. first + count - 1."""
    a, b = _halves(length)
    result = []
    for position in range(first, first + count):
        epoch, x = divmod(position, length)
        result.append(_permuted(x, length, a, b, _keys(seed, epoch)))
    return result


def share(count, rank, world_size):
    """(first, size) of a rank's part of `count` samples: parts follow each other, sizes differ by at most 1."""
    each, more = divmod(count, world_size)
    return rank * each + min(rank, more), each + (rank < more)
