"""Adapters (LoRA) beside a model's matrices, with PEFT's names and shapes: y = x W + b + c (x A) B."""

import math

import torch
from torch import nn

from troupe.errors import ProgramError
from troupe.models.counter import uniform

_attention = {"gpt2": ("attn.c_attn", "attn.c_proj"), "llama": ("q_proj", "k_proj", "v_proj", "o_proj")}
_all = {"gpt2": ("c_attn", "c_proj", "c_fc"),
        "llama": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")}


class Factor(nn.Module):
    """weight: of A [rank, in], of B [out, rank]."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)


class Adapters:
    """What is added to which modules. targets: all, attention, or names of modules with commas between them."""

    def __init__(self, family, rank, alpha, targets="all", rslora=False):
        self.rank = rank
        self.scale = alpha / (math.sqrt(rank) if rslora else rank)
        named = [x.strip() for x in targets.split(",") if x.strip()]
        self.targets = {"all": _all[family], "attention": _attention[family]}.get(targets, tuple(named))
        known = set(_all[family]) | set(_attention[family])
        for name in self.targets or ("",):
            if name not in known:
                raise ProgramError(f"adapter: found target '{name}', expected all, attention or some of "
                                   f"{', '.join(_all[family])}")

    def of(self, name, wide, out):
        """(A, B, c) beside the module of this name, a product of `wide` and `out` numbers; None: it has none. A is uniform in
        +-1 / sqrt(wide), and the same on every machine; B is 0, so that the first forward is the base's."""
        if not any(name.endswith("." + x) for x in self.targets):
            return None
        a = (2 * uniform(name, self.rank * wide) - 1) / math.sqrt(wide)
        return (Factor(a.float().view(self.rank, wide)), Factor(torch.zeros(out, self.rank)), self.scale)
