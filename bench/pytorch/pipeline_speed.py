"""bench_pipelines stages, schedules: times, in interleaved rounds, whose medians count."""

import contextlib
import json
import os
import statistics
import subprocess
import threading
import time

from pipeline_world import Folder, cluster, environment, gpt, here, mark, plain_loop, schedules, train

max_foreign_percent = 3


class ForeignLoad:
    """The share of the processors' time that neither this process nor those that it has started have used.

    A worker's time is not in that of waited-for children: its keeper is not waited for. It is looked up while it runs.
    """

    def __enter__(self):
        self.ours, self.ended = {}, threading.Event()  # ours: ticks by process
        self.began = self.busy(), time.monotonic()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        busy, wall_s = self.busy() - self.began[0], time.monotonic() - self.began[1]
        self.percent = 100 * (busy - sum(self.ours.values())) / os.sysconf("SC_CLK_TCK") / (wall_s * os.cpu_count())

    def watch(self):
        before = self.ticks(os.getpid())
        while not self.ended.wait(0.2):
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                with contextlib.suppress(OSError):
                    if is_ours(pid):
                        self.ours[pid] = self.ticks(pid)
        self.ours[os.getpid()] = self.ticks(os.getpid()) - before

    @staticmethod
    def busy():
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, soft = map(int, file.readline().split()[1:8])
        return user + nice + system + irq + soft

    @staticmethod
    def ticks(pid):
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


def is_ours(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return mark.encode() in file.read()


def quiet(measure, loads, tries):
    """measure(), again while others are busy; the load of the last try is noted."""
    for k in range(tries):
        with ForeignLoad() as load:
            found = measure()
        if load.percent <= max_foreign_percent or k + 1 == tries:
            loads.append(load.percent)
            return found


# -- stages

inner, steps_each, micro, rows = 1280, 5, 16, 8
blocks = {"count": 2, "inner": inner}  # worker_step.py: each stage has one


def stages(o):
    """Two equal halves on two cores beside both on one; the machine's own figure: two plain loops beside one."""
    found, loads, over_bound = {"one": [], "two": [], "loop": [], "loops": []}, [], []
    with Folder() as folder:
        def staged(count):
            job = folder.job(here / "worker_step.py", name=f"stages-{count}", arguments=blocks, batch=micro * rows,
                             microbatches=micro, stages=count, steps=steps_each, schedule="megatron",
                             cut=[2, 2] if count == 2 else [4])
            here_all = folder.write("cluster.yaml", cluster(count, together=True))
            document = train(job, "--world", "local", "--cluster", here_all)
            if count == 2:
                over_bound.append(document["iteration_s"]["p50"] / bound(document["stages"]))
            return document["iteration_s"]["p50"]

        for _ in range(o.rounds):
            found["one"].append(quiet(lambda: staged(1), loads, o.tries))
            found["two"].append(quiet(lambda: staged(2), loads, o.tries))
            found["loop"].append(quiet(lambda: loops(1), loads, o.tries))
            found["loops"].append(quiet(lambda: loops(2), loads, o.tries))
    speedups = [a / b for a, b in zip(found["one"], found["two"])]
    machine = [2 * a / b for a, b in zip(found["loop"], found["loops"])]
    speedup, machine_speedup = statistics.median(speedups), statistics.median(machine)
    return {"speedup": round(speedup, 3), "machine_speedup": round(machine_speedup, 3),
            "ratio": round(speedup / (machine_speedup / 2), 3), "limit": 1.7, "rounds": o.rounds, "microbatches": micro,
            "over_bound": round(statistics.median(over_bound), 3),
            "microbatch_ms": round(statistics.median(found["one"]) / micro / 2 * 1e3, 1),
            "one_s": round(statistics.median(found["one"]), 3), "two_s": round(statistics.median(found["two"]), 3),
            "speedups": [round(x, 3) for x in speedups], "machine_speedups": [round(x, 3) for x in machine],
            "foreign_percent": round(max(loads), 1)}


def bound(costs):
    """An iteration of two stages by the times that they have measured, without any other."""
    passes = [k["forward_s"] + k["backward_s"] for k in costs]
    return (micro - 1) * max(passes) + sum(passes) + max(k["update_s"] for k in costs)


def loops(count):
    """The median time of an iteration of plain loops side by side."""
    line = plain_loop(here / "worker_step.py", blocks, micro * rows, steps_each, micro)
    running = [subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return statistics.median(statistics.median(json.loads(p.communicate()[0])["seconds"]) for p in running)


# -- schedules

def steps(o):
    """Chains, as bench_agreement: each run is planned from, and compared with, the times of the one before it."""
    percents = {s: [] for s in schedules}
    own = {s: [] for s in schedules}
    real = {s: [] for s in schedules}
    losses, loads = [], []  # by run
    with Folder() as folder:
        apart, job = folder.write("apart.yaml", cluster(2)), folder.path / "gpt.yaml"
        text = gpt.with_suffix(".yaml").read_text().replace("program: gpt.py", f"program: {gpt}")
        job.write_text(f"{text}model: {folder.described(gpt, {'layers': 4})}\n")
        before = {}

        def really(schedule):
            more = ("--profile", before[schedule]) if schedule in before else ()
            document = quiet(lambda: train(job, "--world", "local", "--cluster", apart, "--schedule", schedule, *more),
                             loads, o.tries)
            before[schedule] = folder.write(f"times-{schedule}.json", document)
            losses.append(document["losses"])
            return document["iteration_s"]["p50"]

        def virtually(schedule):
            return train(job, "--world", "virtual", "--cluster", apart, "--schedule", schedule, "--profile",
                         before[schedule])["iteration_s"]["p50"]

        for schedule in schedules:
            really(schedule)
        for _ in range(o.rounds):
            for schedule in schedules:
                expected = virtually(schedule)
                real[schedule].append(really(schedule))
                percents[schedule].append(100 * (expected / real[schedule][-1] - 1))
                own[schedule].append(100 * (virtually(schedule) / real[schedule][-1] - 1))
    medians = {s: round(statistics.median(x), 1) for s, x in percents.items()}
    return {"losses_unequal": sum(x != losses[0] for x in losses), "rounds": o.rounds,
            "real_ms": {s: round(statistics.median(x) * 1e3, 1) for s, x in real.items()},
            "virtual_percent": medians, "own_percent": {s: round(statistics.median(x), 1) for s, x in own.items()},
            "worst_percent": max(medians.values(), key=abs), "limit_percent": 5,
            "foreign_percent": round(max(loads), 1)}
