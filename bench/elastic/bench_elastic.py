#!/usr/bin/env python3
"""Elastic programs on a real cluster of this machine: what they lose, and how well their costs are measured.

    bench_elastic resize --policy troupe     a DDP program shrinks for another job, and grows again
    bench_elastic endings                    how a program that was asked to stop may end
    bench_elastic restart                    measured start and save beside the pause
    bench_elastic start                      the parts of a PyTorch program's start, in fresh processes
    bench_elastic rates --policy troupe      a program moves to the type on which it is known to be faster
    bench_elastic agreement                  a real run beside the simulation of its jobs' files
    bench_elastic kills --points 50          SIGKILL at random moments of each kind of work

Each prints one JSON document with --json. $TROUPE_PROGRAM is the program; the package `troupe` is beside it or in
PYTHONPATH.
"""

import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import troupe
from troupe import client, order

here = Path(__file__).resolve().parent
settings = {"heartbeat_s": 0.2, "lease_s": 3, "restart_s": 1, "preempt_grace_s": 20}


def cluster_of(nodes, **other):
    """A cluster of one datacenter on this machine: names and types of nodes with one GPU each."""
    return {"name": "elastic", "datacenters": [{"name": "here", "nodes": [
        {"name": name, "gpu": gpu, "gpus": 1, "intra": "pcie3", "inter": "eth10"} for name, gpu in nodes]}],
        "settings": {**settings, **other}}


class Cluster:
    """`troupe up` in a folder of its own; stopped at the end of the context."""

    def __init__(self, policy, nodes, **other):
        self.folder = Path(tempfile.mkdtemp(prefix="bench-elastic-"))
        self.state = self.folder / "state"
        self.policy, self.nodes, self.other = policy, nodes, other

    def __enter__(self):
        file = self.folder / "cluster.yaml"
        file.write_text(json.dumps(cluster_of(self.nodes, **self.other)))
        self.command("up", str(file), "--policy", self.policy, "--state", str(self.state), "--detach")
        return self

    def __exit__(self, *failed):
        self.command("down", "--state", str(self.state), check=False)
        self.processes_left = processes_with(str(self.folder))
        for pid in self.processes_left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if failed[0] is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"kept: {self.folder}", file=sys.stderr)

    def command(self, *words, check=True):
        done = subprocess.run([program(), *words], capture_output=True, text=True)
        if check and done.returncode != 0:
            raise SystemExit(f"troupe {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def submit(self, **job):
        """With a working directory of its own."""
        folder = self.folder / job["name"]
        folder.mkdir(exist_ok=True)
        job = {"model": "gpt2-124m", "global_batch": 8, "working_directory": str(folder), **job}
        return client.submit(job, state=str(self.state)), folder


def program():
    from troupe.client import command
    return command.program()


def processes_with(text):
    """Processes whose command line or working directory has this text."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
            if text in line or text in os.readlink(entry / "cwd"):
                found.append(int(entry.name))
    return found


def sleeper(*words):
    return [sys.executable, str(here / "sleeper.py"), *map(str, words)]


def wait_for(what, condition, timeout_s=90):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise SystemExit(f"{what} did not happen within {timeout_s} s")


def iteration_of(job):
    """0: it has reported none."""
    return job.status()["iteration"] or 0


def events(folder, rank=0):
    """(time, lease, world size, GPU type, event, value) of a sleeper's rank."""
    file = folder / f"events.{rank}"
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(float(t), int(lease), int(world), gpu, event, int(value))
            for t, lease, world, gpu, event, value in rows]


# -- resize


def compared_samples(folder, iterations, batch, length=1000, seed=1):
    """How many samples of the iterations no rank has read, and how many were read more often than they are in them."""
    read = [Counter() for _ in range(iterations)]
    for file in folder.glob("samples.*"):
        for line in file.read_text().splitlines():
            iteration, *numbers = map(int, line.split())
            read[iteration].update(numbers)
    missing = twice = 0
    for i in range(iterations):
        expected = Counter(order.samples(i * batch, batch, length, seed))
        missing += (expected - read[i]).total()
        twice += (read[i] - expected).total()
    return missing, twice


def training(folder, pause_s, pause_a_sample_s=0):
    example = here.parent.parent / "examples" / "pytorch" / "train.py"
    return [sys.executable, "-m", "troupe.run", str(example), "--checkpoint", str(folder), "--every", "1000000",
            "--samples", str(folder / "samples"), "--pause", str(pause_s), "--pause-a-sample", str(pause_a_sample_s)]


