"""A model as a list of layers: how a program's file gives them, which of them share parameters, and how they are built."""

import torch
from torch import nn

from torch.nn.parameter import is_lazy

from troupe.errors import LayerError, ProgramError
from troupe.safetensors import types
from troupe.seeds import seed_of


class Layer:
    """A layer that is built where it runs: make(*args, **kwargs) is an nn.Module.

    tied: layers with the same text share their parameter `weight`; a pair (text, "proj.weight") names another one.
    """

    def __init__(self, make, *args, tied=None, **kwargs):
        if not callable(make) or isinstance(make, nn.Module):
            raise ProgramError(f"troupe.Layer: found {_text(make)}, expected a class or a function that makes an nn.Module")
        pair = (tied, "weight") if isinstance(tied, str) else tied
        if pair is not None and not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(x, str) for x in pair)):
            raise ProgramError(f"troupe.Layer: found tied={tied!r}, expected a text or a pair of texts")
        self.make, self.args, self.kwargs = make, args, kwargs
        self.tied = pair
        self.call = None  # DeepSpeed's forward_fn(module, input), instead of module(input)
        self.module = None  # built by the file itself

    @property
    def name(self):
        return type(self.module).__name__ if self.module is not None else getattr(self.make, "__name__", _text(self.make))


class BuiltLayer:
    """A layer that runs here. It is called with one value, as by nn.Sequential: a tensor or a tuple."""

    def __init__(self, index, name, module, call):
        self.index, self.name, self.module, self._call = index, name, module, call

    def __call__(self, value):
        return self.module(value) if self._call is None else self._call(self.module, value)


