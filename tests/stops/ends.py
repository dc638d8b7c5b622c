#!/usr/bin/env python3
"""The orderly end of nodes and of `troupe up`. Nodes that are told to end, more often than max_restarts allows losses, cost
their jobs nothing; what `up` and `down` say and wait for; that --now and a second signal do not wait. Ends with 1 if a check fails. Only Python's standard library."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CLUSTER = """name: ends
datacenters:
  - name: here
    nodes: [{name: e, gpu: A100-40GB, gpus: 4, intra: pcie4, inter: eth25}]
settings: {heartbeat_s: 0.2, lease_s: 5}
"""
RESTARTS = 7  # max_restarts is 5


def eventually(condition, limit_s=30):
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def alive(pid):
    """Not a zombie, whose parent, init, may be slow."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Test:
    def __init__(self, troupe, where):
        self.troupe, self.where, self.wrong, self.hosts = troupe, where, [], {}
        self.write("cluster.yaml", CLUSTER)
        os.mkdir(self.path("sockets"))

    def path(self, name):
        return os.path.join(self.where, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def check(self, holds, text):
        if not holds:
            self.wrong.append(text)

    def verb(self, *words, limit_s=120):
        return subprocess.run([self.troupe, *map(str, words)], capture_output=True, text=True, timeout=limit_s, cwd=self.where,
                              stdin=subprocess.DEVNULL)

    def job(self, connection, script, **more):
        """Its file `up` has a line for each attempt that has begun."""
        job = {"name": "a", "gpus": 1, "command": ["sh", "-c", f"echo up >> {self.path('up')}; " + script], **more}
        done = self.verb("submit", self.write("job.yaml", json.dumps(job)), *connection, "--json")
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return json.loads(done.stdout)["jobs"][0]["job"]

    def lines(self, name):
        try:
            with open(self.path(name)) as file:
                return len(file.readlines())
        except FileNotFoundError:
            return 0

    def attempts(self):
        return self.lines("up")

    # -- hosts by hand

    def start(self, name, *words):
        state = self.path("state-" + name)
        with open(self.path(name + ".log"), "ab") as log:
            self.hosts[name] = subprocess.Popen([self.troupe, *words, "--cluster", self.path("cluster.yaml"), "--state", state],
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def start_controller(self):
        self.start("controller", "controller", "--local", "--listen", f"ipc://{self.path('sockets/controller')}")

    def start_node(self):
        self.start("e", "node", "--name", "e", "--gateway", f"ipc://{self.path('sockets/gateway')}")

    def end(self, name):
        self.hosts[name].terminate()
        try:
            self.check(self.hosts[name].wait(30) == 0, f"{name} ended with {self.hosts[name].returncode}")
        except subprocess.TimeoutExpired:
            self.wrong.append(f"{name} did not end")
            self.hosts[name].kill()

    def restarted_nodes(self):
        connection = ("--controller", f"ipc://{self.path('sockets/controller')}")
        self.start_controller()
        self.start("gateway", "gateway", "--datacenter", "here", "--listen", f"ipc://{self.path('sockets/gateway')}",
                   "--controller", f"ipc://{self.path('sockets/controller')}")
        self.start_node()
        job = self.job(connection, f"trap 'sleep 0.3; echo >> {self.path('saved')}; exit 0' TERM; while :; do sleep 0.05; done",
                       grace_s=10)
        for n in range(RESTARTS):
            self.check(eventually(lambda: self.attempts() == n + 1), f"restart {n}: {self.attempts()} attempts")
            self.end("e")
            self.start_node()
        self.check(eventually(lambda: self.attempts() == RESTARTS + 1), "the job does not go on after the last restart")
        self.check(self.lines("saved") == RESTARTS, f"{self.lines('saved')} of {RESTARTS} stops were ones that save")
        found = json.loads(self.verb("status", job, *connection, "--json").stdout)["jobs"][0]
        self.check(found["state"] == "running" and found["attempts"] == RESTARTS + 1, f"at the end: {found}")
        with open(self.path("e.log")) as file:
            self.check("waits at most 10 s for job 1 (a)" in file.read(), "the node does not say for what it waits")
        for name in ("e", "gateway", "controller"):
            self.end(name)

    # -- `troupe up`

    def up(self):
        done = self.verb("up", "cluster.yaml", "--detach", "--json", "--state", "state")
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return json.loads(done.stdout)["process"]

    def stubborn(self):
        """A cluster with a program that takes its whole grace of a minute."""
        process = self.up()
        before = self.attempts()
        self.job(("--state", "state"), "trap '' TERM; while :; do sleep 0.1; done", grace_s=60)
        self.check(eventually(lambda: self.attempts() > before), "the job has not begun")
        return process

    def hurried_ends(self):
        self.stubborn()
        began = time.monotonic()
        done = self.verb("down", "--now", "--state", "state")
        self.check(done.returncode == 0 and time.monotonic() - began < 20, f"down --now: {time.monotonic() - began:.1f} s, {done}")
        process = self.stubborn()
        log = os.path.join(self.where, "state", "output", "up.log")
        before = os.path.getsize(log)
        os.kill(process, signal.SIGINT)

        def said():  # since then: of two equal signals that are pending at a time one is lost
            with open(log) as file:
                file.seek(before)
                return file.read()

        self.check(eventually(lambda: "waits at most 60 s for job" in said()), f"up said: {said()}")
        self.check(alive(process), "up did not wait")
        os.kill(process, signal.SIGINT)
        self.check(eventually(lambda: not alive(process), 20), "a second signal waits")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True)
    o = parser.parse_args()
    where = tempfile.mkdtemp(prefix="troupe-ends-")
    test = Test(os.path.abspath(o.troupe), where)
    try:
        test.restarted_nodes()
        test.hurried_ends()
    finally:
        for process in test.hosts.values():
            if process.poll() is None:
                process.kill()
        test.verb("down", "--now", "--state", "state")
        shutil.rmtree(where, ignore_errors=True)
    for line in test.wrong:
        print("WRONG:", line)
    return 1 if test.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