def final_loss(text):
    return float(text.strip().rsplit("loss ", 1)[1])


# Times of an iteration (seconds, and seconds a sample), iterations, and seconds until the other job comes. Sia prefers two
# GPUs for one job to one for each of two jobs unless the second GPU adds little; troupe leaves a job alone for 20 restarts.
resized = {"troupe": (0, 0.02, 2400, 150), "sia": (0.25, 0.005, 1400, 130), "gandiva": (0, 0.02, 800, 15),
           "elasticflow": (0, 0.02, 1600, 20), "crius": (0, 0.02, 1600, 60)}


def resize(o):
    batch = 16
    pause, pause_a_sample, iterations, alone = resized[o.policy]
    nodes = [("a", "A100-80GB"), ("b", "A100-80GB")]
    with Cluster(o.policy, nodes) as c:
        folder = c.folder / "ddp"
        folder.mkdir()
        # The model stands for another one: its estimate would be that two GPUs over this network are slower than one.
        speeds = [{"gpu": nodes[0][1], "gpus": n, "samples_per_s": batch / (pause + pause_a_sample * batch / n)} for n in (1, 2)]
        elastic = {"gpus": [1, 2], "start_s": 4, "save_s": 0.5, "rates": speeds}
        job, _ = c.submit(name="ddp", gpus=1, global_batch=batch, iterations=iterations, elastic=elastic,
                          command=training(folder, pause, pause_a_sample), deadline_s=3600)
        # Gandiva grows a job when it decides, which needs an event after the job's start.
        opener, _ = c.submit(name="opener", gpus=1, max_gpus=1, iterations=10, command=sleeper("--step", 0.2))
        opener.wait(o.timeout)
        wait_for("two ranks", lambda: world_sizes(folder)[-1:] == [2], 200)
        time.sleep(alone)
        other, _ = c.submit(name="other", gpus=1, max_gpus=1, iterations=200, command=sleeper("--step", 0.2),
                            deadline_s=900, elastic={"gpus": "same", "start_s": 0.5})
        ended = other.wait(o.timeout)
        last = job.wait(o.timeout)
        status = job.status()
        missing, twice = compared_samples(folder, iterations, batch)
        text = job.logs()
        sizes = world_sizes(folder)
    with Cluster(o.policy, nodes) as c:  # the same, undisturbed
        folder2 = c.folder / "ddp"
        folder2.mkdir()
        alone, _ = c.submit(name="ddp", gpus=2, global_batch=batch, iterations=iterations, elastic={"gpus": "same"},
                            command=training(folder2, 0))
        alone.wait(o.timeout)
        reference = final_loss(alone.logs())
    return {"policy": o.policy, "state": last["state"], "other": ended["state"], "world_sizes": sizes,
            "lost_iterations": status.get("lost_iterations"), "stops": status.get("stops", 0),
            "samples_missing": missing, "samples_twice": twice, "loss": final_loss(text), "undisturbed": reference,
            "start_s": status.get("start_s"), "save_s": status.get("save_s"), "pause_s": status.get("pause_s")}


def world_sizes(folder):
    """The numbers of ranks, one after the other, as the training's own ranks show them."""
    ranks = {}
    for file in folder.glob("samples.*"):
        for line in file.read_text().splitlines():
            ranks.setdefault(int(line.split()[0]), set()).add(file.suffix)
    sizes = []
    for iteration in sorted(ranks):
        n = len(ranks[iteration])
        if not sizes or sizes[-1] != n:
            sizes.append(n)
    return sizes


# -- endings


