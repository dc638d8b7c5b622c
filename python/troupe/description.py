"""A program's description, for `python3 -m troupe.describe`."""

import torch

from troupe.boundary import mapped, tensors_of
from troupe.data import Batches, check_pure
from troupe.errors import LayerError, ProgramError
from troupe.loss import Loss
from troupe.measure import Kept, measured
from troupe.optimizers import bytes_of, first_state
from troupe.precision import autocast
from troupe.seeds import seed_of

_samples = 2  # one is too few for some norms
_large_bytes = 1 << 30


class Description:
    """found: as JSON has it. A layer that cannot run ends it, and is in `refusals`."""

    def __init__(self, program, seed):
        self._program, self._seed, self._model = program, seed, program.layers(seed)
        # The CPU may have no fp16; its bytes are those of bf16.
        self._autocast = autocast("bf16" if program.precision == "fp16" else program.precision, "cpu")
        self._keys, self._layers, self._warnings = [], [], []
        self.found = self._head()
        try:
            self._measure()
        except (ProgramError, LayerError) as error:
            self.found["refusals"].append(str(error))

    def _head(self):
        program, model = self._program, self._model
        if model.built_bytes() > _large_bytes:
            self._warnings.append(f"model() builds {model.built_bytes() / 1e9:.1f} GB of layers in every process: "
                                  "troupe.Layer(Class, ...) builds them where they run")
        return {"format": 1, "file": program.file, "sha256": program.sha256, "arguments": program.arguments,
                "precision": program.precision, "clip_norm": program.clip_norm, "torch": torch.__version__, "samples": 0,
                "loss_kept_bytes": 0, "layers": self._layers, "warnings": self._warnings, "refusals": [],
                "tied_parameters": 0, "tied": model.tied and [f"0.{model.tied[0]}", f"{len(model) - 1}.{model.tied[1]}"],
                "glued": [{"first": first, "last": last, "name": name} for first, last, name in model.glued]}

    # One layer at a time is in memory.
    def _measure(self):
        batches = Batches(self._program, seed=self._seed, rows=_samples, microbatches=1)
        self.found["samples"] = len(batches.dataset)
        check_pure(batches.dataset, self._program.file)
        value, target = batches.get(0, 0)
        kept_before = ()
        for index in range(len(self._model)):
            value, kept_before = self._layer(index, value, kept_before)
        with Kept() as kept:
            root = Loss(self._program, self._autocast, 1).root(value, target, (0, lambda: batches.indices(0)), 1)
        self.found["loss_kept_bytes"] = kept.bytes // _samples
        if any(x["trainable"] for x in self._layers) and not root.requires_grad:
            raise ProgramError(f"{self._program.file}: the loss depends on no trainable parameter")

    def _layer(self, index, value, kept_before):
        layer = self._model.build_alone(index, self._seed)
        who = f"layer {index} ({layer.name})"
        torch.manual_seed(seed_of(self._seed, 0, 0, index))
        try:
            m = measured(layer, value, kept_before, self._autocast)
            outputs = () if index + 1 == len(self._model) else tensors_of(m.result, who)
            _backward(m.result)
        except ProgramError:
            raise
        except Exception as error:
            raise LayerError(index, layer.name, error) from error
        self._check_rows(who, outputs)
        self._layers.append(self._figures(layer, m, value, outputs))
        return mapped(lambda t: t.detach().requires_grad_(t.requires_grad), m.result), [m.kept(t) for t in outputs]

    # A shared parameter is its first layer's.
    def _figures(self, layer, m, value, outputs):
        named = [(f"{layer.index}.{name}", p) for name, p in layer.module.named_parameters()
                 if (layer.index, name) not in self._model.aliases]
        trainable = [(name, p) for name, p in named if p.requires_grad]
        if self._model.tied and layer.index == 0:
            self.found["tied_parameters"] = dict(named)[f"0.{self._model.tied[0]}"].numel()
        return {"name": layer.name,
                "same_as": self._same_as(layer, named, value, outputs),
                "parameters": sum(p.numel() for _, p in named),
                "trainable": sum(p.numel() for _, p in trainable),
                "parameter_bytes": _bytes(p for _, p in named),
                "buffer_bytes": _bytes(layer.module.buffers()),
                "unused": self._unused(f"layer {layer.index} ({layer.name})", trainable),
                "state_bytes": bytes_of(first_state(self._program, trainable)),
                "forward_flops": m.flops // _samples,
                "kept_bytes": m.kept_bytes // _samples,
                "cast_bytes": m.cast_bytes,
                "output_bytes": _bytes(outputs) // _samples,
                "outputs": [{"dtype": str(t.dtype)[6:], "shape": list(t.shape[1:]), "gradient": t.requires_grad}
                            for t in outputs],
                "in_place": m.in_place}

    def _check_rows(self, who, outputs):
        for t in outputs:
            if t.dim() == 0 or t.shape[0] != _samples:
                self._warnings.append(f"{who} returned {list(t.shape)} for {_samples} samples, expected the samples as the "
                                      "first dimension: figures for more samples may be wrong")

    def _unused(self, who, trainable):
        for name, p in trainable:
            if p.grad is not None and p.grad.layout != torch.strided:
                raise ProgramError(f"{who}: the gradient of '{name}' is sparse, expected a dense one")
        unused = [name for name, p in trainable if p.grad is None]
        if unused:
            self._warnings.append(f"{who}: no gradient for {', '.join(unused)}: counted as zero")
        return unused

    # The first layer of the same class, arguments, parameters, inputs and outputs: a profile measures one of them.
    def _same_as(self, layer, named, value, outputs):
        given, inputs = self._model.layers[layer.index], []
        mapped(lambda t: inputs.append((t.dtype, t.shape)), value)
        self._keys.append((layer.name, repr((given.args, given.kwargs) if given.module is None else layer.module),
                           [(name.split(".", 1)[1], p.shape, p.requires_grad) for name, p in named],
                           inputs, [(t.dtype, t.shape) for t in outputs]))
        return self._keys.index(self._keys[-1])


def _backward(result):
    roots = [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, torch.Tensor)]
    roots = [t for t in roots if t.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])


def _bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)
