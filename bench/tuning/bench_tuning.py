"""Fine-tuning of model folders, measured against plain PyTorch: bench_tuning.py PART [--json] [--plant FAULT [--until LIMIT]]

Parts (docs/fine_tuning.md): weights, packing, equal, adapter_gradients, rates, adapters, merged, learning, own, cost,
resume, memory_one. Most folders are small, with random weights. Prints figures and their limits; exit status 1: a limit is missed.
--plant puts a fault into the package, or into a folder, for tests that see it found; --until ends the part as soon as this limit is
missed. PYTHONPATH is the folder `python`; adapters and all parts behind it need TROUPE_PROGRAM, too.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(root, "tests", "python"), os.path.join(root, "python")]

import torch  # noqa: E402

import adapters  # noqa: E402
import learning  # noqa: E402
import measured  # noqa: E402
import resume as resumed  # noqa: E402
from faults import in_process as faults  # noqa: E402
from models.folders import configs, engine_logits, write_folder  # noqa: E402
from models.random_rows import random_rows, write_rows  # noqa: E402
from stages import SEED, Pipeline, unequal  # noqa: E402
from troupe import order  # noqa: E402
from troupe.layers import checkpoint  # noqa: E402
from troupe.layers.model_file import Program  # noqa: E402
from troupe.models import blocks  # noqa: E402

script = os.path.join(root, "python", "troupe", "programs", "fine_tune.py")
oracle = os.path.join(root, "tests", "python", "oracle", "plain_training.py")
reference = os.path.join(root, "tests", "gpu", "inference", "reference.py")
vocabulary, rate = 96, 3e-3


class Found(Exception):
    """The limit of --until is missed."""


class Bench:
    """Figures with limits, in a folder of their own."""

    def __init__(self, folder, short, fault, until=None):
        self.folder, self.short, self.fault, self.until = folder, short, fault, until
        self.figures, self.missed = {}, []

    def path(self, name):
        return os.path.join(self.folder, name)

    def at_most(self, name, found, limit):
        self._held(name, found, found <= limit, f"<= {limit:g}")

    def at_least(self, name, found, limit):
        self._held(name, found, found >= limit, f">= {limit:g}")

    def _held(self, name, found, good, limit):
        self.figures[name] = {"found": found, "limit": limit}
        if not good:
            self.missed.append(name)
            if name == self.until:
                raise Found

    # -- material

    def base(self, name):
        folder = self.path(f"base-{name}")
        if not os.path.isdir(folder):
            os.mkdir(folder)
            write_folder(folder, name)
        return folder

    def rows(self, name, data):
        return write_rows(self.path(name), data)

    def program(self, base, rows, **more):
        return Program(script, {"base": self.base(base), "rows": rows, "learning_rate": rate, "base_hash": "00" * 8, **more})


def gradients(pipeline, iteration=0, whole=False):
    """One flat tensor for each stage's gradients, scaled as an update would."""
    pipeline.passes(iteration)
    found = torch.cat([g.double() for stage in pipeline.stages for g in stage.gradients()])
    return found * pipeline.stages[0].scale


def relative(one, other):
    return float((one - other).norm() / other.norm())


# -- the parts

