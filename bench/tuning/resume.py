"""bench_tuning.py resume: trainings whose processes are killed, and go on in other numbers of stages, beside undisturbed ones."""

import os
import random
import sys
import time

from learning import engine_loss
from runs import Training, root
from troupe.models import rows as row_files

kinds = ("forward", "update", "evaluation", "save", "index")
blocks, rows, microbatches, save_every, evaluate_every = 3, 4, 2, 2, 4
spacing = 6  # iterations between two kills, at most
model = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": blocks, "num_attention_heads": 2,
         "intermediate_size": 48, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "vocab_size": 256}
exact = ("loss", "gradient_norm", "learning_rate", "held_out_loss")


class Killer:
    """Kills at each kind of work in turn: a worker, which the run starts again, or the run, which goes on in other stages."""

    def __init__(self, training, seed):
        self.training, self.random, self.stages, self.by_kind = training, random.Random(seed), 0, {}
        self.used = set()

    def run(self):
        self.stages = self.stages % 3 + 1
        self.used.add(self.stages)
        self.training.start(self.stages)

    def kill(self, kind, whole):
        t = self.training
        if t.process is None:
            self.run()
        every = {"evaluation": evaluate_every, "save": save_every, "index": save_every}.get(kind, 1)
        saves = kind in ("save", "index")
        iteration = max([*t.curve(), *t.complete(), 0]) + (4 if saves else 2)
        iteration += -iteration % every
        if saves:
            self.wait_for_writers(iteration)
        layer = self.random.randrange(blocks + 2)
        at = {"save": self.random.randrange(2), "index": 1}.get(kind, self.random.randrange(microbatches))
        place = f"{'save' if kind == 'index' else kind}-{iteration}-{blocks + 1 if kind == 'index' else layer}.{at}"
        t.set(place)
        pid = t.reached(place)
        if kind == "index":
            self.pass_and_wait(place, iteration)
        t.kill(t.process.pid if whole else pid)
        t.open(place)
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1

    def wait_for_writers(self, iteration):
        """Before this checkpoint: one that falls due while another is being written is left out, and so may the one before be."""
        t, place = self.training, f"forward-{iteration - 1}-0.0"
        t.set(place)
        t.reached(place)
        end = time.monotonic() + 2
        while time.monotonic() < end and max([*t.complete(), 0]) < iteration - save_every:
            time.sleep(0.005)
        t.open(place)

    def pass_and_wait(self, place, iteration):
        """From the copy of the last layer on: until the index is seen, or for some milliseconds."""
        t = self.training
        seen, end = self.random.random() < 0.5, time.monotonic() + self.random.uniform(0, 0.03)
        t.open(place)
        while time.monotonic() < end + 5 * seen and not (seen and iteration in t.complete()):
            pass


