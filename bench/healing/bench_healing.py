"""Trainings that lose workers, and what it costs to be ready for that.

    bench_healing.py workers [KILLS]   of a program of two stages without peers: SIGKILL at random moments, once a training,
                                       with `on_loss: heal` and `restart` by turns: the longest time without an iteration
                                       that is new, iterations done again, curves
    bench_healing.py steady [PAIRS]    nothing is lost: seconds and processor seconds of an iteration, heal against restart,
                                       by turns: a built-in model of two pipelines of two stages, a program of one pipeline

--json prints a document. Needs PYTHONPATH=python, TROUPE_PROGRAM and PyTorch. Status 1: a limit was missed."""

import argparse
import csv
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
program = os.environ.get("TROUPE_PROGRAM", "troupe")


class Training:
    """Runs of `troupe train` with a folder of their own."""

    def __init__(self, folder, name, job, nodes):
        self.folder = os.path.join(folder, name)
        os.makedirs(self.folder)
        self.job = {**job, "name": name, "train": {**job["train"], "checkpoint": os.path.join(self.folder, "saved")}}
        self.curve_file = os.path.join(self.folder, "saved", "curve.csv")
        cluster = {"name": "one-place", "datacenters": [{"name": "dc", "nodes": [
            {"name": "n", "gpu": "T4", "gpus": 2, "count": nodes, "intra": "pcie3", "inter": "eth10"}]}],
                   "settings": {"heartbeat_s": 0.2, "lease_s": 30, "restart_s": 1}, "gpus": {"T4": {"efficiency": 0.001}}}
        for file, what in (("job.yaml", self.job), ("cluster.yaml", cluster)):
            with open(os.path.join(self.folder, file), "w") as out:
                json.dump(what, out)

    def rows(self):
        try:
            with open(self.curve_file) as file:
                return [r for r in csv.DictReader(file) if r["gradient_norm"]]
        except OSError:
            return []

    def workers(self):
        mark, found = f"TROUPE_BENCH={self.folder}\0".encode(), []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file, open(f"/proc/{pid}/cmdline", "rb") as line:
                    found += [int(pid)] if mark in file.read() and b"troupe.worker" in line.read() else []
            except OSError:
                continue
        return sorted(found)

    def run(self, kill_after=None, which=0):
        """kill_after: iterations done when a worker is killed, and a moment after that, in iterations."""
        words = [program, "train", "job.yaml", "--world", "local", "--cluster", "cluster.yaml", "--json"]
        process = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   env={**os.environ, "TROUPE_BENCH": self.folder, "TROUPE_PYTHON": sys.executable,
                                        "PYTHONPATH": os.path.join(root, "python")})
        out = []
        reader = threading.Thread(target=lambda: out.append(process.stdout.read()))
        reader.start()
        done, since, self.longest_s, self.again, killed = 0, None, 0.0, 0, False
        while process.poll() is None:
            rows, now = self.rows(), time.monotonic()
            newest = int(rows[-1]["iteration"]) if rows else 0
            if newest > done:
                self.longest_s = max(self.longest_s, now - since if since and killed else 0.0)
                done, since = newest, now
            if newest < done:
                self.again = max(self.again, done - newest)
            if kill_after is not None and not killed and done >= int(kill_after):
                time.sleep((kill_after % 1) * float(rows[-1]["seconds"]))
                os.kill(self.workers()[which], signal.SIGKILL)
                killed = True
            time.sleep(0.01)
        reader.join()
        if process.returncode:
            raise SystemExit(f"{self.folder}: a training ended with {process.returncode}: {out[0][-2000:]}")
        self.document = json.loads(out[0])
        return self

    def curve(self):
        return [(r["iteration"], r["loss"], r["gradient_norm"]) for r in self.rows()]

    def median_s(self):
        return statistics.median(float(r["seconds"]) for r in self.rows()[1:])


def gpt(iterations, **train):
    return {"global_batch": 8, "iterations": iterations, "pipeline": {"stages": 2, "microbatches": 4},
            "train": {"program": os.path.join(root, "examples", "pytorch", "gpt.py"), "seed": 3, "device": "cpu",
                      "python": sys.executable, "checkpoint_every": 20, **train}}


def built_in(iterations, **train):
    return {"model": {"name": "small", "family": "gpt", "hidden": 256, "layers": 4, "heads": 4, "sequence": 128, "vocabulary": 256},
            "global_batch": 16, "iterations": iterations, "pipeline": {"stages": 2, "microbatches": 4, "data_parallel": 2},
            "train": {"data": os.path.join(root, "configs", "data", "founding.txt"), "seed": 3, "device": "cpu",
                      "checkpoint_every": 1000, **train}}


def workers(folder, kills):
    draw, found = random.Random(7), {"heal": [], "restart": []}
    calm = Training(folder, "undisturbed", gpt(40), 1).run()
    wrong, attempts = 0, []
    for k in range(kills):
        at, which = 3 + 30 * draw.random(), draw.randrange(2)
        for how, gaps in found.items():
            t = Training(folder, f"{how}-{k}", gpt(40, on_loss=how), 1).run(at, which)
            gaps.append({"gap_s": round(t.longest_s - calm.median_s(), 3), "again": t.again})
            wrong += t.curve() != calm.curve()
            attempts += [t.document.get("heals", {}).get("count")] if how == "heal" else []
            print(f"kill {k} after {at:.2f} iterations, worker {which}: {how} {gaps[-1]}", file=sys.stderr)
    gap = {how: statistics.median(g["gap_s"] for g in gaps) for how, gaps in found.items()}
    return {"iteration_s": calm.median_s(), "kills": found, "median_gap_s": gap, "restart_over_heal": gap["restart"] / gap["heal"],
            "other_curves": wrong, "not_healed": sum(a != 1 for a in attempts),
            "lost_iterations": sum(g["again"] for g in found["heal"])}


def steady(folder, pairs):
    found = {}
    def wide(iterations, **train):
        return gpt(iterations, arguments={"hidden": 256, "layers": 6, "sequence": 128}, **train)

    for name, job, nodes in (("built_in", built_in, 2), ("program", wide, 1)):
        ratios = {"seconds": [], "processor_s": []}
        for k in range(pairs):
            each = {}
            for how in ("heal", "restart") if k % 2 else ("restart", "heal"):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                t = Training(folder, f"{name}-{how}-{k}", job(20, on_loss=how), nodes).run()
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                each[how] = (t.median_s(), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            for i, what in enumerate(ratios):
                ratios[what].append(each["heal"][i] / each["restart"][i])
        found[name] = {what: round(statistics.median(all_), 4) for what, all_ in ratios.items()}
        found[name]["iteration_s"] = each["heal"][0]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("workers", "steady"))
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if o.part == "workers":
            found = workers(folder, o.count or 10)
            missed = [k for k in ("other_curves", "not_healed", "lost_iterations") if found[k]]
            missed += ["restart_over_heal"] if found["restart_over_heal"] < 1 else []
        else:
            found = steady(folder, o.count or 7)
            missed = [n for n, x in found.items() if x["seconds"] > 1.02]
    print(json.dumps({**found, "missed": missed}) if o.json else json.dumps({**found, "missed": missed}, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
