"""The program's loss of a micro-batch."""

import math
import re

import torch

from troupe.errors import Error, LayerError, NotFinite, ProgramError

_max_values = 256
_name = re.compile(r"[A-Za-z0-9_.\-/][A-Za-z0-9_.\-/ ]{0,63}")
held_out_value = "held_out_loss"
_columns = held_out_value, "learning_rate", "iteration", "end_unix_s", "seconds", "loss", "gradient_norm", "busy_s"


class Loss:
    """Calls the program's loss behind the last layer; value and values are the last call's.

    With weights the loss is a sum, and what backward begins with is its part of the global batch's weighted mean.
    """

    def __init__(self, program, autocast, microbatches):
        self._program, self._autocast, self._microbatches = program, autocast, microbatches
        self._total = (None, 1.0)
        self.value, self.values = None, {}

    def root(self, output, target, global_batch, scale):
        """The scalar that backward begins with, which is `scale` times the loss. global_batch: a function that returns its
        samples, with a key that is equal for equal ones."""
        try:
            with self._autocast():
                found = self._program.loss(output, target)
        except Error:
            raise
        except Exception as error:
            raise LayerError(None, "loss", error) from error
        scalar, self.values = self._parsed(found)
        self.value = float(scalar.detach())
        if self._program.has_weights:
            total = self._total_weight(*global_batch)
            self.value = self.value / total * self._microbatches
            scalar = scalar / total
        return scalar if scale == 1 else scalar * scale

    def held_out(self, output, target, indices):
        """The sum over held-out samples, and what it is the sum of: value is their mean, and values have both."""
        try:
            with self._autocast():
                found = self._program.loss(output, target)
        except Error:
            raise
        except Exception as error:
            raise LayerError(None, "loss", error) from error
        scalar, _ = self._parsed(found)
        weighs = self._program.has_weights
        weight = math.fsum(self._program.weights(indices, "held_out")) if weighs else len(indices)
        total = float(scalar.detach()) * (1 if weighs else weight)
        self.value = total / weight if weight else 0.0
        self.values = {held_out_value: (total, weight)}
        return scalar

    def check(self, iteration, microbatch):
        if not math.isfinite(self.value):
            raise NotFinite(f"iteration {iteration}: the loss of micro-batch {microbatch} is {self.value}, expected a "
                            "finite number")

    def _total_weight(self, key, indices):
        if self._total[0] != key:
            total = math.fsum(self._program.weights(indices()))
            if not total > 0:
                raise ProgramError(f"{self._program.file}: the weights of a global batch are all 0, expected one above 0")
            self._total = key, total
        return self._total[1]

    def _parsed(self, found):
        scalar, values = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
        if not isinstance(scalar, torch.Tensor) or scalar.numel() != 1 or not scalar.is_floating_point():
            what = f"a tensor of {list(scalar.shape)} {scalar.dtype}" if isinstance(scalar, torch.Tensor) else \
                type(scalar).__name__
            raise ProgramError(f"{self._program.file}: loss() returned {what}, expected a floating scalar, or a pair of it "
                               "and {name: (sum, weight)}")
        try:
            pairs = {str(name): (float(sum_), float(weight)) for name, (sum_, weight) in values.items()}
        except (AttributeError, TypeError, ValueError):
            raise ProgramError(f"{self._program.file}: loss() returned values {values!r:.60}, expected "
                               "{name: (sum, weight)}") from None
        for name in pairs:
            if not _name.fullmatch(name) or name in _columns:
                raise ProgramError(f"{self._program.file}: loss() returned a value named {name!r:.80}, expected 1 to 64 letters, "
                                   f"digits, spaces or _ . - / : it is a column of curve.csv beside {', '.join(_columns)}")
        if len(pairs) > _max_values:
            raise ProgramError(f"{self._program.file}: loss() returned {len(pairs)} values, expected at most {_max_values}")
        return scalar.reshape(()), pairs
