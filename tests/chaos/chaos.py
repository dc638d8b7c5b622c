#!/usr/bin/env python3
"""A cluster of ten processes with keys under SIGKILL, SIGSTOP, orderly ends of nodes, steps of the wall clock and
reconfigurations (a node leaves and joins, nodes change places in the file, the lease changes), while jobs are submitted and
cancelled, some behind launch scripts and pipes and with workers, and clients of its front read streams of a served model.
At the end: every accepted job has ended once,
no GPU was granted twice, no two attempts of a job lived at a time (what their programs started included), every stream
had the tokens of the undisturbed answer, nothing is left running, and no process grew or ended by itself.

Prints a table of figures; ends with 1 if a check fails. Only Python's standard library."""

import argparse
import collections
import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from streams import Streams

CLUSTER = """name: chaos
datacenters:
  - name: north
    nodes:
      - {name: n1, gpu: A100-40GB, gpus: 4, intra: nvlink, inter: ib100}
      - {name: n2, gpu: A100-40GB, gpus: 4, intra: nvlink, inter: ib100}
%s  - name: east
    nodes:
      - {name: e1, gpu: A100-80GB, gpus: 4, intra: nvlink, inter: ib100}
      - {name: e2, gpu: V100-32GB, gpus: 4, intra: pcie3, inter: eth25}
  - name: west
    nodes:
      - {name: w1, gpu: RTX2080Ti, gpus: 8, intra: pcie3, inter: eth25}
wan:
  - {between: [north, east], rtt_ms: 40, node_gbps: 5, connection_gbps: 0.586}
  - {between: [north, west], rtt_ms: 40, node_gbps: 5, connection_gbps: 0.586}
  - {between: [east, west], rtt_ms: 40, node_gbps: 5, connection_gbps: 0.586}
fronts:
  - {name: front-1, datacenter: east, http: "127.0.0.1:%d"}
settings: {heartbeat_s: 0.2, lease_s: %.1f, restart_s: 5, checkpoint_s: 60}
"""
LEAVING = "n3"  # the node that leaves and joins
LEAVING_ENTRY = "      - {name: n3, gpu: A100-40GB, gpus: 4, intra: nvlink, inter: ib100}\n"

JOB = """name: %s
model: {name: small, family: bert, hidden: 256, layers: 4, heads: 4, sequence: 128, vocabulary: 30522}
global_batch: 4
command: %s
"""
# How people start trainings: the words of a command, of which WORK is the program with its arguments.
SHAPES = (["WORK"], ["bash", "-c", "set -e; echo begins; WORK; echo ends"], ["sh", "-c", "WORK 2>&1 | cat"],
          ["sh", "-c", "timeout 1000 WORK"], ["bash", "-c", "set -m; WORK & wait $!"], ["sh", "-c", "setsid WORK & wait $!"])

SERVE = """name: scribe
max_restarts: 1000  # it outlives every kill, so that streams are read until the end
serve: {model: %s, kv_gb: 0.05}
"""

KINDS = ("node", "gateway", "controller", "front")
MOST_MEMORY_MB = 150  # of any process of the cluster
MOST_DESCRIPTORS = 200
OVERLAP_S = 0.1  # two stamps' distance: an attempt that is being killed may still write one


