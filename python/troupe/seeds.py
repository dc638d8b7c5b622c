"""Seeds of random numbers: a pure function of names and numbers, so that masks and initial weights depend neither on the
cut, nor on recomputation, nor on the process that draws them.

    layer i of micro-batch m (counted over the whole global batch) of iteration n:   seed_of(seed, n, m, i)
    the loss, behind the last of L layers:                                           seed_of(seed, n, m, L)
    initial weights of layer i:                                                      seed_of(seed, "init", i)
    layers that the file has built itself, together:                                 seed_of(seed, "init", "model")

torch.manual_seed() takes the number as it is.
"""

from hashlib import blake2b


def seed_of(*key):
    """The first 8 bytes, little-endian, of BLAKE2b over the key's parts, joined by "/"."""
    return int.from_bytes(blake2b("/".join(map(str, key)).encode(), digest_size=8).digest(), "little")
