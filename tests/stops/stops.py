#!/usr/bin/env python3
"""Programs in every shape in which trainings are started (behind a shell, a pipe, timeout(1), in a group or a session of their
own, behind the launcher with loader workers) on a cluster of real processes, stopped in every way: suspend, requeue, cancel, a
time limit, drain --stop, a node's SIGTERM, a node that leaves the cluster, down. Each needs 2 of its 4 s of grace to save, a
second of them in a process that it starts for that; its loader workers must live until then. At the end each has saved, and no
process is left.

Prints the seed and a line for each point; ends with 1 if a check fails. Only Python's standard library."""

import argparse
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

CLUSTER = """name: stops
datacenters:
  - name: here
    nodes:
      - {name: busy, gpu: A100-40GB, gpus: 12, intra: pcie4, inter: eth25}
      - {name: drained, gpu: A100-80GB, gpus: 12, intra: pcie4, inter: eth25}
      - {name: ended, gpu: V100-32GB, gpus: 12, intra: pcie4, inter: eth25}
%ssettings: {heartbeat_s: 0.3, lease_s: 20}
"""
LEAVING = "      - {name: leaves, gpu: T4, gpus: 12, intra: pcie4, inter: eth25}\n"

TRAIN = """import os, signal, subprocess, sys, time

mark, loads = sys.argv[1], "loads" in sys.argv
mark += "." + os.environ["TROUPE_ATTEMPT"]
workers = []
stopping = False


def stop(*_):
    global stopping
    stopping = True  # a launcher may pass on a signal that has come already


def save():
    time.sleep(1)
    subprocess.run(["sleep", "1"], check=True)
    for pid in workers:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            sys.exit("a loader worker died before the save")
    open(mark + ".saved", "w").close()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


for _ in range(2 if loads else 0):
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(1)
    workers.append(pid)
signal.signal(signal.SIGTERM, stop)
open(mark + ".up", "w").close()
while not stopping:
    time.sleep(0.05)
save()
"""

PYTHON = "python3 -S -E"  # starts in half the time
SHAPES = {
    "shell": ["bash", "-c", f"set -e; echo begins; {PYTHON} train.py MARK; echo ends"],
    "pipe": ["sh", "-c", f"{PYTHON} train.py MARK 2>&1 | cat"],
    "timeout": ["sh", "-c", f"timeout 1000 {PYTHON} train.py MARK; echo ended"],
    "set -m": ["bash", "-c", f"set -m; {PYTHON} train.py MARK & wait"],
    "setsid": ["sh", "-c", f"setsid {PYTHON} train.py MARK & wait"],
    "launcher": ["sh", "-c", "python3 -m troupe.run train.py MARK loads; echo ended"],
}
# In this order: the last ones take nodes away.
WAYS = ("suspend", "requeue", "cancel", "time limit", "drain --stop", "reconfigure", "SIGTERM", "down")
GPU = {"drain --stop": "A100-80GB", "reconfigure": "T4", "SIGTERM": "V100-32GB"}
LIMIT_S = 6  # of jobs that are to reach it, from their start


def eventually(condition, limit_s, every_s=0.05):
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(every_s)
    return True


def processes_in(where):
    """Those of this run that are still there, by their directory and their words."""
    found = []
    for entry in glob.glob("/proc/[0-9]*"):
        try:
            words = open(entry + "/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace")
            if where in words or os.readlink(entry + "/cwd").startswith(where):
                found.append((int(entry.split("/")[2]), words))
        except OSError:
            pass
    return [(pid, words) for pid, words in found if pid != os.getpid()]