def weights(bench):
    """E4: rows with unequal numbers of targets, cut into micro-batches and pipelines: one gradient."""
    rows = bench.rows("rows", random_rows(8, 30))
    whole = None
    for microbatches in (1, 2, 4, 8):
        pipeline = Pipeline(bench.program("qwen3-untied", rows), rows=8 // microbatches, microbatches=microbatches)
        found = gradients(pipeline)
        whole = found if whole is None else whole
        bench.at_most(f"microbatches_{microbatches}", relative(found, whole), 2e-6)
    two = [Pipeline(bench.program("qwen3-untied", rows), rows=2, microbatches=2, pipelines=2, pipeline=p) for p in (0, 1)]
    found = sum(gradients(p) for p in two)
    bench.at_most("pipelines_2", relative(found, whole), 2e-6)
    # Against the oracle: its loss is the sum over all targets by their number.
    expected = oracle_run(bench, "qwen3-untied", random_rows(8, 30), [order.samples(0, 8, 8, SEED)])[0]
    pipeline = Pipeline(bench.program("qwen3-untied", rows), rows=2, microbatches=4)
    found_loss = sum(pipeline.passes(0)) / 4
    bench.at_most("oracle_loss", abs(found_loss / expected["loss"] - 1), 1e-5)


def packing(bench):
    """E6: examples that share a row have the losses of examples alone; rows are full."""
    for name in ("qwen3-untied", "gpt2"):
        data = random_rows(6)
        sums = []
        for file, rows in (("packed", data), ("alone", [[x] for row in data for x in row])):
            pipeline = Pipeline(bench.program(name, bench.rows(file, rows)), rows=len(rows), microbatches=1)
            sums.append((pipeline.passes(0)[0], torch.cat([g for s in pipeline.stages for g in s.gradients()])))
        bench.at_most(f"{name}_loss", abs(sums[0][0] / sums[1][0] - 1), 1e-6)
        bench.at_most(f"{name}_gradients", relative(sums[0][1], sums[1][1]), 1e-5)


def equal(bench):
    """E2: any number of stages, recomputation and schedule have the same bits; all are near plain PyTorch."""
    data = random_rows(14)
    rows = bench.rows("rows", data)
    kinds = {"adapter": {"adapter_rank": 4, "adapter_alpha": 8.0}, "full": {}, "frozen": {"frozen_layers": 2}}
    cases = different = 0
    for kind, more in kinds.items():
        first = None
        for cuts in ((), (1, 3)) if bench.short else ((), (2,), (1, 3)):
            for recompute in ("none", "stage", "layers"):
                for schedule in ("1f1b", "gpipe"):
                    pipeline = Pipeline(bench.program("qwen3-untied", rows, **more), cuts, recompute, rows=2, microbatches=2,
                                        schedule=schedule)
                    found = [[pipeline.iteration(n) for n in range(3)], pipeline.weights(), pipeline.states()]
                    first = found if first is None else first
                    cases += 1
                    different += bool(unequal(found, first))
        loss, trained = plain_difference(bench, data, kind, more, first)
        bench.at_most(f"{kind}_oracle_losses", loss, 1e-5)
        bench.at_most(f"{kind}_oracle_trained", trained, 1e-4)
    bench.at_least("cases", cases, 36)
    bench.at_most("unequal", different, 0)
    two = [Pipeline(bench.program("qwen3-untied", rows), rows=2, microbatches=1, pipelines=2, pipeline=p) for p in (0, 1)]
    one = Pipeline(bench.program("qwen3-untied", rows), rows=2, microbatches=2)
    worst = 0.0
    for n in range(20):
        found = sum(sum(p.passes(n)) for p in two) / 2
        Pipeline.exchange(two)
        for p in two:
            p.update()
        worst = max(worst, abs(found / one.iteration(n) - 1))
    bench.at_most("pipelines_2_of_20_updates", worst, 1e-5)


def adapter_gradients(bench):
    """A2: dA = c B' dW and dB = c dW A' with the gradient dW of all weights at W + c B A; every B learns."""
    rows = bench.rows("rows", random_rows(8))
    for name in ("llama", "gpt2"):
        more = {"adapter_rank": 4, "adapter_alpha": 8.0, "clip": 0.0}
        low = Pipeline(bench.program(name, rows, **more), rows=4, microbatches=2)
        for n in range(5):
            low.iteration(n)
        layers = {x.index: x.module for x in low.stages[0].layers}
        found = {m: x for i, layer in layers.items() for m, x in named_adapters(i, layer)}
        bench.at_least(f"{name}_smallest_b", min(float(x.lora_B.weight.abs().max()) for x in found.values()), 1e-12)
        full = Pipeline(bench.program(name, rows, clip=0.0), rows=4, microbatches=2)
        turned, scale = name == "gpt2", more["adapter_alpha"] / more["adapter_rank"]
        with torch.no_grad():
            for i, layer in ((x.index, x.module) for x in full.stages[0].layers):
                for m, x in named_matrices(i, layer):
                    if m in found:
                        product = found[m].lora_B.weight @ found[m].lora_A.weight
                        x.weight += scale * (product.T if turned else product)
        gradients(low, 5)
        gradients(full, 5)
        dense = dict(pair for x in full.stages[0].layers for pair in named_matrices(x.index, x.module))
        worst = 0.0
        for m, x in found.items():
            dw = grad_of(full, dense[m].weight).double()
            dw = dw.T if turned else dw
            a, b = x.lora_A.weight.detach().double(), x.lora_B.weight.detach().double()
            worst = max(worst, relative(grad_of(low, x.lora_A.weight).double(), scale * b.T @ dw),
                        relative(grad_of(low, x.lora_B.weight).double(), scale * dw @ a.T))
        bench.at_most(f"{name}_worst", worst, 1e-5)


def rates(bench):
    """E8: the rate of each update is that of its number, also after a checkpoint; the file's rates count, not the saved ones."""
    data = random_rows(14)
    rows = bench.rows("rows", data)
    more = {"updates": 6, "warmup": 0.34, "decay": "linear", "final_rate": 1e-3}
    expected = [rate * 1 / 2, rate] + [1e-3 + (rate - 1e-3) * (1 - k / 4) for k in range(4)]
    program = bench.program("qwen3-untied", rows, **more)
    bench.at_most("rates", max(abs(program.rate(n) / x - 1) for n, x in enumerate(expected)), 1e-12)
    plain = oracle_run(bench, "qwen3-untied", data, [order.samples(n * 4, 4, 14, SEED) for n in range(6)], expected)
    whole = Pipeline(program, rows=2, microbatches=2)
    losses_ = [whole.iteration(n) for n in range(6)]
    first = Pipeline(program, rows=2, microbatches=2)
    found = [first.iteration(n) for n in range(3)]
    folder = bench.path("saved")
    checkpoint.write_index(folder, 3, first.stages[0].copy(3).write(folder))
    resumed = loaded(Pipeline(program, (2,), rows=2, microbatches=2), folder)
    found += [resumed.iteration(n) for n in range(3, 6)]
    bench.at_most("resumed_unequal", sum(a != b for a, b in zip(found, losses_)), 0)
    bench.at_most("oracle", max(abs(a / x["loss"] - 1) for a, x in zip(found, plain)), 1e-5)
    bench.at_most("weights_unequal", bool(unequal(resumed.weights(), whole.weights())), 0)
    changed = bench.program("qwen3-untied", rows, **{**more, "learning_rate": 2 * rate, "weight_decay": 0.25, "beta_1": 0.8})
    other = loaded(Pipeline(changed, rows=2, microbatches=2), folder)
    other.iteration(3)
    group = other.stages[0]._optimizer.optimizers[0].optimizer.param_groups[0]
    wanted = {"lr": changed.rate(3), "weight_decay": 0.25, "betas": (0.8, 0.999)}
    bench.at_most("options_of_the_checkpoint", sum(group[key] != value for key, value in wanted.items()), 0)


def adapters_(bench):
    """A4: folders of adapters that Troupe makes are read by the oracle, and the other way round."""
    adapters.adapters(bench, sys.modules[__name__])


def merged(bench):
    """A5: a merged folder has the logits of base and adapter; its 16-bit weights are rounded once; all else is the base's."""
    for name in ("gpt2", "qwen3", "qwen3-untied"):
        folder, tokens, expected = trained_adapter(bench, name)
        export(folder, bench.path(f"{name}-merged"), "--merged", "--dtype", "f32")
        found = logits(bench.path(f"{name}-merged"), tokens)
        bench.at_most(f"{name}_logits", float((found - expected).abs().max() / expected.abs().max()), 1e-4)
    export(folder, bench.path("halved"), "--merged")
    factors = {n: t for file in sorted(os.listdir(folder)) if file.endswith(".safetensors")
               for n, t in read_tensors(os.path.join(folder, file)).items()}
    base = read_tensors(os.path.join(bench.base("qwen3-untied"), "model.safetensors"))
    made = read_tensors(os.path.join(bench.path("halved"), "model.safetensors"))
    wrong = others = 0
    for stored, t in base.items():
        module = stored[:-len(".weight")]
        layer = module.split(".")[2] if module.startswith("model.layers.") else None
        key = f"{int(layer) + 1}." + module.split(".", 3)[3] if layer else ""
        if key + ".lora_A.weight" in factors:
            a, b = (factors[f"{key}.lora_{x}.weight"].double() for x in "AB")
            wrong += int((made[stored] != rounded_once(t.double() + 2.0 * b @ a)).sum())
        else:
            others += int(not torch.equal(made[stored], t))
    bench.at_most("bits_unequal", wrong, 0)
    bench.at_most("others_unequal", others, 0)
    bench.at_most("names_unequal", len(set(base) ^ set(made)), 0)


def learning_(bench):
    """E12: an adapter on the shipped chat model learns the shipped questions; the exported one has the loss of the evaluation."""
    learning.learning(bench, sys.modules[__name__])


def own(bench):
    """E12, W1: each of three adapters is the best one for its own held-out examples."""
    learning.own(bench, sys.modules[__name__])


def cost(bench):
    """E9: processor time of an iteration with an adapter on q and v, and with half of the layers frozen, over that of all weights;
    4 blocks of 512 hidden values, rows of 128 tokens. Medians of 5, interleaved."""
    configs["cost"] = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
                       "intermediate_size": 1408, "max_position_embeddings": 160, "rms_norm_eps": 1e-6, "vocab_size": 512}
    rows = bench.rows("rows", [[{"tokens": [(7 * i + r) % 96 for i in range(128)], "trained": [1] * 128}] for r in range(8)])
    kinds = {"full": {}, "adapter": {"adapter_rank": 16, "adapter_targets": "q_proj,v_proj"}, "frozen_half": {"frozen_layers": 3}}
    found = {kind: Pipeline(bench.program("cost", rows, **more), rows=4, microbatches=1) for kind, more in kinds.items()}
    times = {kind: [] for kind in kinds}
    for n in range(7):
        for kind, pipeline in found.items():
            began = time.process_time()
            pipeline.iteration(n)
            times[kind].append(time.process_time() - began)
    medians = {kind: sorted(x[2:])[2] for kind, x in times.items()}
    bench.at_least("full_s", medians["full"], 0.1)
    bench.at_most("adapter_over_full", medians["adapter"] / medians["full"], 0.85)
    bench.at_most("frozen_half_over_full", medians["frozen_half"] / medians["full"], 0.85)
    measured.worker_over_plain(bench, sys.modules[__name__])


