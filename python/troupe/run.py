"""The launcher: one process for each GPU of this node.

    python3 -m troupe.run [--nproc N] [--grace S] train.py ARGUMENTS...
    python3 -m troupe.run [--nproc N] [--grace S] -m MODULE ARGUMENTS...

The processes get torchrun's variables. When one fails, the others are ended (SIGTERM, SIGKILL after --grace seconds). The
exit status is that of the failed process, 128 + n for signal n; 0 if all have ended with 0.
"""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

_poll_s = 0.02
_pr_set_pdeathsig = 1  # prctl()


def options(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m troupe.run", description="Starts a program once for each GPU of this node.")
    parser.add_argument("--nproc", type=int, metavar="N", help="processes (LOCAL_WORLD_SIZE, else 1)")
    parser.add_argument("--grace", type=float, metavar="S", default=float(os.environ.get("TROUPE_GRACE_S") or 10),
                        help="from SIGTERM to SIGKILL after a failure (TROUPE_GRACE_S, else 10)")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    result = parser.parse_args(arguments)
    given = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    result.nproc = given if result.nproc is None else result.nproc
    if result.nproc < 1:
        parser.error(f"--nproc: found {result.nproc}, expected at least 1")
    # Ranks of the nodes after this one count by LOCAL_WORLD_SIZE.
    if "WORLD_SIZE" in os.environ and result.nproc != given:
        parser.error(f"--nproc: found {result.nproc}, expected LOCAL_WORLD_SIZE, {given}")
    return result


def environments(count, given):
    """The variables of each process: a node's own if it has them, else those of a single node."""
    alone = "WORLD_SIZE" not in given
    first = 0 if alone else int(given.get("RANK") or 0)
    common = dict(given, LOCAL_WORLD_SIZE=str(count))
    if alone:
        common.update(WORLD_SIZE=str(count), NNODES="1", NODE_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()))
    # Without this each process takes all cores, and they wait for each other.
    if count > 1:
        common.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    return [dict(common, RANK=str(first + i), LOCAL_RANK=str(i)) for i in range(count)]


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Launcher:
    """The processes of one node.

    A node signals the whole process group of its program: there the processes are in the launcher's group, and it passes
    nothing on, so that each gets a signal once. Outside Troupe a signal may come to the launcher alone (kill) or to its
    group (a terminal): the processes have a group of their own, to which it passes SIGTERM and SIGINT on.
    """

    def __init__(self, command, grace_s):
        self._command = command
        self._grace_s = grace_s
        self._own_group = "TROUPE_LEASE" not in os.environ
        self._group = 0
        self._running = set()
        self._signalled = False
        self._failures = []
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def run(self, environments):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        for environment in environments:
            if not self._signalled:
                self._start(environment)
        if len(self._running) < len(environments):
            self._signalled = False  # it may have come before some could get it
            self._end()
            return 128 + signal.SIGTERM
        while self._running and not self._failures:
            self._reap(os.waitpid(-1, 0))
        if self._failures:
            self._end()
        return worst(self._failures)

    # A process that dies with its launcher: nobody else would end it.
    def _start(self, environment):
        launcher = os.getpid()

        def prepare():
            if self._own_group:
                os.setpgid(0, self._group)
            self._prctl(_pr_set_pdeathsig, signal.SIGKILL)
            if os.getppid() != launcher:  # it had died before prctl()
                os._exit(128 + signal.SIGKILL)

        child = subprocess.Popen(self._command, env=environment, preexec_fn=prepare)
        child.returncode = 0  # reaped here, not by subprocess
        self._running.add(child.pid)
        self._group = self._group or child.pid

    def _on_signal(self, number, _):
        self._signalled = True
        if self._own_group and self._running:
            self._send(number)

    def _send(self, number):
        for pid in self._running:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def _reap(self, ended):
        pid, status = ended
        if pid not in self._running:
            return
        self._running.discard(pid)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        if code:
            self._failures.append(code)

    def _reap_all(self):
        while self._running:
            ended = os.waitpid(-1, os.WNOHANG)
            if ended[0] == 0:
                return
            self._reap(ended)

    # Ends that the launcher brings about say nothing about the program.
    def _end(self):
        self._reap_all()
        failures = list(self._failures)
        if not self._signalled:  # those that are saving have had theirs
            self._send(signal.SIGTERM)
        until = time.monotonic() + self._grace_s
        while self._running and time.monotonic() < until:
            time.sleep(_poll_s)
            self._reap_all()
        self._send(signal.SIGKILL)
        while self._running:
            self._reap(os.waitpid(-1, 0))
        self._failures = failures


def worst(failures):
    """Out of memory is the cause of other ranks' failures, and the node plans the job again by it."""
    out_of_memory = int(os.environ.get("TROUPE_OOM_EXIT") or 0)
    return out_of_memory if out_of_memory in failures else max(failures, default=0)


def main(arguments=None):
    o = options(arguments)
    command = [sys.executable, *(["-m"] if o.module else []), o.program, *o.arguments]
    return Launcher(command, o.grace).run(environments(o.nproc, os.environ))


if __name__ == "__main__":
    sys.exit(main())
