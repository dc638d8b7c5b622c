"""Rotary positions, with the bits of the inference engine (gpu/inference/rotary.cpp)."""

import math
import struct

import torch


def frequencies(model):
    """Of each pair of values of a head, as 32-bit numbers: theta^(-j / head_width) for even j, with the model's scaling."""
    pairs = range(0, model.head_width - 1, 2)
    plain = [_single(_scaled(1 / model.rope_theta ** (j / model.head_width), model.rope)) for j in pairs]
    if model.rope.kind != "yarn":
        return torch.tensor(plain, dtype=torch.float32)
    shares = _yarn_shares(model, len(plain))
    return torch.tensor([share * f / model.rope.factor + (1 - share) * f for share, f in zip(shares, plain)],
                        dtype=torch.float32)


def turns(model, positions):
    """(cosines, sines) of positions [...]: [..., head_width / 2] each, in 32 bits. Position times frequency is rounded to 32
    bits before the cosine, which a double takes."""
    angles = (positions.to(torch.float32)[..., None] * frequencies(model).to(positions.device)).double()
    scale = model.rope.attention_factor if model.rope.kind == "yarn" else 1.0
    return (scale * angles.cos()).float(), (scale * angles.sin()).float()


def rotate(x, cosines, sines):
    """x [..., head_width]: value i of the first half and value i of the second one are a pair."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


def _single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


# Linear: positions are compressed. Llama 3: wavelengths beyond one bound are divided by the factor, those below another stay,
# and both are mixed between them.
def _scaled(frequency, rope):
    if rope.kind == "linear":
        return frequency / rope.factor
    if rope.kind != "llama3":
        return frequency
    length = 2 * math.pi / frequency
    if length < rope.original_positions / rope.high_frequency_factor:
        return frequency
    if length > rope.original_positions / rope.low_frequency_factor:
        return frequency / rope.factor
    share = (rope.original_positions / length - rope.low_frequency_factor) / (
        rope.high_frequency_factor - rope.low_frequency_factor)
    return (1 - share) * frequency / rope.factor + share * frequency


# The share of each pair's frequency that is divided by the factor, from 0 to 1 between two bounds.
def _yarn_shares(model, pairs):
    rope = model.rope

    def pair_of(turns):
        turned = rope.original_positions / (turns * 2 * math.pi)
        return model.head_width * math.log(turned) / (2 * math.log(model.rope_theta))

    low, high = pair_of(rope.fast_turns), pair_of(rope.slow_turns)
    if rope.whole_bounds:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, model.head_width - 1.0)
    if low == high:
        high += 0.001
    return [min(max((pair - low) / (high - low), 0.0), 1.0) for pair in range(pairs)]
