"""Precision of a program's computation: autocast over 32-bit parameters, and the loss' scale that fp16 needs."""

import contextlib
import warnings

import torch

from troupe.errors import ProgramError

_dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision, device):
    """A function that returns a context manager for a layer's forward."""
    if precision == "fp32":
        return contextlib.nullcontext
    kind, dtype = torch.device(device).type, _dtypes[precision]

    def context():
        return torch.autocast(kind, dtype=dtype)

    one = torch.ones(1, 1, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with context():
                works = torch.mm(one, one).dtype == dtype
        except RuntimeError:
            works = False
    if not works:
        raise ProgramError(f"precision: found {precision}, which PyTorch {torch.__version__} has not on {kind}, expected "
                           f"{'bf16 or ' if kind == 'cpu' else ''}fp32")
    return context


class LossScale:
    """Halved by an update that is skipped, doubled after 2,000 that are not: the same at every stage, as all see the same
    norm. 1 and constant unless the precision is fp16."""

    def __init__(self, precision):
        self.changes = precision == "fp16"
        self.value, self.good = (65536.0, 0) if self.changes else (1.0, 0)

    def updated(self, finite):
        if self.changes:
            self.good = self.good + 1 if finite else 0
            if not finite:
                self.value = max(self.value / 2, 1.0)
            elif self.good == 2000:
                self.value, self.good = self.value * 2, 0

    def state(self):
        return [self.value, self.good]

    def restore(self, state):
        if self.changes and state:
            self.value, self.good = state
