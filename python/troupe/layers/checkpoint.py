"""Checkpoints: a safetensors file for each layer, written by the stages of one cut and read by those of another.

    iteration-000040/layer-00007-lease-3.safetensors
        7.attention.weight                  parameters
        buffer/7.norm.running_mean          buffers that a state_dict has
        optim/exp_avg/7.attention.weight    the optimizer's tensors
        frozen/7.mlp.weight                 32 bytes: the SHA-256 of the folder that has this parameter, which is not saved
        metadata: format "pt", iteration, troupe: JSON (below)
    iteration-000040/model.safetensors.index.json      makes it complete

A tied parameter is in its first layer's file. A layer without parameters and buffers has no file."""

import json
import os
import re

import torch

from troupe import safetensors
from troupe.errors import ProgramError
from troupe.safetensors import SafeTensors
from troupe.layers.values import decoded

_format = 1
_index = "model.safetensors.index.json"
_layer_file = re.compile(r"layer-(\d{5})(-lease-\d+)?\.safetensors")
_iteration = re.compile(r"iteration-(\d{6,})")


class LayerState:
    """One layer, as a file has it. tensors: {name: tensor}. about: what JSON can have; its keys:

    layers (of the model), class, sha256 (of the program's file), arguments, data (seed, global_batch, length, samples that
    were read), numbers ({parameter: {key: value}} of the optimizer), options ({parameter: its group's}), given (those that
    the file had given otherwise), optimizer (what is of no parameter: optimizers.SavedState), schedule (of older files),
    scale (of the loss), names ({name: public name}), tied ({name: name of the parameter that it is}), frozen ({parameter:
    {folder, sha256, name}}), first ({buffer: its shape and type when it was made, if it has others now}), gone (buffers
    that are None now), extra ({name: extra state}). Values are as troupe.values has them."""

    def __init__(self, layer, tensors, about, path=None):
        self.layer, self.tensors, self.about, self.path = layer, tensors, about, path


class Copy:
    """Layers' states in the host's memory, after `iteration` updates."""

    def __init__(self, iteration, states):
        self.iteration = iteration
        self._states = [LayerState(s.layer, {k: _copied(t) for k, t in s.tensors.items()}, s.about)
                        for s in states if s.tensors]

    def write(self, directory, lease=0):
        """The files' names in `directory`, which is made; they are durable. The lease keeps those of an older attempt
        apart."""
        os.makedirs(directory, exist_ok=True)
        return [self._write(directory, s, f"-lease-{lease}" if lease else "") for s in self._states]

    def _write(self, directory, state, lease):
        name = f"layer-{state.layer:05d}{lease}.safetensors"
        about = dict(state.about, format=_format, layer=state.layer, torch=torch.__version__)
        safetensors.write(os.path.join(directory, name), state.tensors,
                          {"format": "pt", "iteration": str(self.iteration), "troupe": json.dumps(about)})
        return name


class Checkpoint:
    """A complete checkpoint's folder, or any folder with layers' files. iteration: the updates it is after."""

    def __init__(self, directory, files=None):
        self.directory = str(directory)
        self._paths = {}
        for name in sorted(_files_of(self.directory) if files is None else files):
            found = _layer_file.fullmatch(name)
            if found is None:
                raise ProgramError(f"{self.directory}: found '{name}', expected files named layer-00007.safetensors: it is "
                                   "no checkpoint of a program's layers")
            layer = int(found[1])
            if layer in self._paths:
                raise ProgramError(f"{self.directory}: found two files of layer {layer}, expected one, or an index")
            self._paths[layer] = os.path.join(self.directory, name)
        if not self._paths:
            raise ProgramError(f"{self.directory}: found no layer's file, expected a checkpoint")
        self.layers = sorted(self._paths)
        self.iteration = self.file(self.layers[0])[2]

    def file(self, layer):
        """(SafeTensors, about, iteration)."""
        path = self._paths.get(layer)
        if path is None:
            raise ProgramError(f"{self.directory}: found no file of layer {layer}, expected one")
        file = SafeTensors(path)
        try:
            about, iteration = json.loads(file.metadata["troupe"]), int(file.metadata["iteration"])
            known = about["format"], about["layer"]
            if not all(isinstance(about[key], dict) for key in ("numbers", "options", "frozen")):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise ProgramError(f"{path}: found no metadata of Troupe, expected a layer's file of a checkpoint") from None
        if known != (_format, layer):
            raise ProgramError(f"{path}: found format {known[0]}, layer {known[1]}, expected {_format} and {layer}")
        return file, about, iteration

    def abouts(self, all_=True):
        """What the files say of themselves; of the first one alone unless all_."""
        return [self.file(layer)[1] for layer in (self.layers if all_ else self.layers[:1])]

    def read(self, expected, whole=True):
        """The saved LayerState, whose parameters and buffers are those of `expected` (a LayerState without optimizer
        state) as they were when the program had made them. Not whole: the file may have more."""
        file, about, iteration = self.file(expected.layer)
        if iteration != self.iteration:
            raise ProgramError(f"{file.path}: found iteration {iteration}, expected {self.iteration}")
        if about.get("layers") != expected.about["layers"]:
            raise ProgramError(f"{file.path}: found a model of {about.get('layers')} layers, expected "
                               f"{expected.about['layers']}")
        first, gone = about.get("first", {}), {f"buffer/{name}" for name in about.get("gone", ())}
        names = {x for x in file.names if whole and not x.startswith("optim/") and not x.endswith("._extra_state")}
        for name in sorted((set(expected.tensors) | names) - gone):
            form = first.get(name[len("buffer/"):], ()) if name.startswith("buffer/") else ()
            if form == ():
                _compare(file, name, expected.tensors.get(name))
            elif form != (None if name not in expected.tensors else _form_of(expected.tensors[name])):
                raise ProgramError(f"{file.path}: '{name}' was {form} when it was made, expected "
                                   f"{_form_of(expected.tensors[name]) if name in expected.tensors else 'none'}")
        for name, frozen in expected.about["frozen"].items():
            saved = bytes(file.tensor("frozen/" + name).tolist()).hex()
            if saved != frozen["sha256"]:
                raise ProgramError(f"{file.path}: '{name}' was from a folder with SHA-256 {saved}, and {frozen['folder']} has "
                                   f"{frozen['sha256']}")
        return LayerState(expected.layer, {name: file.tensor(name) for name in file.names}, about, file.path)


