"""bench_tuning.py learning, own: the jobs configs/jobs/tune-*.yaml learn what they are for, by the logits of exported adapters."""

import csv
import os

from runs import root
from troupe.models import rows as row_files

base = os.path.join(root, "configs", "models", "scribe-chat")
sets = ("capitals", "units", "desk")


def learning(bench, parts):
    """E12: 40 updates of an adapter on the shipped chat model; the exported one has the loss of the training's evaluation."""
    adapter, evaluated = tuned(bench, parts, "capitals")
    rows = held_out(bench, parts, "capitals")
    found, before = (engine_loss(parts, base, rows, *more) for more in (("--adapter", adapter), ()))
    bench.at_most("adapter_over_base", found / before, 0.8)
    bench.at_most("served_against_evaluated", abs(found / evaluated - 1), 1e-4)


def own(bench, parts):
    """Three adapters, three data sets: held-out examples have the lowest loss by the adapter that has learned their like."""
    adapters = {name: tuned(bench, parts, name)[0] for name in sets}
    for name in sets:
        rows = held_out(bench, parts, name)
        losses = {other: engine_loss(parts, base, rows, "--adapter", folder) for other, folder in adapters.items()}
        before = engine_loss(parts, base, rows)
        bench.at_most(f"{name}_over_base", losses[name] / before, 0.8)
        bench.at_most(f"{name}_over_others", losses[name] / min(x for other, x in losses.items() if other != name), 0.999)


def tuned(bench, parts, name):
    """(the exported adapter, the last held-out loss) of the shipped job."""
    configs, out = os.path.join(root, "configs"), bench.path(f"out-{name}")
    with open(os.path.join(configs, "jobs", f"tune-{name}.yaml")) as file:
        text = file.read()
    with open(bench.path(f"tune-{name}.yaml"), "w") as file:
        file.write(text.replace(f"../../out/tune-{name}", out).replace("../", configs + "/"))
    parts.troupe("train", bench.path(f"tune-{name}.yaml"), "--world", "local", "--state", bench.path(f"state-{name}"))
    with open(os.path.join(out, "curve.csv")) as file:
        evaluated = float(list(csv.DictReader(file))[-1]["held_out_loss"])
    parts.export(out, bench.path(name))
    return bench.path(name), evaluated


def held_out(bench, parts, name):
    file = bench.path(f"{name}.safetensors")
    parts.troupe("check", os.path.join(root, "configs", "data", f"{name}-held-out.jsonl"), "--model", base, "--rows", file)
    return row_files.Rows(file, 260)


def engine_loss(parts, folder, rows, *more):
    """The mean over all targets, by the inference engine's logits."""
    total = count = 0
    for i in range(len(rows)):
        tokens, _, targets = rows[i]
        kept = targets != -100
        scores = parts.torch.log_softmax(parts.logits(folder, tokens.tolist(), *more).double(), dim=-1)
        total -= float(scores[kept, targets[kept]].sum())
        count += int(kept.sum())
    return total / count