def memory_one(bench):
    """E11: the memory of a worker that trains an adapter, and all weights; the prediction of both."""
    measured.memory_one(bench, sys.modules[__name__])


def resume(bench):
    """E8: SIGKILL during each kind of work, resumed in 1, 2 and 3 stages: all is as without."""
    resumed.resume(bench, sys.modules[__name__], 3 if bench.short else 10, bench.fault)


# -- helpers of the parts

def troupe(*words):
    found = subprocess.run([os.environ["TROUPE_PROGRAM"], *words], capture_output=True, text=True, cwd=tempfile.gettempdir(),
                           env={**os.environ, "TROUPE_PYTHON": sys.executable})
    if found.returncode:
        raise SystemExit(found.stderr + found.stdout)


def loaded(pipeline, folder):
    for stage in pipeline.stages:
        stage.load(folder)
    return pipeline


def oracle_run(bench, base, data, updates, rates_=None, **more):
    job = bench.path("oracle.json")
    with open(job, "w") as file:
        json.dump({"updates": updates, "rows": data, "rates": rates_ or [rate] * len(updates), "clip": 1.0, **more}, file)
    found = subprocess.run([sys.executable, "-I", oracle, reference, plain_folder(bench, base), job], capture_output=True,
                           text=True)
    if found.returncode:
        raise SystemExit(found.stderr)
    return [json.loads(line) for line in found.stdout.splitlines()]


