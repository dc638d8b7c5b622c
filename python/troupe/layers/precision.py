"""Precision of a program's computation: autocast over 32-bit parameters, and the loss' scale that fp16 needs."""

import contextlib
import math
import warnings

import torch

from troupe.errors import NotFinite, ProgramError

_most_skipped = 20  # updates in a row
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
    norm. 1 and constant unless the precision is fp16. Gradients that no scale makes finite end the training."""

    def __init__(self, precision):
        self.changes = precision == "fp16"
        self.value, self.good, self.skipped = (65536.0, 0, 0) if self.changes else (1.0, 0, 0)

    def updated(self, norm, iteration):
        """After the update of `iteration` (from 1), or its skipping if the norm is not finite. Raises NotFinite."""
        if math.isfinite(norm):
            self.good, self.skipped = self.good + self.changes, 0
            if self.good == 2000:
                self.value, self.good = self.value * 2, 0
            return
        found = f"iteration {iteration}: the gradient norm is {norm}"
        if not self.changes:
            raise NotFinite(f"{found}, expected a finite number; the learning rate may be too high")
        self.good, self.skipped = 0, self.skipped + 1
        if self.value == 1.0:
            raise NotFinite(f"{found} though the loss is no longer scaled, expected a finite number")
        if self.skipped == _most_skipped:
            raise NotFinite(f"{found}, and so it was in {_most_skipped} updates in a row, expected a finite number: the loss "
                            f"was scaled by {self.value:g}")
        self.value = max(self.value / 2, 1.0)

    def state(self):
        return [self.value, self.good, *([self.skipped] if self.skipped else [])]

    def restore(self, state):
        if self.changes and state:
            self.value, self.good, self.skipped = (*state, 0)[:3]
