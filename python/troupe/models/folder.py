"""Weights of a model folder, by the names of their tensors."""

import json
import os

import torch

from troupe.errors import ProgramError
from troupe.models.config import read_model
from troupe.safetensors import SafeTensors

_index = "model.safetensors.index.json"
_prefix = "transformer."
_types = (torch.float32, torch.float16, torch.bfloat16)


class Weights:
    """The tensors of a folder, in `dtype`. unread: names of those that nobody has asked for, but for what is no weight (masks
    of old GPT-2 files, frequencies, the head of a tied model). Raises ProgramError."""

    def __init__(self, folder, model, dtype=torch.float32):
        self._folder, self._dtype = folder, dtype
        self._places = {}
        for file in map(SafeTensors, _files(folder)):
            for name in file.names:
                plain = name[len(_prefix):] if name.startswith(_prefix) else name
                if plain in self._places:
                    raise ProgramError(f"{file.path}: found '{name}' a second time")
                self._places[plain] = file, name
        self.unread = {name for name in self._places if not _is_ignored(name, model)}

    def tensor(self, name, shape):
        """A copy, which may be changed."""
        file, stored = self.found(name, shape)
        made = file.tensor(stored).to(self._dtype, copy=True)
        file.drop(stored)
        return made

    def mapped(self, name, shape):
        """The same without a copy, if the file has such values: not to be changed."""
        file, stored = self.found(name, shape)
        found = file.tensor(stored)
        made = found.to(self._dtype)
        if made is not found:
            file.drop(stored)
        return made

    def parameter(self, name, shape):
        return torch.nn.Parameter(self.tensor(name, shape))

    def adapter(self, name, wide, out):
        """None: matrices alone."""

    def found(self, name, shape):
        """(file, name in it) of a tensor of this shape."""
        if name not in self._places:
            raise ProgramError(f"{self._folder}: has no tensor '{name}'")
        file, stored = self._places[name]
        if file.dtype(stored) not in _types:
            raise ProgramError(f"{file.path}: '{stored}' has values of type {str(file.dtype(stored))[6:]}, expected float32, "
                               "float16 or bfloat16")
        if list(file.shape(stored)) != list(shape):
            raise ProgramError(f"{file.path}: '{stored}': found shape {list(file.shape(stored))}, expected {list(shape)} by "
                               "config.json")
        self.unread.discard(name)
        return file, stored

    def check_all_read(self):
        if self.unread:
            raise ProgramError(f"{self._folder}: has a tensor '{min(self.unread)}', which a model with this config.json does not "
                               "have")


def check_folder(folder):
    """The Model of a folder whose tensors are those of its config.json. Reads headers alone. Raises ProgramError."""
    from troupe.models.blocks import layers

    model = read_model(folder)
    weights = Weights(folder, model)
    layers(model, _Shapes(weights))
    weights.check_all_read()
    return model


class _Shapes:
    """Tensors without values."""

    def __init__(self, weights):
        self._weights = weights

    def parameter(self, name, shape):
        self._weights.found(name, shape)
        return torch.nn.Parameter(torch.empty(*shape, device="meta"))

    def adapter(self, name, wide, out):
        return None


def read_folder(folder, dtype=torch.float32):
    """(Model, layers) of a folder. Raises ProgramError for one that has not exactly its config.json's tensors."""
    from troupe.models.blocks import layers

    model = read_model(folder)
    weights = Weights(folder, model, dtype)
    built = layers(model, weights)
    weights.check_all_read()
    return model, built


def _is_ignored(name, model):
    return name.endswith((".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")) or (
        model.tied_head and name == "lm_head.weight")


def _files(folder):
    alone = os.path.join(folder, "model.safetensors")
    if os.path.isfile(alone):
        return [alone]
    index = os.path.join(folder, _index)
    if not os.path.exists(index):
        names = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
        if not names:
            raise ProgramError(f"{folder}: has no *.safetensors with the model's weights")
        return [os.path.join(folder, name) for name in names]
    with open(index, "rb") as file:
        try:
            found = json.loads(file.read().decode())["weight_map"].values()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ProgramError(f"{index}: has no weight_map") from None
    names = {x for x in found if isinstance(x, str) and x and os.path.basename(x) == x and x != ".."}
    if len(names) != len(set(map(str, found))):
        raise ProgramError(f"{index}: names a file that is not next to it")
    return [os.path.join(folder, name) for name in sorted(names)]