class Host:
    """One process of the cluster."""

    def __init__(self, name, command, place):
        self.name, self.command, self.place = name, command, place
        self.kind = ("controller" if name == "controller" else "gateway" if name.endswith("/gateway") else
                     "front" if name.startswith("front-") else "node")
        self.process = None
        self.stopped = False
        self.clock = os.path.join(place.dir, "clock-" + name.replace("/", "-"))
        os.makedirs(self.clock)
        self.removed = False  # from the cluster: its process has to end by itself
        self.ends = False  # it was told to
        self.log = os.path.join(place.dir, name.replace("/", "-") + ".log")
        self.set_clock(0)
        self.max_memory_mb = self.max_descriptors = 0

    def set_clock(self, ahead_s):
        with open(os.path.join(self.clock, "next"), "w") as f:
            f.write(str(ahead_s))
        os.replace(os.path.join(self.clock, "next"), os.path.join(self.clock, "all"))

    def start(self):
        environment = dict(os.environ)
        if self.place.shifted_clock:
            environment.update(LD_PRELOAD=self.place.shifted_clock, SHIFTED_CLOCK=self.clock)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=environment, cwd=self.place.dir)
        self.stopped = self.ends = False

    def up(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.process.kill()  # the process alone: what it had started must fend for itself
        self.process.wait()
        self.process = None

    def measure(self):
        if not self.up():
            return
        try:
            pid = self.process.pid
            self.max_descriptors = max(self.max_descriptors, len(os.listdir(f"/proc/{pid}/fd")))
            for line in open(f"/proc/{pid}/status"):
                if line.startswith("VmRSS:"):
                    self.max_memory_mb = max(self.max_memory_mb, int(line.split()[1]) / 1024)
        except OSError:
            pass  # it has just ended

    def actor_failure(self):
        with open(self.log, errors="replace") as f:
            lines = f.read().splitlines()
        return lines[-1] if lines else ""


class Cluster:
    def __init__(self, o, where):
        self.dir, self.troupe, self.shifted_clock = where, o.troupe, o.clock
        self.file, self.keys = self.path("cluster.yaml"), self.path("keys")
        ports = free_ports(5)
        self.http_port = ports.pop()
        self.has_leaving, self.lease_s, self.swapped = True, 2, False
        self.write_file()
        subprocess.run([o.troupe, "keys", "make", self.keys, "--cluster", self.file], check=True,
                       stdout=subprocess.DEVNULL)
        self.hosts = {}
        self.controller = f"tcp://127.0.0.1:{ports[0]}"
        self.add("controller", ["controller", "--local", "--listen", self.controller])
        others = []
        for name, port in zip(("north", "east", "west"), ports[1:]):
            listen = f"tcp://127.0.0.1:{port}"
            self.add(name + "/gateway", ["gateway", "--datacenter", name, "--listen", listen, "--controller",
                                         self.controller] + others)
            others += ["--gateway", f"{name}={listen}"]
            for node in {"north": ("n1", "n2", LEAVING), "east": ("e1", "e2"), "west": ("w1",)}[name]:
                self.add(node, ["node", "--name", node, "--gateway", listen])
            if name == "east":
                self.add("front-1", ["serve", "--name", "front-1", "--gateway", listen])

    def write_file(self):
        text = CLUSTER % (LEAVING_ENTRY if self.has_leaving else "", self.http_port, self.lease_s)
        if self.swapped:
            lines = text.splitlines(keepends=True)
            a, b = (next(i for i, line in enumerate(lines) if f"name: {n}," in line) for n in ("n1", "n2"))
            lines[a], lines[b] = lines[b], lines[a]
            text = "".join(lines)
        with open(self.file + ".next", "w") as f:
            f.write(text)
        os.replace(self.file + ".next", self.file)

    def path(self, name):
        return os.path.join(self.dir, name)

    def add(self, name, rest):
        state = self.path("state-" + name.replace("/", "-"))
        self.hosts[name] = Host(name, [self.troupe, rest[0], "--cluster", self.file, "--state", state, "--keys",
                                       self.keys] + rest[1:], self)

    def ask(self, *arguments, patience=120):
        """A client's verb; its JSON, or None."""
        return self.answer(*arguments, patience=patience)[0]

    def answer(self, *arguments, patience=120):
        """A client's verb; its JSON, or None and what it printed instead."""
        done = subprocess.run([self.troupe, *arguments, "--controller", self.controller, "--keys", self.keys,
                               "--patience", str(patience), "--json"], capture_output=True, text=True)
        try:
            if done.returncode == 0:
                return json.loads(done.stdout), ""
        except ValueError:
            pass
        return None, f"status {done.returncode}: {done.stdout}{done.stderr}"


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Workload:
    """Submits jobs, some in pairs of processes, and cancels some, until it is told to stop."""

    def __init__(self, cluster, o, seed):
        self.cluster, self.program, self.random = cluster, o.job, random.Random(seed)
        self.stamps = cluster.path("stamps")
        self.accepted, self.cancelled, self.unanswered = {}, set(), 0
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.submit_jobs, args=(i,)) for i in range(2)]
        for t in self.threads:
            t.start()

    def command(self):
        words = [self.program, self.stamps, f"{0.5 + 5 * self.random.random():.2f}", str(self.random.randrange(3))]
        shape = self.random.choice(SHAPES)
        return words if shape == ["WORK"] else [word.replace("WORK", " ".join(words)) for word in shape]

    def submit_jobs(self, which):
        for i in range(1_000_000):
            if self.over.is_set():
                return
            name = f"job-{which}-{i}"
            file = self.cluster.path(name + ".yaml")
            with open(file, "w") as f:
                f.write(JOB % (name, json.dumps(self.command())))
            reply = self.cluster.ask("submit", file)
            if not reply:
                self.unanswered += 1
                continue
            job = reply["jobs"][0]["job"]
            self.accepted[job] = name
            if self.random.random() < 0.15:
                time.sleep(self.random.random() * 2)
                if self.cluster.ask("cancel", str(job)):
                    self.cancelled.add(job)
            self.over.wait(0.5 + 2 * self.random.random())

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join()


