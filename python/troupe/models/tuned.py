"""A folder's weights for its fine-tuning: which of them are trained, and what is beside them."""

import torch

from troupe.models.counter import normal

_deviation = 0.02  # of random weights


class TunedWeights:
    """As troupe.models.folder.Weights, for layers. frozen_layers: the first ones, the embedding included, keep the folder's
    values; with adapters all do. random: values of the layer's seed in place of the folder's. base_hash: of the folder's
    files (hexadecimal), by which a checkpoint refers to weights that it does not have."""

    def __init__(self, model, weights, folder, base_hash="", frozen_layers=0, adapters=None, random=False):
        self._model, self._weights, self._folder, self._base_hash = model, weights, folder, base_hash
        self._frozen_layers, self._adapters, self._random = frozen_layers, adapters, random

    def is_frozen(self, name):
        return self._adapters is not None or self._layer_of(name) < self._frozen_layers

    def parameter(self, name, shape):
        if self._random:
            return torch.nn.Parameter(_drawn(name, shape), requires_grad=not self.is_frozen(name))
        if not self.is_frozen(name):
            return self._weights.parameter(name, shape)
        found = torch.nn.Parameter(self._weights.mapped(name, shape), requires_grad=False)
        found.troupe_frozen = {"folder": self._folder, "sha256": self._base_hash, "name": name}
        return found

    def adapter(self, name, wide, out):
        return None if self._adapters is None else self._adapters.of(name, wide, out)

    def _layer_of(self, name):
        name = name[len("model."):] if name.startswith("model.") else name
        first, _, rest = name.partition(".")
        if first in ("h", "layers"):
            return 1 + int(rest.partition(".")[0])
        return 0 if first in ("wte", "wpe", "embed_tokens") else self._model.layers + 1


# Norms begin as they are for nothing to change, biases at 0.
def _drawn(name, shape):
    if len(shape) == 1:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    count = 1
    for size in shape:
        count *= size
    return (_deviation * normal(name, count)).float().view(shape)