def endings(o):
    out = {}
    with Cluster("troupe", [("a", "T4"), ("b", "T4")]) as c:
        def stopped(name, grace_s=4, **words):
            job, folder = c.submit(name=name, gpus=1, iterations=1000, elastic={"gpus": "same", "grace_s": grace_s},
                                   command=sleeper(*[w for k, v in words.items() for w in (f"--{k}", v)]))
            wait_for(f"{name}'s first iterations", lambda: iteration_of(job) >= 3)
            began = time.time()
            job.suspend()
            wait_for(f"{name}'s end", lambda: job.status()["state"] == "waiting", 30)
            return job, folder, time.time() - began

        job, folder, _ = stopped("exits", ending="exit")
        saved = job.status()["saved"]
        out["exit_0"] = {"state": job.status()["state"], "saved": saved,
                         "as_its_file": saved == int((folder / "done").read_text())}
        job.cancel()
        job, _, took_s = stopped("ignores", ending="ignore", grace_s=3)
        out["ignored"] = {"grace_s": 3, "ended_s": round(took_s, 2), "saved": job.status()["saved"]}
        job.cancel()
        job, folder = c.submit(name="finishes", gpus=1, iterations=5, elastic={}, command=sleeper())
        out["finish"] = job.wait(60)["state"]
        job, folder = c.submit(name="fails", gpus=1, iterations=20, elastic={"retries": 2},
                               command=sleeper("--every", 5, "--ending", "fail-once"))
        out["retried"] = {"state": job.wait(60)["state"], "attempts": job.status()["attempts"]}
        # A node dies under rank 1: rank 0 fails before the controller knows why.
        folder = c.folder / "pair"
        folder.mkdir()
        job, _ = c.submit(name="pair", gpus=2, global_batch=16, iterations=400, elastic={"gpus": "same"},
                          command=training(folder, 0.02))
        wait_for("the pair's first iterations", lambda: iteration_of(job) >= 5)
        node = [p for p in processes_with(str(c.state)) if b"\0b\0" in Path(f"/proc/{p}/cmdline").read_bytes()]
        for pid in node:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for("the pair's end", lambda: job.status()["state"] not in ("running", "stopping"), 60)
        status = job.status()
        out["node_lost"] = {"state": status["state"], "nodes_killed": len(node), "detail": status.get("detail", "")}
    return out


# -- restart


def restart(o):
    with Cluster("troupe", [("a", "T4"), ("b", "T4")]) as c:
        folder = c.folder / "moves"
        program = training(folder, 0.05) if o.torch else sleeper("--step", 0.2, "--start", 1.5, "--save", 0.7)
        job, _ = c.submit(name="moves", gpus=1, iterations=100000, elastic={"gpus": "same"}, command=program)
        shares = []
        for k in range(o.restarts):
            at = iteration_of(job)
            wait_for("iterations", lambda: iteration_of(job) >= at + 8)
            before = job.status()
            job.move(nodes=["b" if k % 2 == 0 else "a"])
            now = wait_for("the move", lambda: (s := job.status())["stops"] > k and (s["iteration"] or 0) >
                           before["iteration"] + 4 and s.get("pause_s") and s)
            shares.append((now["start_s"] + now["save_s"]) / now["pause_s"])
        status = job.status()
        job.cancel()
    return {"restarts": o.restarts, "median": round(statistics.median(shares), 3),
            "each": [round(s, 3) for s in shares], "start_s": status["start_s"], "save_s": status["save_s"],
            "pause_s": status["pause_s"], "lost_iterations": status["lost_iterations"]}


# -- start

first_step = """
import time
began = time.perf_counter()
import torch, troupe
imported = time.perf_counter()
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(8, 1024, device=device)
x.sum().item()
context = time.perf_counter()
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(12)]).to(device)
optimizer = torch.optim.AdamW(model.parameters())
built = time.perf_counter()
model(x).sum().backward()
optimizer.step()
next(model.parameters()).sum().item()
stepped = time.perf_counter()
print(torch.__version__, device, imported - began, context - imported, built - context, stepped - built)
"""


def start(o):
    rows = []
    for _ in range(o.rounds):
        done = subprocess.run([sys.executable, "-c", first_step], capture_output=True, text=True, check=True)
        version, device, *seconds = done.stdout.split()
        rows.append([float(s) for s in seconds])
    names = ("import_s", "context_s", "model_s", "first_step_s")
    return {"torch": version, "device": device, "rounds": o.rounds,
            **{name: round(statistics.median(column), 3) for name, column in zip(names, zip(*rows))}}


# -- rates

rounds = {"troupe": 0, "sia": 60, "gavel": 360, "gavel-fair": 360, "crius": 0}