class Stops:
    def __init__(self, o, where):
        self.troupe, self.where, self.random = o.troupe, where, random.Random(o.seed)
        self.state = os.path.join(where, "state")
        self.wrong, self.points = [], []

    def path(self, name):
        return os.path.join(self.where, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def verb(self, *words, limit_s=120):
        return subprocess.run([self.troupe, *words, "--state", self.state], capture_output=True, text=True, timeout=limit_s,
                              cwd=self.where, stdin=subprocess.DEVNULL)

    def up(self):
        self.write("train.py", TRAIN)
        done = self.verb("up", self.write("cluster.yaml", CLUSTER % LEAVING), "--detach")
        if done.returncode:
            sys.exit(done.stdout + done.stderr)

    def submit(self, number, way, shape):
        mark = self.path(f"mark-{number}")
        job = {"name": f"job-{number}", "gpus": 1, "grace_s": 4, "gpu_type": GPU.get(way, "A100-40GB"),
               "command": [word.replace("MARK", mark) for word in SHAPES[shape]]}
        if way == "time limit":
            job["time_limit_s"] = LIMIT_S
        done = self.verb("submit", self.write(f"job-{number}.yaml", json.dumps(job)), "--json")
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return json.loads(done.stdout)["jobs"][0]["job"], mark

    def run(self, points):
        """Starts those jobs, and stops them in their ways."""
        running = [(way, shape, *self.submit(len(self.points) + i, way, shape)) for i, (way, shape) in enumerate(points)]
        self.points += points
        for way, shape, job, mark in running:
            if not eventually(lambda: os.path.exists(mark + ".1.up"), 60):
                self.wrong.append(f"{way}, {shape}: job {job} did not start: {self.verb('logs', str(job)).stdout[-500:]}")
        time.sleep(0.5 * self.random.random())
        for way in WAYS:
            self.stop(way, [(shape, job, mark) for w, shape, job, mark in running if w == way])

    def stop(self, way, jobs):
        if not jobs:
            return
        numbers = [str(job) for _, job, _ in jobs]
        if way in ("suspend", "requeue", "cancel"):
            self.together(lambda job: self.verb(way, job), numbers)
        elif way == "drain --stop":
            self.done(way, self.verb("drain", "drained", "--stop"))
        elif way == "reconfigure":
            self.done(way, self.verb("reconfigure", self.write("cluster.yaml", CLUSTER % "")))
        elif way == "SIGTERM":
            self.end_node("ended")
        elif way == "down":
            said = self.verb("down")
            self.done(way, said)
            if "waits at most 4 s for job" not in said.stderr:
                self.wrong.append(f"down did not say for what it waits: {said.stderr}")
        for shape, job, mark in jobs:
            # What was stopped takes 2 s; the rest is a slow machine's, which has no part in the grace.
            saved = eventually(lambda: os.path.exists(mark + ".1.saved"), 30 if way == "time limit" else 15)
            print(f"  {way:12} {shape:9} job {job:3} {'saved' if saved else 'LOST'}", flush=True)
            if not saved:
                log = "" if way == "down" else self.verb("logs", str(job), "--attempt", "1").stdout[-500:]
                self.wrong.append(f"{way}, {shape}: job {job} was not saved: {log}")
        if way == "requeue":
            self.verb("cancel", *numbers)

    def together(self, what, numbers):
        threads = [threading.Thread(target=what, args=(n,)) for n in numbers]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def done(self, way, said):
        if said.returncode:
            self.wrong.append(f"{way}: {said.stdout}{said.stderr}")

    def end_node(self, name):
        # Its keepers are forks of it.
        node = [pid for pid, words in processes_in(self.where)
                if " node " in words and f"--name {name} " in words and open(f"/proc/{pid}/comm").read() != "troupe-keeper\n"]
        for pid in node:
            os.kill(pid, signal.SIGTERM)
        if len(node) != 1 or not eventually(lambda: not os.path.exists(f"/proc/{node[0]}"), 30):
            self.wrong.append(f"node {name}, {node}, did not end")

    def end(self):
        if not any(way == "down" for way, _ in self.points):
            self.verb("down")
        if not eventually(lambda: not processes_in(self.where), 10, 0.2):
            for pid, words in processes_in(self.where):
                self.wrong.append(f"a process is left: {pid} {words}")
                os.kill(pid, signal.SIGKILL)


def choose(count, of):
    """Each shape and each way as often as the others, and each pair once before any comes twice."""
    pairs = [(way, shape) for way in WAYS for shape in SHAPES]
    of.shuffle(pairs)
    if count < len(pairs):
        ways, shapes = list(WAYS), list(SHAPES)
        of.shuffle(ways)
        of.shuffle(shapes)
        return [(ways[i % len(ways)], shapes[i % len(shapes)]) for i in range(count)]
    return (pairs + pairs)[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    o = parser.parse_args()
    o.troupe = os.path.abspath(o.troupe)
    where = tempfile.mkdtemp(prefix="troupe-stops-")
    began = time.monotonic()
    stops = Stops(o, where)
    points = sorted(choose(o.points, stops.random), key=lambda p: WAYS.index(p[0]))
    print(f"seed {o.seed}, {len(points)} points", flush=True)
    stops.up()
    try:
        most = 9  # at a time: more would measure this machine
        while points:
            last = points[0][0] if len(points) > most else None
            wave = [p for p in points if p[0] == last] if last else points
            points = [p for p in points if p[0] != last] if last else []
            stops.run(wave)
    finally:
        stops.end()
    for line in stops.wrong:
        print("WRONG:", line)
    print(f"{len(stops.points)} points in {time.monotonic() - began:.0f} s, {len(stops.wrong)} wrong"
          + (f", {where}" if o.keep else ""))
    if not o.keep:
        shutil.rmtree(where, ignore_errors=True)
    return 1 if stops.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
