"""bench_pipelines stages, schedules: times, in interleaved rounds, whose medians count."""

import json
import os
import resource
import statistics
import subprocess
import time

from pipeline_world import Folder, cluster, environment, gpt, here, plain_loop, schedules, train

max_foreign_percent = 3


class ForeignLoad:
    """The share of the processors' time since its construction that neither this process nor its children have used."""

    def __init__(self):
        self.began = self.now()

    def percent(self):
        busy, own, wall = (b - a for a, b in zip(self.began, self.now()))
        return 100 * (busy - own) / (wall * os.cpu_count())

    @staticmethod
    def now():
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, soft = map(int, file.readline().split()[1:8])
        used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        own = sum(r.ru_utime + r.ru_stime for r in used)
        return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK"), own, time.monotonic()


def quiet(measure, loads, tries):
    """measure(), again while others are busy; the load of the last try is noted."""
    for k in range(tries):
        load = ForeignLoad()
        found = measure()
        percent = load.percent()
        if percent <= max_foreign_percent or k + 1 == tries:
            loads.append(percent)
            return found


# -- stages

inner, steps_each, micro, rows = 1024, 5, 16, 8
blocks = {"count": 2, "inner": inner}  # worker_step.py: each stage has one


def stages(o):
    """Two equal halves on two cores beside both on one; the machine's own figure: two plain loops beside one."""
    found, loads = {"one": [], "two": [], "loop": [], "loops": []}, []
    with Folder() as folder:
        def staged(count):
            job = folder.job(here / "worker_step.py", name=f"stages-{count}", arguments=blocks, batch=micro * rows,
                             microbatches=micro, stages=count, steps=steps_each, schedule="gpipe",
                             cut=[2, 2] if count == 2 else [4])
            here_all = folder.write("cluster.yaml", cluster(count, together=True))
            return train(job, "--world", "local", "--cluster", here_all)["iteration_s"]["p50"]

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
            "microbatch_ms": round(statistics.median(found["one"]) / micro / 2 * 1e3, 1),
            "one_s": round(statistics.median(found["one"]), 3), "two_s": round(statistics.median(found["two"]), 3),
            "speedups": [round(x, 3) for x in speedups], "machine_speedups": [round(x, 3) for x in machine],
            "foreign_percent": round(max(loads), 1)}


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
    losses, loads = {}, []
    with Folder() as folder:
        apart = folder.write("apart.json", cluster(2))
        before = {}

        def really(schedule):
            more = ("--profile", before[schedule]) if schedule in before else ()
            document = quiet(lambda: train(gpt.with_suffix(".yaml"), "--world", "local", "--cluster", apart,
                                           "--schedule", schedule, *more), loads, o.tries)
            before[schedule] = folder.write(f"times-{schedule}.json", document)
            losses.setdefault(schedule, document["losses"])
            return document["iteration_s"]["p50"]

        def virtually(schedule):
            return train(gpt.with_suffix(".yaml"), "--world", "virtual", "--cluster", apart, "--schedule", schedule,
                         "--profile", before[schedule])["iteration_s"]["p50"]

        for schedule in schedules:
            really(schedule)
        for _ in range(o.rounds):
            for schedule in schedules:
                expected = virtually(schedule)
                real[schedule].append(really(schedule))
                percents[schedule].append(100 * (expected / real[schedule][-1] - 1))
                own[schedule].append(100 * (virtually(schedule) / real[schedule][-1] - 1))
    medians = {s: round(statistics.median(x), 1) for s, x in percents.items()}
    return {"losses_unequal": sum(x != losses[schedules[0]] for x in losses.values()), "rounds": o.rounds,
            "real_ms": {s: round(statistics.median(x) * 1e3, 1) for s, x in real.items()},
            "virtual_percent": medians, "own_percent": {s: round(statistics.median(x), 1) for s, x in own.items()},
            "worst_percent": max(medians.values(), key=abs), "limit_percent": 5,
            "foreign_percent": round(max(loads), 1)}