class Model:
    """The layers of a program, not built unless the file did it.

    tied: names of a parameter in the first and in the last layer, which are one, or None. glued: triples (first, last,
    text) of layers that share a parameter in another way, and are not cut apart.
    """

    def __init__(self, found, file):
        self.file = file
        self.layers = self._layers(found)
        self.tied, self.glued, self._shared = None, [], []
        for text, places in self._groups().items():
            indices = [index for index, _ in places]
            if len(places) < 2:
                continue
            if self.tied is None and len(places) == 2 and indices == [0, len(self.layers) - 1]:
                self.tied = (places[0][1], places[1][1])
            else:
                self.glued.append((min(indices), max(indices), text))
                self._shared.append(places)
        shared = [*self._shared, *([[(0, self.tied[0]), (len(self) - 1, self.tied[1])]] if self.tied else [])]
        self.aliases = {place for places in shared for place in places[1:]}  # (layer, name): an earlier one has it

    def __len__(self):
        return len(self.layers)

    def can_cut(self, index):
        """Whether a stage may begin with that layer."""
        return not any(first < index <= last for first, last, _ in self.glued)

    def built_bytes(self):
        """Bytes of the parameters of layers that the file has built itself, in every process."""
        found = {id(p): p for x in self.layers if x.module is not None for p in x.module.parameters()
                 if not is_lazy(p)}
        return sum(p.numel() * p.element_size() for p in found.values())

    def build(self, first, count, seed, device="cpu"):
        """BuiltLayers, the same for any cut. The tied parameter of a model's last layer has the first one's values, and
        their memory if both are here, but is a Parameter of its own: its gradient is summed apart."""
        end = first + count
        if not 0 <= first < end <= len(self):
            raise ProgramError(f"{self.file}: found layers {first} to {end - 1}, expected some of 0 to {len(self) - 1}")
        for index in (first, end):
            for low, high, text in self.glued:
                if low < index <= high:
                    raise ProgramError(f"{self.file}: found a cut before layer {index}, expected none among layers {low} "
                                       f"to {high}, which share '{text}'")
        built = [self._build(index, seed) for index in range(first, end)]
        for layer in built:
            layer.module.to(device)
        for places in self._shared:
            if first <= places[0][0] < end:
                one = self._parameter(built, first, places[0])
                for place in places[1:]:
                    _set(built[place[0] - first].module, place[1], self._same(one, self._parameter(built, first, place), place))
        if self.tied and end == len(self) and len(self) > 1:
            head = [self._build(0, seed)] if first > 0 else built
            one = self._parameter(head, 0, (0, self.tied[0]))
            place = (end - 1, self.tied[1])
            self._same(one, self._parameter(built, first, place), place)
            values = one.detach().to(device)
            _set(built[-1].module, self.tied[1], nn.Parameter(values, one.requires_grad))
        return built

    def build_alone(self, index, seed):
        """One layer as it is without the others: what it shares has values of its own."""
        return self._build(index, seed)

    def _layers(self, found):
        if isinstance(found, nn.Sequential):
            found = list(found)
        if not isinstance(found, (list, tuple)) or not found:
            raise ProgramError(f"{self.file}: model() returned {_text(found)}, expected a list of layers")
        return [self._layer(index, x) for index, x in enumerate(found)]

    def _layer(self, index, found):
        if isinstance(found, Layer):
            return found
        if isinstance(found, nn.Module):
            layer = Layer(type(found))
            layer.module = found
            return layer
        if hasattr(found, "typename") and hasattr(found, "module_args") and hasattr(found, "module_kwargs"):
            key, attribute = getattr(found, "key", None), getattr(found, "tied_weight_attr", "weight")
            if isinstance(attribute, (list, tuple)):
                if len(attribute) != 1:
                    raise ProgramError(f"{self.file}: layer {index} ties {list(attribute)}, expected one parameter")
                attribute = attribute[0]
            layer = Layer(found.typename, *found.module_args, tied=None if key is None else (str(key), attribute),
                          **found.module_kwargs)
            layer.call = getattr(found, "forward_fn", None)
            return layer
        raise ProgramError(f"{self.file}: layer {index}: found {_text(found)}, expected a troupe.Layer, an nn.Module or a "
                           "LayerSpec")

    # Parameters that the file itself has put into two layers are found by their identity.
    def _groups(self):
        groups, seen = {}, {}
        for index, layer in enumerate(self.layers):
            if layer.tied:
                groups.setdefault(layer.tied[0], []).append((index, layer.tied[1]))
            for name, p in layer.module.named_parameters() if layer.module is not None else ():
                seen.setdefault(id(p), []).append((index, name))
        for places in seen.values():
            if len(places) > 1:
                groups[f"{places[0][0]}.{places[0][1]}"] = places
        return groups

    def _build(self, index, seed):
        layer = self.layers[index]
        module = layer.module
        if module is None:
            torch.manual_seed(seed_of(seed, "init", index))
            try:
                module = layer.make(*layer.args, **layer.kwargs)
            except ProgramError:
                raise
            except Exception as error:
                raise LayerError(index, layer.name, error) from error
            if not isinstance(module, nn.Module):
                raise ProgramError(f"{self.file}: layer {index} ({layer.name}): found {_text(module)}, expected an "
                                   "nn.Module")
        name = layer.name if layer.module is not None else _class(layer, module)
        _check_tensors(f"layer {index} ({name})", module)
        return BuiltLayer(index, name, module, layer.call)

    def _parameter(self, built, first, place):
        index, name = place
        found = dict(built[index - first].module.named_parameters()).get(name)
        if found is None:
            raise ProgramError(f"{self.file}: layer {index} ({built[index - first].name}) is tied, but has no parameter "
                               f"'{name}'")
        return found

    def _same(self, one, other, place):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise ProgramError(f"{self.file}: layer {place[0]}: found '{place[1]}' of {list(other.shape)} {other.dtype}, "
                               f"expected {list(one.shape)} {one.dtype} as the layer it is tied to")
        return one


# What no checkpoint could have.
def _check_tensors(who, module):
    for what, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, t in named:
            if is_lazy(t):
                raise ProgramError(f"{who}: its {what} '{name}' has no shape before a forward, expected a layer that is not lazy")
            if t.layout != torch.strided:
                raise ProgramError(f"{who}: its {what} '{name}' has layout {t.layout}, expected a dense one: its indices and "
                                   "values may be buffers")
            if t.dtype not in types:
                raise ProgramError(f"{who}: its {what} '{name}' is of {t.dtype}, expected one of "
                                   f"{', '.join(str(x)[6:] for x in types)}")


def _class(layer, module):
    return layer.name if isinstance(layer.make, type) else type(module).__name__


def _set(module, path, parameter):
    *parents, name = path.split(".")
    for parent in parents:
        module = getattr(module, parent)
    module._parameters[name] = parameter


def _text(found):
    text = repr(found)
    return f"{type(found).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


class Parameters(list):
    """A stage's trainable parameters, as torch.optim takes them; named() has their names, as "7.attention.weight"."""

    def __init__(self, named):
        self._named = list(named)
        super().__init__(p for _, p in self._named)

    def named(self):
        return list(self._named)


def no_decay(parameters, weight_decay):
    """Groups for an optimizer: matrices and larger tensors decay, vectors and numbers (biases, norms) do not."""
    parameters = list(parameters)
    return [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