def _copied(t):
    return t.detach().to("cpu", copy=True).contiguous().resolve_conj().resolve_neg()


def _form_of(t):
    return [list(t.shape), str(t.dtype)[6:]]


def _compare(file, name, expected):
    if expected is None:
        raise ProgramError(f"{file.path}: found '{name}', which the program has not")
    wanted = f"{list(expected.shape)} {str(expected.dtype)[6:]}"
    if name not in file.names:
        raise ProgramError(f"{file.path}: found no '{name}', expected {wanted}")
    found = f"{file.shape(name)} {str(file.dtype(name))[6:]}"
    if found != wanted:
        raise ProgramError(f"{file.path}: found '{name}' of {found}, expected {wanted}")


def _files_of(directory):
    path = os.path.join(directory, _index)
    if os.path.exists(path):
        try:
            with open(path) as file:
                names = set(json.load(file)["weight_map"].values())
        except (OSError, KeyError, TypeError, ValueError, AttributeError):
            raise ProgramError(f"{path}: found no weight_map, expected an index of files") from None
    else:
        try:
            names = {name for name in os.listdir(directory) if name.endswith(".safetensors")}
        except OSError as error:
            raise ProgramError(f"{directory}: {error.strerror}, expected a checkpoint") from None
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name:
            raise ProgramError(f"{path}: found {name!r}, expected names of files next to it")
    return names


def folder_of(root, iteration):
    return os.path.join(root, f"iteration-{iteration:06d}")


def newest(root):
    """The folder of the newest complete checkpoint in `root`, or None."""
    names = os.listdir(root) if os.path.isdir(root) else []
    found = [(int(m[1]), name) for name in names if (m := _iteration.fullmatch(name))]
    complete = [x for x in found if os.path.exists(os.path.join(root, x[1], _index))]
    return os.path.join(root, max(complete)[1]) if complete else None


def write_index(directory, iteration, files):
    """Makes the checkpoint of these files complete."""
    places = {tensor: name for name in files for tensor in SafeTensors(os.path.join(directory, name)).names
              if not tensor.startswith("optim/")}
    path = os.path.join(directory, _index)
    with open(path + ".part", "w") as file:
        json.dump({"metadata": {"iteration": str(iteration), "format": "pt"}, "weight_map": places}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)
    safetensors.sync_folder(directory)


def load(module_or_layers, directory):
    """Weights and buffers of a checkpoint, or of a folder with *.safetensors that `troupe export` has written, into an
    nn.Module with their names: nn.Sequential(*layers), a list of its layers, or one with the file's public names. Frozen
    parameters stay as they are."""
    module = module_or_layers
    if not isinstance(module, torch.nn.Module):
        module = torch.nn.Sequential(*module)
    tensors, public, extra = {}, {}, {}
    for name in sorted(_files_of(directory)):
        file = SafeTensors(os.path.join(directory, name))
        about = json.loads(file.metadata.get("troupe", "{}"))
        found = {_plain(x): file.tensor(x) for x in file.names if not x.startswith(("optim/", "frozen/"))}
        extra.update((x, decoded(value, file.tensor)) for x, value in about.get("extra", {}).items())
        found.update((other, found[one]) for other, one in about.get("tied", {}).items())
        tensors.update(found)
        public.update(about.get("names", {}))
    kept = {name for name, p in module.named_parameters() if hasattr(p, "troupe_frozen")}
    wanted = {name: t for name, t in module.state_dict().items() if name not in kept and isinstance(t, torch.Tensor)
              and not name.endswith("_extra_state")}
    if wanted.keys() != tensors.keys() and public:
        tensors = {public.get(name, name): t for name, t in tensors.items()}
    for name in sorted(set(wanted) | set(tensors)):
        if name not in wanted or name not in tensors:
            where = "the module has not" if name not in wanted else "is not in the files"
            raise ProgramError(f"{directory}: '{name}' {where}")
        if wanted[name].shape != tensors[name].shape:
            raise ProgramError(f"{directory}: found '{name}' of {list(tensors[name].shape)}, expected "
                               f"{list(wanted[name].shape)}")
    with torch.no_grad():
        for name, t in wanted.items():
            t.copy_(tensors[name])
    for name, one in module.named_modules():
        if (key := f"{name}._extra_state" if name else "_extra_state") in extra:
            one.set_extra_state(extra[key])
    return module_or_layers


def _plain(name):
    return name[len("buffer/"):] if name.startswith("buffer/") else name