def rates(o):
    """A program is twice as fast on the type that is estimated slower: is it moved there when that is free?"""
    slow, fast = ("A100-80GB", 40), ("V100-16GB", 80)
    known = [{"gpu": gpu, "gpus": 1, "samples_per_s": rate} for gpu, rate in (slow, fast)]
    with Cluster(o.policy, [("a", slow[0]), ("b", fast[0])]) as c:
        # Not elastic: no policy may stop it.
        blocker, _ = c.submit(name="blocker", gpus=1, max_gpus=1, gpu_type=fast[0], iterations=1_000_000,
                              command=sleeper("--step", 0.2))
        wait_for("the blocker's start", lambda: iteration_of(blocker) > 0, 800)
        job, folder = c.submit(name="odd", gpus=1, max_gpus=1, iterations=1_000_000,
                               elastic={"start_s": 0.5, "save_s": 0.1, "rates": [] if o.unknown else known},
                               command=sleeper("--rate", f"{slow[0]}={slow[1]}", "--rate", f"{fast[0]}={fast[1]}",
                                               "--start", 0.3, "--save", 0.1))
        wait_for("its start", lambda: iteration_of(job) > 20, 800)
        first = events(folder)[0][3]
        blocker.cancel()
        began = time.monotonic()
        limit_s = 3 * rounds[o.policy] + 60
        moved = None
        while time.monotonic() < began + limit_s and moved is None:
            time.sleep(0.2)
            moved = next((e[3] for e in events(folder) if e[3] != first), None)
        after_s = time.monotonic() - began
        if moved:
            at = iteration_of(job)
            wait_for("iterations there", lambda: iteration_of(job) > at + 100, 200)
        measured = job.status()["rates"]
        job.cancel()
    return {"policy": o.policy, "rates_known": not o.unknown, "started_on": first, "moved_to": moved,
            "after_s": round(after_s, 1), "rounds_s": rounds[o.policy], "measured": measured}


# -- agreement


def agreement(o):
    """Each job's completion in a real run, beside that of a simulation of the jobs with their measured values.

    The jobs' files have rates from the begin: without them the real run would decide by estimates, which the simulation
    does not have.
    """
    nodes = [("a", "A100-80GB"), ("b", "A100-80GB")]
    work = [(0, 0.1, 300), (4, 0.15, 300), (8, 0.05, 500), (12, 0.1, 150), (16, 0.2, 100)]  # at, a step's time, iterations
    rows = []
    for _ in range(o.rounds):
        with Cluster(o.policy, nodes) as c:
            began = time.monotonic()
            jobs = []
            for k, (at_s, step_s, iterations) in enumerate(work):
                time.sleep(max(0, began + at_s - time.monotonic()))
                known = [{"gpu": nodes[0][1], "gpus": 1, "samples_per_s": 8 / step_s}]
                job, _ = c.submit(name=f"job-{k}", gpus=1, max_gpus=1, iterations=iterations,
                                  elastic={"start_s": 1, "save_s": 0.5, "rates": known},
                                  command=sleeper("--step", step_s, "--start", 1, "--save", 0.5))
                jobs.append(job)
            for job in jobs:
                job.wait(600)
            real = [job.status() for job in jobs]
            files = []
            for k, job in enumerate(jobs):
                file = c.folder / f"job-{k}.yaml"
                file.write_text(c.command("status", str(job.number), "--job-file", "--state", str(c.state)))
                files.append(f"{file}@{real[k]['submitted_s'] - real[0]['submitted_s']}")
            words = [w for file in files for w in ("--job", file)]
            c.command("simulate", "--cluster", str(c.folder / "cluster.yaml"), "--policy", o.policy, *words,
                      "--out", str(c.folder / "out"))
            with open(c.folder / "out" / f"jobs-{o.policy}.csv", newline="") as file:
                simulated = {row["name"]: float(row["end_s"]) - float(row["submit_s"]) for row in csv.DictReader(file)}
        rows.append([simulated[s["name"]] / (s["ended_s"] - s["submitted_s"]) for s in real])
    medians = [statistics.median(column) for column in zip(*rows)]
    return {"policy": o.policy, "rounds": o.rounds, "simulated_over_real": [round(m, 3) for m in medians],
            "worst": round(max(medians, key=lambda m: abs(m - 1)), 3),
            "each": [[round(x, 3) for x in row] for row in rows]}


# -- kills

kinds = ("start", "step", "save", "stop", "move")
start_s, save_s = 0.5, 0.3