def plain_folder(bench, base):
    """The folder with 32-bit weights, which is what the oracle reads."""
    folder = bench.path(f"plain-{base}")
    if not os.path.isdir(folder):
        from troupe import safetensors
        os.mkdir(folder)
        shutil.copy(os.path.join(bench.base(base), "config.json"), folder)
        found = read_tensors(os.path.join(bench.base(base), "model.safetensors"))
        safetensors.write(os.path.join(folder, "model.safetensors"), {n: t.float() for n, t in found.items()}, {})
    return folder


def plain_difference(bench, data, kind, more, found):
    """Of the losses of three updates and of what they have trained, to the oracle's."""
    updates = [order.samples(n * 4, 4, len(data), SEED) for n in range(3)]
    pipeline = Pipeline(bench.program("qwen3-untied", bench.path("rows"), **more), rows=2, microbatches=2)
    program = pipeline.program
    names = {key: program.name_of(int(key.split(".")[0]), key.split(".", 1)[1]) for key in found[1]}
    given = {"out": bench.path("oracle.pt")}
    if kind == "frozen":
        given["frozen"] = [name for key, name in names.items() if int(key.split(".")[0]) < more["frozen_layers"]]
    if kind == "adapter":
        pairs = [pair for x in pipeline.stages[0].layers for pair in named_adapters(x.index, x.module)]
        given["adapter"] = {"scale": more["adapter_alpha"] / more["adapter_rank"], "modules": {
            names[m + ".weight"][:-len(".weight")]: {"a": x.lora_A.weight.tolist(), "b": x.lora_B.weight.tolist()}
            for m, x in pairs}}
    lines = oracle_run(bench, "qwen3-untied", data, updates, **given)
    loss, worst = max(abs(a / x["loss"] - 1) for a, x in zip(found[0], lines)), 0.0
    trained = torch.load(given["out"])
    for key, name in names.items():
        if name in trained and trained[name].norm() > 0:
            worst = max(worst, relative(found[1][key], trained[name]))
    return loss, worst