class Chaos:
    def __init__(self, cluster, seed):
        self.cluster, self.random = cluster, random.Random(seed)
        self.done = collections.Counter()
        self.log = []  # (when, what was done to whom)
        self.by_itself = []
        self.later = []  # (when, what)
        self.reconfiguring = None  # the thread that waits for the reply
        self.not_reconfigured = []

    def run(self, actions, pause_s=1.0):
        while sum(self.done.values()) < actions:
            self.wait(pause_s * (0.5 + self.random.random()))
            self.act()
        for host in self.cluster.hosts.values():
            self.at(0, lambda h=host: self.heal(h))
        self.wait(0.1)
        while self.reconfiguring and self.reconfiguring.is_alive():
            self.wait(0.1)

    def wait(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            now = time.monotonic()
            for entry in [e for e in self.later if e[0] <= now]:
                self.later.remove(entry)
                entry[1]()
            for host in self.cluster.hosts.values():
                host.measure()
                self.look_at(host)
            asleep = time.monotonic()
            time.sleep(0.05)
            if (late := time.monotonic() - asleep - 0.05) > 0.2:
                self.log.append((asleep, f"the machine is busy: this process woke up {late:.2f} s late"))

    def at(self, after_s, what):
        self.later.append((time.monotonic() + after_s, what))

    def look_at(self, host):
        """A process that ended and was not told to."""
        if host.process is not None and host.process.poll() is not None:
            if host.ends and host.process.returncode == 0:
                host.ends, host.process = False, None
                self.at(3 * self.random.random(), lambda: self.heal(host))
                return
            if host.removed and "was removed from the cluster" in host.actor_failure():
                host.process = None
                return
            self.by_itself.append(f"{host.name} ended by itself with {host.process.returncode}: {host.actor_failure()}")
            host.start()

    def reconfigure(self):
        """Changes the cluster's file and tells the controller, whatever happens to it meanwhile."""
        c = self.cluster
        leaving = c.hosts[LEAVING]
        what = self.random.choice(("leave or join", "swap", "lease"))
        if what == "leave or join":
            if not c.has_leaving and leaving.process is not None:
                return  # it has not ended yet
            c.has_leaving = not c.has_leaving
            leaving.removed = not c.has_leaving
        elif what == "swap":
            c.swapped = not c.swapped
        else:
            c.lease_s = self.random.choice([s for s in (1.5, 2, 3) if s != c.lease_s])
        c.write_file()
        joins = what == "leave or join" and c.has_leaving

        def ask():
            # A node whose work of before has not ended cannot join yet.
            until = time.monotonic() + 60
            reply, why = c.answer("reconfigure", c.file, "--as", "operator")
            while reply is None:
                if time.monotonic() > until:
                    return self.not_reconfigured.append(f"{what}: {why}")
                time.sleep(0.5)
                reply, why = c.answer("reconfigure", c.file, "--as", "operator")
            if joins:
                self.at(0, lambda: self.heal(leaving))

        self.reconfiguring = threading.Thread(target=ask)
        self.reconfiguring.start()
        self.log.append((time.monotonic(), f"reconfigure: {what}"))
        self.done["reconfigure", "controller"] += 1

    def act(self):
        if self.random.random() < 0.12:
            if not (self.reconfiguring and self.reconfiguring.is_alive()):
                self.reconfigure()
            return
        kind = self.random.choices(KINDS, (54, 25, 12, 9))[0]
        host = self.random.choice([h for h in self.cluster.hosts.values() if h.kind == kind])
        if not host.up() or host.stopped or host.ends:
            return
        what = self.random.choices(("SIGKILL", "SIGSTOP", "SIGTERM", "clock"),
                                   (50, 35, 15 if kind == "node" else 0, 15 if self.cluster.shifted_clock else 0))[0]
        if what == "SIGTERM":
            host.ends = True
            host.process.terminate()
        elif what == "SIGKILL":
            host.kill()
            self.at(3 * self.random.random(), lambda: self.heal(host))
        elif what == "SIGSTOP":
            host.stopped = True
            host.process.send_signal(signal.SIGSTOP)
            self.at(0.3 + 5 * self.random.random(), lambda: self.heal(host))
        else:
            host.set_clock(self.random.choice((-3600, -600, -5, 0, 5, 600, 3600)))
        self.note(what, host)
        self.done[what, kind] += 1

    def note(self, what, host):
        self.log.append((time.monotonic(), f"{what} {host.name}"))

    def heal(self, host):
        if not host.up():
            if host.removed:
                return
            host.start()
            self.note("start", host)
        elif host.stopped:
            host.process.send_signal(signal.SIGCONT)
            self.note("SIGCONT", host)
        host.stopped = False


def overlaps(stamps, log):
    """Attempts of one job that lived at a time, on whatever node, and GPUs that two leases used at a time, each with
    what was done shortly before."""
    spans = collections.defaultdict(dict)  # job -> lease -> [first, last]
    devices = collections.defaultdict(dict)  # (node, device) -> lease -> [first, last]
    nodes = collections.defaultdict(set)  # lease -> names
    runs = 0
    for line in open(stamps):
        event, job, lease, node, gpus, _, at = line.split()
        runs += event == "begin"
        nodes[int(lease)].add(node)
        for table in [spans[job]] + [devices[node, d] for d in gpus.split(",")]:
            span = table.setdefault(int(lease), [float(at), float(at)])
            span[1] = float(at)

    def conflicts(tables, what):
        for key, leases in tables.items():
            in_order = sorted(leases.items(), key=lambda entry: entry[1])
            for (a, first), (b, second) in zip(in_order, in_order[1:]):
                if first[1] > second[0] + OVERLAP_S:
                    yield (f"{what} {key}: lease {a} on {', '.join(nodes[a])} lived {first[1] - second[0]:.2f} s into "
                           f"lease {b} on {', '.join(nodes[b])}; before that, in seconds since lease {b}:")
                    for when, done in log:
                        if second[0] - 8 < when < first[1]:
                            yield f"  {when - second[0]:+6.2f} {done}"

    attempts = sum(len(leases) for leases in spans.values())
    return list(conflicts(spans, "job")), list(conflicts(devices, "GPU")), attempts, runs


def left_over(where):
    """Processes of this run that are still there."""
    found = []
    for entry in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(entry, "rb").read().split(b"\0")
            if any(w.startswith(where.encode()) for w in words):
                found.append(entry.split("/")[2] + " " + b" ".join(words).decode(errors="replace"))
        except OSError:
            pass
    return found


def staying_after(cluster, limit_s):
    """Names of removed hosts whose processes have not ended by then; one may have been removed a moment ago."""
    end = time.monotonic() + limit_s
    while True:
        staying = [h.name for h in cluster.hosts.values() if h.removed and h.up()]
        if not staying or time.monotonic() > end:
            return staying
        time.sleep(0.1)


def wait_for_the_end(cluster, chaos, limit_s):
    """Until no job waits or runs. False: some still do."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        chaos.wait(0.5)
        reply = cluster.ask("queue", patience=10)
        if reply is not None and not reply["jobs"]:
            return True
    return False


def shut_down(cluster):
    for host in cluster.hosts.values():
        if host.up():
            host.process.terminate()
    until = time.monotonic() + 15
    slow = []
    for host in cluster.hosts.values():
        if host.process is None:
            continue
        try:
            host.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            slow.append(host.name)
            host.kill()
    return slow


def journal_of(o, cluster):
    said = subprocess.run([o.check, cluster.file, cluster.path("state-controller/journal.sqlite")],
                          capture_output=True, text=True).stdout.splitlines()
    jobs, facts, wrong = {}, {}, []
    for line in said:
        word, rest = line.split(" ", 1)
        if word == "job":
            job, name, state, ends = rest.split()
            jobs[int(job)] = (name, state, int(ends))
        elif word == "contradiction":
            wrong.append(rest)
        else:
            facts[word] = int(rest)
    return jobs, facts, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True)
    parser.add_argument("--job", required=True, help="the program that jobs run: chaos_job")
    parser.add_argument("--check", required=True, help="what reads the journal: chaos_check")
    parser.add_argument("--model", required=True, help="the folder of the model that is served: scribe")
    parser.add_argument("--clock", help="the library shifted_clock; without it clocks stay right")
    parser.add_argument("--actions", type=int, default=260, help="kills, stops and clock steps")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    o = parser.parse_args()
    where = tempfile.mkdtemp(prefix="troupe-chaos-")
    began = time.monotonic()
    cluster = Cluster(o, where)
    for host in cluster.hosts.values():
        host.start()
    chaos = Chaos(cluster, o.seed)
    streams = Streams(cluster.http_port)
    with open(cluster.path("serve.yaml"), "w") as f:
        f.write(SERVE % o.model)
    served = cluster.ask("submit", cluster.path("serve.yaml"))
    learnt = served is not None and streams.learn(60)
    workload = Workload(cluster, o, o.seed + 1)
    try:
        if learnt:
            streams.start()
        chaos.run(o.actions)
        workload.over.set()
        streams.stop()
        if served and cluster.ask("cancel", str(served["jobs"][0]["job"])):
            workload.cancelled.add(served["jobs"][0]["job"])
        ended = wait_for_the_end(cluster, chaos, 180)
        workload.stop()
        ended = wait_for_the_end(cluster, chaos, 60) and ended
        staying = staying_after(cluster, 30)
    finally:
        workload.over.set()
        streams.over.set()
        slow = shut_down(cluster)
    time.sleep(0.5)
    orphans = left_over(where)
    for line in orphans:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    jobs, facts, contradictions = journal_of(o, cluster)
    lost = [f"job {j} ({name})" for j, name in workload.accepted.items() if j not in jobs or jobs[j][2] == 0]
    twice = [f"job {j} ended {entry[2]} times" for j, entry in jobs.items() if entry[2] > 1]
    names = collections.Counter(entry[0] for entry in jobs.values())
    doubled = [f"{name}: {count} jobs of one submission" for name, count in names.items() if count > 1]
    uncancelled = [f"job {j} is {jobs[j][1]}" for j in workload.cancelled if j in jobs and jobs[j][1] != "cancelled"]
    job_conflicts, gpu_conflicts, attempts, runs = overlaps(workload.stamps, chaos.log)
    grown = [f"{h.name}: {h.max_memory_mb:.0f} MB, {h.max_descriptors} descriptors" for h in cluster.hosts.values()
             if h.max_memory_mb > MOST_MEMORY_MB or h.max_descriptors > MOST_DESCRIPTORS]

    print(f"seed {o.seed}, {time.monotonic() - began:.0f} s, {cluster.dir if o.keep else 'directory removed'}")
    for what in ("SIGKILL", "SIGSTOP", "SIGTERM", "clock", "reconfigure"):
        per_kind = {kind: chaos.done[what, kind] for kind in KINDS}
        print(f"  {what:11} {sum(per_kind.values()):4}  " + ", ".join(f"{k} {n}" for k, n in per_kind.items()))
    print(f"  jobs        {len(workload.accepted):4}  accepted, {workload.unanswered} not answered, "
          f"{len(workload.cancelled)} cancelled, {attempts} attempts with {runs} processes")
    print(f"  streams     {sum(streams.count.values()):4}  " + ", ".join(f"{n} {how}" for how, n in streams.count.items()))
    print("  journal          " + ", ".join(f"{v} {k}" for k, v in facts.items()))
    print("  most             " + ", ".join(
        f"{kind} {max(h.max_memory_mb for h in cluster.hosts.values() if h.kind == kind):.0f} MB and "
        f"{max(h.max_descriptors for h in cluster.hosts.values() if h.kind == kind)} descriptors"
        for kind in KINDS))
    bad = False
    for what, found in (("accepted jobs lost", lost), ("jobs ended twice", twice),
                        ("submissions with more than one job", doubled), ("cancelled jobs that were not", uncancelled),
                        ("contradictions in the journal, GPUs granted twice among them", contradictions),
                        ("GPUs used by two leases at a time", gpu_conflicts),
                        ("attempts of one job at a time", job_conflicts), ("processes left over", orphans),
                        ("streams with wrong tokens", streams.wrong),
                        ("streams that were never whole", [] if streams.count["whole"] else ["see the front's log"]),
                        ("reconfigurations without a reply", chaos.not_reconfigured),
                        ("removed nodes whose process stayed", staying),
                        ("processes that ended by themselves", chaos.by_itself), ("processes that grew", grown),
                        ("processes that did not stop when told to", slow),
                        ("jobs that did not end in time", [] if ended else ["see the queue"])):
        print(f"  {sum(not line.startswith(' ') for line in found):4}  {what}")
        for line in found[:30]:
            print(f"          {line}")
        bad = bad or bool(found)
    if not o.keep:
        shutil.rmtree(where, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
