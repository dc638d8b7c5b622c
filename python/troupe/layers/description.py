"""A program's description, for `python3 -m troupe.describe`."""

import torch

from troupe.layers.boundary import mapped, tensors_of
from troupe.layers.data import Batches, check_pure, equal
from troupe.errors import Error, LayerError, ProgramError
from troupe.layers.loss import Loss
from troupe.layers.measure import Kept, measured
from troupe.layers.precision import autocast
from troupe.layers.randomness import Generators, Watch, own_generators
from troupe.layers.rehearsal import Rehearsal
from troupe.seeds import seed_of
from troupe.layers.updates import Updates, probed

_samples = 2  # one is too few for some norms
_large_bytes = 1 << 30


class Description:
    """found: as JSON has it. A layer that cannot run ends it, and is in `refusals`."""

    def __init__(self, program, seed):
        self._program, self._seed, self._model = program, seed, program.layers(seed)
        # The CPU may have no fp16; its bytes are those of bf16.
        self._autocast = autocast("bf16" if program.precision == "fp16" else program.precision, "cpu")
        self._keys, self._layers, self._warnings, self._public = [], [], [], {}
        self._generators = Generators(own=program.own_generators)
        self._rehearsal = Rehearsal(program, self._model, seed, self._autocast)
        self._untaken = []  # of each layer with parameters, whether optimizer() takes none
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
                "held_out": 0, "loss_kept_bytes": 0, "layers": self._layers, "warnings": self._warnings, "refusals": [],
                "tied_parameters": 0, "tied": model.tied and [f"0.{model.tied[0]}", f"{len(model) - 1}.{model.tied[1]}"],
                "glued": [{"first": first, "last": last, "name": name} for first, last, name in model.glued]}

    # One layer at a time is in memory.
    def _measure(self):
        batches = Batches(self._program, seed=self._seed, rows=_samples, microbatches=1, generators=self._generators)
        self.found["samples"] = len(batches.dataset)
        self.found["held_out"] = self._held_out()
        check_pure(batches.dataset, self._program.file)
        value, target = batches.first_time()
        if not equal((value, target), batches.first_time()):
            raise ProgramError(f"{self._program.file}: collate() gave another micro-batch when it was called again with the "
                               "same samples, expected a function of them")
        kept_before = ()
        for index in range(len(self._model)):
            value, kept_before = self._layer(index, value, kept_before)
        with Kept() as kept:
            root = self._loss(value, target, batches)
        self.found["loss_kept_bytes"] = kept.bytes // _samples
        if any(x["trainable"] for x in self._layers) and not root.requires_grad:
            raise ProgramError(f"{self._program.file}: the loss depends on no trainable parameter")
        if not equal(root.detach(), self._loss(value, target, batches).detach()):
            raise ProgramError(f"{self._program.file}: loss() gave another value when it was called again with the same output and "
                               "seeds: expected a function of them, without a state of its own")
        own = _leaves(root) - {id(t) for t in tensors_in(value)}
        if own:
            self._warnings.append(f"loss() has {len(own)} trainable tensor{'s' * (len(own) > 1)} of its own, which nothing trains "
                                  "or saves: expected parameters in the model's layers alone")
        if self._untaken and all(self._untaken):
            raise ProgramError(f"{self._program.file}: optimizer() takes no parameter of any layer")

    # Whoever names a split need not have held anything out.
    def _held_out(self):
        try:
            return len(self._program.dataset("held_out")) if self._program.has_held_out else 0
        except Error:
            return 0

    def _loss(self, value, target, batches):
        self._generators.seed(seed_of(self._seed, 0, 0, len(self._model)))
        return Loss(self._program, self._autocast, 1).root(value, target, (0, lambda: batches.indices(0)), 1)

    def _layer(self, index, value, kept_before):
        layer = self._model.build_alone(index, self._seed)
        who = f"layer {index} ({layer.name})"
        self._check_names(layer)
        fresh = self._rehearsal.state_of(layer)
        generators = self._generators.with_own(own_generators(layer.module))
        generators.seed(seed_of(self._seed, 0, 0, index))
        try:
            m = measured(layer, value, kept_before, self._autocast)
            outputs = () if index + 1 == len(self._model) else tensors_of(m.result, who)
            watch = Watch()
            _backward(m.result)
        except ProgramError:
            raise
        except Exception as error:
            raise LayerError(index, layer.name, error) from error
        self._check_side_effects(layer, who, m.changed, watch.drawn(), lambda: measured(layer, value, kept_before, self._autocast))
        self._check_rows(who, outputs)
        named = [(f"{index}.{name}", p) for name, p in layer.module.named_parameters()
                 if (index, name) not in self._model.aliases]
        trainable = [(name, p) for name, p in named if p.requires_grad]
        state_bytes, draws = self._probed(who, trainable)
        self._layers.append(self._figures(layer, m, value, outputs, named, trainable, state_bytes))
        result = mapped(lambda t: t.detach().requires_grad_(t.requires_grad), m.result)
        if self._layers[-1]["same_as"] == index:
            self._warnings += self._rehearsal.layer(layer, fresh, value, draws)
        return result, [m.kept(t) for t in outputs]

    def _check_side_effects(self, layer, who, changed, drawn, again):
        tied = self._model.tied and {0: self._model.tied[0], len(self._model) - 1: self._model.tied[1]}.get(layer.index)
        if tied and tied in changed:
            raise ProgramError(f"{who}: its forward changes '{layer.index}.{tied}', of which another layer has a copy: expected "
                               "changes of a tied parameter by the optimizer alone")
        if changed:
            before = {name: p.detach().clone() for name, p in layer.module.named_parameters() if name in changed}
            again()
            for name, p in layer.module.named_parameters():
                if name in before and not equal(before[name], p.detach()):
                    raise ProgramError(f"{who}: its forward changes '{layer.index}.{name}' each time it is computed, and would "
                                       "again when it is recomputed: expected changes of parameters by the optimizer alone, or "
                                       "a buffer")
            self._warnings.append(f"{who}: its forward changes {', '.join(changed)}: PyTorch refuses that in `recompute: false`, "
                                  "where several micro-batches are in flight")
        if drawn:
            raise ProgramError(f"{who}: its backward draws from {' and '.join(drawn)} generator, expected random numbers in "
                               "forwards alone, whose seeds are those of the layer")

    def _check_names(self, layer):
        for name, t in layer.module.state_dict().items():
            if (layer.index, name) in self._model.aliases or not isinstance(t, torch.Tensor):
                continue
            own, public = f"{layer.index}.{name}", self._program.name_of(layer.index, name)
            # Memory of a layer that is gone may be another one's now.
            where = t.data_ptr(), None if self._model.layers[layer.index].module is not None else layer.index
            known, before = self._public.setdefault(public, (own, where))
            if known != own and before != where:
                raise ProgramError(f"{self._program.file}: names() calls '{known}' and '{own}' both '{public}', expected a name "
                                   "of its own for each")

    def _probed(self, who, trainable):
        if trainable:
            taken = Updates(self._program, [(n, torch.nn.Parameter(torch.zeros_like(p))) for n, p in trainable], self._seed,
                            self._generators)
            self._untaken.append(len(taken.left_out) == len(trainable))
            if taken.left_out:
                which = "none of its parameters" if self._untaken[-1] else f"not {', '.join(taken.left_out)}"
                self._warnings.append(f"{who}: optimizer() takes {which}: they stay as they are")
        return probed(self._program, trainable)

    # A shared parameter is its first layer's.
    def _figures(self, layer, m, value, outputs, named, trainable, state_bytes):
        if self._model.tied and layer.index == 0:
            self.found["tied_parameters"] = dict(named)[f"0.{self._model.tied[0]}"].numel()
        return {"name": layer.name,
                "same_as": self._same_as(layer, named, value, outputs),
                "parameters": sum(p.numel() for _, p in named),
                "trainable": sum(p.numel() for _, p in trainable),
                "parameter_bytes": _bytes(p for _, p in named),
                "buffer_bytes": _bytes(layer.module.buffers()),
                "unused": self._unused(f"layer {layer.index} ({layer.name})", trainable),
                "state_bytes": state_bytes,
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


def tensors_in(value):
    found = []
    mapped(found.append, value)
    return found


def _leaves(root):
    """ids of the trainable tensors that it is computed from."""
    found, seen, todo = set(), set(), [root.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        todo += [x for x, _ in node.next_functions]
    return found


def _bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)