def named_matrices(index, layer):
    return [(f"{index}.{name}", x) for name, x in layer.named_modules() if isinstance(x, (blocks.Linear, blocks.Conv1D))]


def named_adapters(index, layer):
    return [(name, x) for name, x in named_matrices(index, layer) if x.lora_scale is not None]


def grad_of(pipeline, parameter):
    """A parameter's part of the stage's gradients, scaled as an update would."""
    stage = pipeline.stages[0]
    flat, at = torch.cat([g for g in stage._gradients._hosts if g is not None]), 0
    for _, _, p in (*stage._state.own, *stage._state.tied):
        if p is parameter:
            return flat[at:at + p.numel()].view(p.shape) * stage.scale
        at += p.numel()
    raise AssertionError("not a parameter of the stage")


def trained_adapter(bench, name):
    """(folder of a checkpoint, tokens, logits of the trained layers)."""
    rows = bench.rows("rows", random_rows(8))
    program = bench.program(name, rows, adapter_rank=4, adapter_alpha=8.0, learning_rate=3e-2)
    pipeline = Pipeline(program, rows=4, microbatches=1)
    for n in range(5):
        pipeline.iteration(n)
    folder = bench.path(f"checkpoint-{name}")
    checkpoint.write_index(folder, 5, pipeline.stages[0].copy(5).write(folder))
    tokens = [x % vocabulary for x in range(5, 205, 5)]
    value = torch.tensor([tokens]), torch.arange(len(tokens), dtype=torch.int32)[None]
    with torch.no_grad():
        for layer in pipeline.stages[0].layers:
            value = layer(value)
    return folder, tokens, value[0]


def export(folder, to, *more):
    troupe("export", folder, to, *more)


def logits(folder, tokens, *more):
    return engine_logits(folder, tokens, *more)


def read_tensors(path):
    from troupe.safetensors import SafeTensors

    file = SafeTensors(path)
    return {name: file.tensor(name).clone() for name in file.names}


def rounded_once(x):
    """The nearest bfloat16 of a double, of two the even one: by the distances to both neighbours."""
    near = x.float().bfloat16()
    bits = near.view(torch.int16)
    candidates = torch.stack([(bits + d).view(torch.bfloat16) for d in (-1, 0, 1)])
    distance = (candidates.double() - x).abs()
    distance[~torch.isfinite(distance)] = float("inf")
    best = distance.min(0).values
    even = torch.stack([(bits + d) % 2 == 0 for d in (-1, 0, 1)])
    score = (distance != best).double() * 2 + (~even).double()
    return candidates.gather(0, score.argmin(0, keepdim=True))[0]


parts = {"weights": weights, "packing": packing, "equal": equal, "adapter_gradients": adapter_gradients, "rates": rates,
         "adapters": adapters_, "merged": merged, "learning": learning_, "own": own,
         "cost": cost, "resume": resume, "memory_one": memory_one}
faults_of_workers = ("moments_lost", "held_rows_twice", "gradients_of_base")  # gates/sitecustomize.py
faults_of_others = (*faults_of_workers, *adapters.faults)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="bench_tuning.py", description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=parts)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plant", choices=[*faults, *faults_of_others])
    parser.add_argument("--until", metavar="LIMIT")
    parser.add_argument("--short", action="store_true", help="fewer families, cuts and kills")
    o = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if o.plant in faults:
        faults[o.plant]()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, o.short, o.plant if o.plant in faults_of_others else "", o.until)
        with contextlib.suppress(Found):
            parts[o.part](bench)
    if o.json:
        print(json.dumps({"part": o.part, "figures": bench.figures, "missed": bench.missed}))
    else:
        for name, x in bench.figures.items():
            print(f"{name:32} {x['found']:<24} {x['limit']}{'   missed' if name in bench.missed else ''}")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
