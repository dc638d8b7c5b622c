"""Frozen parameters from a folder: read once a process, however many layers have them, and never saved."""

import hashlib
import os

import torch

from troupe.errors import ProgramError
from troupe.safetensors import SafeTensors

_hashes = {}
_tensors = {}


def frozen(folder, name, dtype=None):
    """A parameter without a gradient: tensor `name` of the folder's *.safetensors, in `dtype` (None: as it is stored).

    A checkpoint has the folder and its SHA-256 instead of the values, and is not resumed with another folder."""
    folder = os.path.abspath(folder)
    key = (hash_of(folder), name, dtype)
    if key not in _tensors:
        found = [file for file in map(SafeTensors, _files(folder)) if name in file.names]
        if not found:
            raise ProgramError(f"{folder}: found no tensor '{name}' in its *.safetensors")
        values = found[0].tensor(name)
        _tensors[key] = values if dtype is None else values.to(dtype)
    parameter = torch.nn.Parameter(_tensors[key], requires_grad=False)
    parameter.troupe_frozen = {"folder": folder, "sha256": key[0], "name": name}
    return parameter


def hash_of(folder):
    """SHA-256 of the names and the contents of a folder's *.safetensors."""
    if folder not in _hashes:
        found = hashlib.sha256()
        for path in _files(folder):
            found.update(os.path.basename(path).encode() + b"\0")
            with open(path, "rb") as file:
                while piece := file.read(1 << 20):
                    found.update(piece)
        _hashes[folder] = found.hexdigest()
    return _hashes[folder]


def _files(folder):
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    except OSError as error:
        raise ProgramError(f"{folder}: {error.strerror}, expected a folder with *.safetensors") from None
    if not names:
        raise ProgramError(f"{folder}: found no *.safetensors")
    return [os.path.join(folder, name) for name in names]