class Victim:
    """A sleeper whose processes are killed during a given kind of work."""

    def __init__(self, job, folder, seed):
        self.job, self.folder, self.random = job, folder, random.Random(seed)

    def kill_during(self, kind):
        """Returns the newest event of the program when its processes were killed."""
        seen, change = self.in_work(), None
        if kind == "start":
            self.kill()
            seen = self.event_after(seen, "begin")
            time.sleep(self.random.uniform(0, start_s * 0.9))
        elif kind == "step":
            time.sleep(self.random.uniform(0, 0.4))
        elif kind == "save":
            self.event_after(seen, "saving")
            time.sleep(self.random.uniform(0, save_s * 0.9))
        elif kind == "stop":
            change = self.begin(self.job.suspend)
            self.event_after(seen, "stopping")
            time.sleep(self.random.uniform(0, save_s * 0.9))
        else:
            other = "b" if self.job.status()["allocation"][0]["node"] == "a" else "a"
            change = self.begin(lambda: self.job.move(nodes=[other]))
            time.sleep(self.random.uniform(0, save_s + start_s + 2))
        last = events(self.folder)[-1][4]
        self.kill()
        if change:
            change.join()
        if kind == "stop":
            wait_for("the end of the stop", lambda: self.job.status()["state"] == "waiting", 30)
            self.job.resume()
        return last

    @staticmethod
    def begin(change):
        """In a thread: it returns when it is over. It may fail with the program."""
        def run():
            with contextlib.suppress(troupe.Error):
                change()
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def in_work(self):
        """Waits until an attempt has done a step; returns the number of events by then."""
        wait_for("a step", lambda: self.processes() and events(self.folder)[-1:] and events(self.folder)[-1][4] == "step")
        return len(events(self.folder))

    def event_after(self, seen, name):
        wait_for(name, lambda: any(e[4] == name for e in events(self.folder)[seen:]))
        return seen

    def processes(self):
        return [p for p in processes_with(str(self.folder)) if is_sleeper(p)]

    def kill(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kills(o):
    """SIGKILLs in turn during each kind of work: nothing beyond the last saved iteration is lost."""
    with Cluster("troupe", [("a", "T4"), ("b", "T4")]) as c:
        job, folder = c.submit(name="killed", gpus=1, iterations=1_000_000, max_restarts=1000,
                               elastic={"gpus": "same", "retries": 1000},
                               command=sleeper("--step", 0.05, "--start", start_s, "--save", save_s, "--every", 10,
                                               "--until", "enough"))
        victim = Victim(job, folder, o.seed)
        at = {kind: Counter() for kind in kinds}
        for k in range(o.points):
            kind = kinds[k % len(kinds)]
            at[kind][victim.kill_during(kind)] += 1
        victim.in_work()
        (folder / "enough").touch()
        state = job.wait(60)["state"]
        status = job.status()
        log = events(folder)
        saved_at = lost_beyond = 0
        for _, _, _, _, event, value in log:
            if event == "saved":
                saved_at = value
            if event == "resumed" and value < saved_at:
                lost_beyond += 1
        time.sleep(0.5)
        left = victim.processes()
    return {"kills": o.points, "killed_after": {kind: dict(found) for kind, found in at.items()},
            "attempts": status["attempts"], "saved": status["saved"], "lost_beyond_checkpoint": lost_beyond,
            "leftover_processes": len(left) + len(c.processes_left), "state": state,
            "ended": sum(e[4] == "finished" for e in log)}


def is_sleeper(pid):
    with contextlib.suppress(OSError):
        return b"sleeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    verbs = parser.add_subparsers(required=True)

    def verb(name, does, *options):
        p = verbs.add_parser(name)
        p.add_argument("--json", action="store_true")
        for option, default in options:
            if default is False:
                p.add_argument(option, action="store_true")
            else:
                p.add_argument(option, type=type(default), default=default)
        p.set_defaults(does=does)

    verb("resize", resize, ("--policy", "troupe"), ("--timeout", 900.0))
    verb("endings", endings)
    verb("restart", restart, ("--restarts", 10), ("--torch", False))
    verb("start", start, ("--rounds", 5))
    verb("rates", rates, ("--policy", "troupe"), ("--unknown", False))
    verb("agreement", agreement, ("--policy", "troupe"), ("--rounds", 5))
    verb("kills", kills, ("--points", 50), ("--seed", 1))
    o = parser.parse_args()
    result = o.does(o)
    print(json.dumps(result) if o.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


main()
