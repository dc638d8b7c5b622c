"""A program's model, layer by layer: python3 -m troupe.describe gpt.py --json

Two samples go through one layer at a time, which is then dropped; figures are those of one. What Troupe cannot run is
refused here, before anything runs, with the layer's name. Exit status 2: something is refused."""

import argparse
import json
import sys

from troupe.errors import Error, LayerError, ProgramError
from troupe.plain import named_values

_samples = 2  # one is too few for some norms
_large_bytes = 1 << 30


def describe(path, arguments=None, seed=1):
    """The description, as JSON has it; `refusals` is empty unless something cannot be run. Raises ProgramError or
    LayerError for a file without a model or data."""
    import torch

    from troupe.model_file import Program

    program = Program(path, arguments)
    model = program.layers(seed)
    found = {"format": 1, "file": program.file, "sha256": program.sha256, "arguments": program.arguments,
             "precision": program.precision, "clip_norm": program.clip_norm, "torch": torch.__version__, "samples": 0,
             "layers": [], "tied": model.tied and [f"0.{model.tied[0]}", f"{len(model) - 1}.{model.tied[1]}"],
             "glued": [{"first": first, "last": last, "name": name} for first, last, name in model.glued],
             "warnings": [], "refusals": []}
    if model.built_bytes() > _large_bytes:
        found["warnings"].append(f"model() builds {model.built_bytes() / 1e9:.1f} GB of layers in every process: "
                                 "troupe.Layer(Class, ...) builds them where they run")
    try:
        _Description(program, model, seed, found).fill()
    except (ProgramError, LayerError) as error:
        found["refusals"].append(str(error))
    return found


class _Description:
    def __init__(self, program, model, seed, found):
        from troupe.precision import autocast

        self._program, self._model, self._seed, self._found = program, model, seed, found
        # The CPU may have no fp16; its bytes are those of bf16.
        self._autocast = autocast("bf16" if program.precision == "fp16" else program.precision, "cpu")
        self._keys = []

    def fill(self):
        from troupe.data import Batches, check_pure
        from troupe.loss import Loss
        from troupe.measure import Kept

        batches = Batches(self._program, seed=self._seed, rows=_samples, microbatches=1)
        self._found["samples"] = len(batches.dataset)
        check_pure(batches.dataset, self._program.file)
        value, target = batches.get(0, 0)
        kept_before = ()
        for index in range(len(self._model)):
            value, kept_before = self._layer(index, value, kept_before)
        with Kept() as kept:
            root = Loss(self._program, self._autocast, 1).root(value, target, (0, lambda: batches.indices(0)), 1)
        self._found["loss_kept_bytes"] = kept.bytes // _samples
        trainable = any(x["trainable"] for x in self._found["layers"])
        if trainable and not root.requires_grad:
            raise ProgramError(f"{self._program.file}: the loss depends on no trainable parameter")

    # One layer at a time is in memory. A tied parameter is counted in its first layer.
    def _layer(self, index, value, kept_before):
        import torch

        from troupe.boundary import mapped, tensors_of
        from troupe.measure import measured
        from troupe.optimizers import bytes_of, first_state
        from troupe.seeds import seed_of

        layer = self._model.build_alone(index, self._seed)
        who, is_last = f"layer {index} ({layer.name})", index + 1 == len(self._model)
        torch.manual_seed(seed_of(self._seed, 0, 0, index))
        try:
            m = measured(layer, value, kept_before, self._autocast)
        except Exception as error:
            raise LayerError(index, layer.name, error) from error
        outputs = () if is_last else tensors_of(m.result, who)
        named = [(f"{index}.{name}", p) for name, p in layer.module.named_parameters()
                 if not (is_last and self._model.tied and name == self._model.tied[1])]
        trainable = [(name, p) for name, p in named if p.requires_grad]
        unused = self._without_gradient(who, layer, trainable, m.result)
        for t in outputs:
            if t.dim() == 0 or t.shape[0] != _samples:
                self._found["warnings"].append(f"{who} returned {list(t.shape)} for {_samples} samples, expected the samples as "
                                               "the first dimension: figures for more samples may be wrong")
        self._found["layers"].append({
            "name": layer.name,
            "same_as": self._same_as(index, layer, named, outputs),
            "parameters": sum(p.numel() for _, p in named),
            "trainable": sum(p.numel() for _, p in trainable),
            "parameter_bytes": _bytes(p for _, p in named),
            "buffer_bytes": _bytes(layer.module.buffers()),
            "state_bytes": bytes_of(first_state(self._program, trainable)),
            "forward_flops": m.flops // _samples,
            "kept_bytes": m.kept_bytes // _samples,
            "cast_bytes": m.cast_bytes,
            "output_bytes": _bytes(outputs) // _samples,
            "outputs": [{"dtype": str(t.dtype)[6:], "shape": list(t.shape[1:]), "gradient": t.requires_grad} for t in outputs],
            "in_place": m.in_place,
            "unused": unused,
        })
        return mapped(lambda t: t.detach().requires_grad_(t.requires_grad), m.result), [m.kept(t) for t in outputs]

    def _without_gradient(self, who, layer, trainable, result):
        import torch

        roots = []
        for t in result if isinstance(result, tuple) else (result,):
            if isinstance(t, torch.Tensor) and t.requires_grad:
                roots.append(t)
        try:
            if roots:
                torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
        except Exception as error:
            raise LayerError(layer.index, layer.name, error) from error
        for name, p in trainable:
            if p.grad is not None and p.grad.layout != torch.strided:
                raise ProgramError(f"{who}: the gradient of '{name}' is sparse, expected a dense one")
        unused = [name for name, p in trainable if p.grad is None]
        if unused:
            self._found["warnings"].append(f"{who}: no gradient for {', '.join(unused)}: counted as zero")
        return unused

    # The first layer of the same class, arguments, parameters and outputs: a profile measures one of them.
    def _same_as(self, index, layer, named, outputs):
        given = self._model.layers[index]
        self._keys.append((layer.name, repr((given.args, given.kwargs) if given.module is None else layer.module),
                           [(name.split(".", 1)[1], p.shape, p.requires_grad) for name, p in named],
                           [(t.dtype, t.shape) for t in outputs]))
        return self._keys.index(self._keys[-1])


def _bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m troupe.describe", description=__doc__.split("\n")[0])
    parser.add_argument("program", metavar="FILE.py")
    parser.add_argument("--arguments", type=named_values, default={}, metavar="NAME=VALUE,..", help="of model() and others")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(1)")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args(arguments)
    try:
        found = describe(o.program, o.arguments, o.seed)
    except Error as error:
        found = {"refusals": [str(error)]}
    if o.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 2 if found["refusals"] else 0


def _print(found):
    if "layers" in found:
        print(f"{'layer':>5}  {'class':20} {'parameters':>12} {'MFLOPs':>10} {'kept KB':>10} {'output KB':>10}")
    for i, x in enumerate(found.get("layers", ())):
        print(f"{i:5}  {x['name']:20} {x['parameters']:12} {x['forward_flops'] / 1e6:10.3f} {x['kept_bytes'] / 1e3:10.1f} "
              f"{x['output_bytes'] / 1e3:10.1f}{'  in place' if x['in_place'] else ''}")
    if found.get("tied"):
        print(f"tied: {' and '.join(found['tied'])}")
    for x in found.get("glued", ()):
        print(f"layers {x['first']} to {x['last']} share '{x['name']}' and are not cut apart")
    for text in found.get("warnings", ()):
        print("warning:", text)
    for text in found["refusals"]:
        print("refused:", text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
