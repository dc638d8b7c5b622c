"""bench_pipelines kills: SIGKILL of workers, keepers and nodes during each kind of work of a training in stages."""

import contextlib
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

from pipeline_world import Cluster, Folder, complete, curve, differences, gpt, here, state_of, until, workers

kinds = ("forward", "update", "save", "index", "move")
victims = ("worker", "worker", "node", "worker", "keeper")
layers, every, spacing = 4, 2, 6
after_move_s = 4  # a move ends within that time


class Gates:
    """Files at which workers wait (gated_gpt.py)."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def set(self, place):
        (self.folder / place).touch()

    def reached(self, place):
        """The process that waits at it, once there is one."""
        def found():
            return next((int(p.name.rsplit("-", 1)[1]) for p in self.folder.glob(f"reached-{place}-*")), None)
        return until(place, found, 120)

    def open(self, place):
        for file in [*self.folder.glob(f"reached-{place}-*"), self.folder / place]:
            file.unlink(missing_ok=True)

    def begins(self):
        """(iteration, newest complete checkpoint) of each worker's first forward."""
        return [tuple(map(int, file.name.split("-")[2:])) for file in self.folder.glob("begin-*")]


class Killer:
    """Kills processes of one training at points of its work."""

    def __init__(self, cluster, job, gates, saved, seed):
        self.cluster, self.job, self.gates, self.saved = cluster, job, gates, saved
        self.random, self.stages = random.Random(seed), 2
        self.found, self.index_complete = Counter(), 0

    def kill(self, kind, victim):
        last = max([*curve(self.saved), *complete(self.saved), 0])
        iteration = last + 3 + self.random.randrange(2)
        if kind in ("save", "index"):
            iteration += iteration % every
        layer = self.random.randrange(layers + 2)
        getattr(self, kind)(iteration, layer, victim)
        self.found[f"{kind}: {victim}"] += 1

    def forward(self, iteration, layer, victim):
        self.at(f"forward-{iteration}-{layer}.{self.random.randrange(4)}", victim)

    def update(self, iteration, layer, victim):
        self.at(f"update-{iteration}-{layer}.{self.random.randrange(2)}", victim)

    def save(self, iteration, layer, victim):
        self.at(f"save-{iteration}-{layer}.{self.random.randrange(2)}", victim)

    def index(self, iteration, _, victim):
        """From the last layer's file on: at once when the index' file is seen, or after some milliseconds."""
        place = f"save-{iteration}-{layers + 1}.1"
        self.gates.set(place)
        pid = self.target(self.gates.reached(place), victim)
        folder = self.saved / f"iteration-{iteration:06d}"
        seen, end = self.random.random() < 0.5, time.monotonic() + self.random.uniform(0, 0.03)
        self.gates.open(place)
        while time.monotonic() < end + 5 * seen and not (seen and any("index" in n for n in os.listdir(folder))):
            pass
        self.sigkill(pid, victim)
        self.index_complete += (folder / "model.safetensors.index.json").exists()

    def move(self, iteration, _, victim):
        """A worker waits until the move is ordered; so does one a few iterations later, lest the training ends."""
        place, later = f"forward-{iteration}-0.0", f"forward-{iteration + spacing}-0.0"
        self.gates.set(place)
        self.gates.set(later)
        self.gates.reached(place)
        self.stages = 3 - self.stages
        ordered = threading.Thread(target=self.ordered, args=("move", self.job, "--stages", self.stages))
        ordered.start()
        time.sleep(0.3)
        self.gates.open(place)
        time.sleep(self.random.uniform(0, after_move_s))
        pids = until("a worker", lambda: workers(self.cluster.folder.path), 60)
        self.sigkill(self.target(self.random.choice(pids), victim), victim)
        self.gates.open(later)
        ordered.join()

    def ordered(self, *words):
        """It may fail: by the kill."""
        with contextlib.suppress(SystemExit):
            self.cluster.command(*words)

    def at(self, place, victim):
        self.gates.set(place)
        pid = self.gates.reached(place)
        self.sigkill(self.target(pid, victim), victim)
        self.gates.open(place)

    def target(self, worker, victim):
        """The worker, its keeper (its parent), or its node."""
        if victim == "worker":
            return worker
        keeper = parent_of(worker)
        if victim == "keeper":
            return keeper
        ancestors = [keeper]
        while ancestors[-1] > 1:
            ancestors.append(parent_of(ancestors[-1]))
        name = next((n for n, pid in self.cluster.nodes.items() if pid in ancestors), None)
        return name or node_of(worker, self.cluster.nodes)

    def sigkill(self, target, victim):
        if victim != "node":
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
            return
        pid = self.cluster.nodes[target]
        about = Path(f"/proc/{pid}")
        line = about.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
        entries = about.joinpath("environ").read_bytes().decode().split("\0")
        variables = dict(x.split("=", 1) for x in entries if "=" in x)
        os.kill(pid, signal.SIGKILL)
        time.sleep(self.random.uniform(0.5, 2))
        with open(self.cluster.folder.path / f"{target}.log", "ab") as log:
            again = subprocess.Popen(line, env=variables, cwd=self.cluster.folder.path, stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log, start_new_session=True)
        self.cluster.nodes[target] = again.pid


def parent_of(pid):
    with contextlib.suppress(OSError):
        return int(re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    return 0


def node_of(worker, nodes):
    """By the name in the worker's output's path."""
    output = os.readlink(f"/proc/{worker}/fd/1")
    return next(name for name in nodes if name in output)


def kills(o):
    steps = o.points * (spacing + 4) + 20
    arguments = {"layers": layers, "hidden": 32, "sequence": 32}
    with Folder() as folder:
        _, expected = folder.trained(1, "undisturbed", program=gpt, arguments=arguments, steps=steps)
        gates, saved = Gates(folder.path / "gates"), folder.path / "saved-killed"
        with Cluster(folder, 2) as c:
            job = c.submit(folder.job(
                here / "gated_gpt.py", name="killed", stages=2, recompute=True, steps=steps, checkpoint=str(saved),
                checkpoint_every=every, keep_checkpoints=5, max_restarts=50,
                arguments={**arguments, "gates": str(gates.folder), "saves": str(saved)}))
            killer = Killer(c, job, gates, saved, o.seed)
            for k in range(o.points):
                killer.kill(kinds[k % len(kinds)], victims[(k + k // len(kinds)) % len(victims)])
            until("the end", lambda: c.status(job)["state"] in ("finished", "failed", "cancelled"), 300)
            status = c.status(job)
        begins = gates.begins()
        return {"kills": o.points, "by_kind": dict(killer.found), "index_complete": killer.index_complete,
                "state": status["state"],
                "attempts": status["attempts"], "iterations": steps,
                "weights_equal": status["state"] == "finished" and not differences(state_of(saved), expected),
                "lost_beyond_checkpoint": sum(iteration < newest for iteration, newest in begins),
                "begins": len(begins), "leftover_processes": len(c.left), "detail": status.get("detail", "")}