def resume(bench, parts, points, fault=""):
    """E8: parts is bench_tuning.py, whose helpers are used."""
    parts.configs["resume"] = model
    base = bench.base("resume")
    with open(os.path.join(root, "configs", "data", "capitals.jsonl")) as file:
        lines = file.readlines()
    for name, some in (("learned.jsonl", lines[10:]), ("held.jsonl", lines[:10])):
        with open(bench.path(name), "w") as file:
            file.writelines(some)
    parts.troupe("check", bench.path("held.jsonl"), "--model", base, "--rows", bench.path("held.safetensors"))
    held = row_files.Rows(bench.path("held.safetensors"), 256)
    for first, (kind, more) in enumerate((("full", {}), ("adapter", {"adapter": {"rank": 4, "alpha": 8}}))):
        job = {"name": kind, "global_batch": rows * microbatches, "iterations": points * spacing + evaluate_every,
               "pipeline": {"microbatches": microbatches},
               "train": {"base": base, "data": bench.path("learned.jsonl"), "eval_data": bench.path("held.jsonl"),
                         "learning_rate": 1e-2, "device": "cpu", "seed": 3, "checkpoint_every": save_every,
                         "evaluate_every": evaluate_every, "keep_checkpoints": 1, **more}}
        calm = Training(bench.path(f"{kind}-trained"), job)
        calm.start(1)
        calm.wait()
        killed = Training(bench.path(f"{kind}-killing"), job, fault)
        killer = Killer(killed, seed=7)
        for k in range(points):
            killer.kill(kinds[(k + 3 * first) % len(kinds)], whole=k % 2 == 0)
        if killed.process is None:
            killer.run()
        killed.wait()
        bench.at_least(f"{kind}_kills", sum(killer.by_kind.values()), points)
        bench.at_least(f"{kind}_numbers_of_stages", len(killer.used), min(3, (points + 1) // 2 + 1))
        compare(bench, parts, kind, calm, killed, base, held)
        if kind == "adapter" and not bench.short:
            ends_at_target(bench, job, calm.curve(), fault)


def compare(bench, parts, kind, calm, killed, base, held):
    expected, found = calm.curve(), killed.curve()
    for name in exact:
        wrong = [n for n, row in expected.items() if found.get(n, {}).get(name) != row[name]]
        bench.at_most(f"{kind}_{name}_unequal", len(wrong), 0)
        for n in wrong:
            print(f"{kind}, {name} of iteration {n}: {found.get(n, {}).get(name)}, expected {expected[n][name]}", file=sys.stderr)
    evaluated = sum(bool(row["held_out_loss"]) for row in expected.values())
    bench.at_least(f"{kind}_evaluations", evaluated, calm.job["iterations"] // evaluate_every)
    bench.at_most(f"{kind}_best_unequal", int(calm.best() != killed.best()), 0)
    # An adapter has its base's folder beside it, a model's folder all that is served.
    for option in ((), ("--best",)):
        folders = [bench.path(f"{kind}-{who}{''.join(option)}") for who in ("calm", "killed")]
        for training, folder in zip((calm, killed), folders):
            parts.export(training.saved, folder, *option)
        bench.at_most(f"{kind}_exported{''.join(option)}_unequal", different_files(*folders), 0)
    kept = sorted({*killed.complete()[-1:], killed.best()["iteration"]})
    bench.at_most(f"{kind}_kept_beside_newest_and_best", len(set(killed.complete()) ^ set(kept)), 0)
    bench.at_most(f"{kind}_newest_is_not_the_end", killed.job["iterations"] - killed.complete()[-1], 0)
    words = (base, held, "--adapter", folders[1]) if kind == "adapter" else (folders[1], held)
    bench.at_most(f"{kind}_held_rows_once", abs(engine_loss(parts, *words) / killed.best()["loss"] - 1), 1e-4)


def ends_at_target(bench, job, curve, fault):
    """One with a target ends at the first evaluation that reaches it, killed there and at its save, in 3, 1 and 2 stages."""
    evaluated = {n: float(row["held_out_loss"]) for n, row in curve.items() if row["held_out_loss"]}
    target = sorted(evaluated.items())[2][1]
    expected = min(n for n, loss in evaluated.items() if loss <= target)
    training = Training(bench.path("target"), {**job, "train": {**job["train"], "target_loss": target}}, fault)
    for stages, place in ((3, f"evaluation-{expected}-1.0"), (1, f"save-{expected}-{blocks + 1}.1")):
        training.start(stages)
        training.set(place)
        training.reached(place)
        training.kill(training.process.pid)
        training.open(place)
    for stages in (2, 1):  # the second time nothing is left to do
        training.start(stages)
        training.wait()
        bench.at_most(f"target_in_{stages}_ends_apart", abs(max(training.curve()) - expected), 0)
        bench.at_most(f"target_in_{stages}_saved_apart", abs(training.complete()[-1] - expected), 0)
    wrong = sum(training.curve()[n][name] != curve[n][name] for n in training.curve() for name in exact if name != "learning_rate")
    bench.at_most("target_unequal", wrong, 0)


def different_files(one, other):
    """The number of files that only one has, or whose bytes differ."""
    names = set(os.listdir(one)) | set(os.listdir(other))
    return sum(read(os.path.join(one, x)) != read(os.path.join(other, x)) for x in names)


def read(path):
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()
