"""The launcher: one process for each GPU of this node.

    python3 -m troupe.run [--nproc N] [--grace S] train.py ARGUMENTS...
    python3 -m troupe.run [--nproc N] [--grace S] -m MODULE ARGUMENTS...

The processes get torchrun's variables. When one fails, the others are ended (SIGTERM, SIGKILL after --grace seconds), and
standard error says which and why. The exit status is that of the failed process, 128 + n for signal n; 0 if all have ended
with 0. Nothing that they have started outlives the launcher.
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
_end_s = 5  # for what is killed: another user's process never ends
_stops = (signal.SIGTERM, signal.SIGINT)
# prctl()
_pr_set_pdeathsig = 1
_pr_set_child_subreaper = 36


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
    common.setdefault("PYTHONUNBUFFERED", "1")  # a process that is killed loses what it has not written
    # Without this each process takes all cores, and they wait for each other.
    if count > 1:
        common.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    return [dict(common, RANK=str(first + i), LOCAL_RANK=str(i)) for i in range(count)]


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


_prctl = ctypes.CDLL(None, use_errno=True).prctl


def _descendants():
    """This process' living descendants, parents first."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it has ended
            if state != "Z":
                children.setdefault(int(parent), []).append(int(name))
    found = children.get(os.getpid(), [])
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _kill_descendants():
    """A subreaper's: none can escape, and each becomes its child, which it reaps."""
    until = time.monotonic() + _end_s
    while time.monotonic() < until:
        for pid in _descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(_poll_s)


def _say(text):
    print(f"troupe.run: {text}", file=sys.stderr, flush=True)


class Launcher:
    """The processes of one node.

    A node signals each process of its program: the launcher passes nothing on there, so that each gets a signal once.
    Outside Troupe a signal may come to the launcher alone (kill) or to its group (a terminal): the processes have a group of
    their own, to which it passes SIGTERM and SIGINT on.
    """

    def __init__(self, command, grace_s):
        self._command = command
        self._grace_s = grace_s
        self._own_group = "TROUPE_LEASE" not in os.environ
        self._group = 0
        self._running = {}  # process: rank
        self._signalled = False
        self._failures = []  # rank, exit status
        # What a process has started becomes this one's child when that one ends.
        _prctl(_pr_set_child_subreaper, 1)

    def run(self, environments):
        for number in _stops:
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _stops)
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
            self._report()
        _kill_descendants()
        return worst([code for _, code in self._failures])

    # A process that dies with its launcher: nobody else would end it.
    def _start(self, environment):
        launcher = os.getpid()

        def prepare():
            if self._own_group:
                os.setpgid(0, self._group)
            _prctl(_pr_set_pdeathsig, signal.SIGKILL)
            if os.getppid() != launcher:  # it had died before prctl()
                os._exit(128 + signal.SIGKILL)

        child = subprocess.Popen(self._command, env=environment, preexec_fn=prepare)
        child.returncode = 0  # reaped here, not by subprocess
        self._running[child.pid] = int(environment["RANK"])
        self._group = self._group or child.pid

    def _on_signal(self, number, _):
        self._signalled = True
        if self._own_group and self._running:
            self._send(number)

    def _send(self, number):
        for pid in list(self._running):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def _reap(self, ended):
        pid, status = ended
        if pid not in self._running:
            return
        rank = self._running.pop(pid)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        if code:
            self._failures.append((rank, code))

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
        asked = not self._signalled  # those that are saving have had theirs
        self._say_why(failures, asked)
        if asked:
            self._send(signal.SIGTERM)
        until = time.monotonic() + self._grace_s
        while self._running and time.monotonic() < until:
            time.sleep(_poll_s)
            self._reap_all()
        if self._running:
            _say(f"{_ranks(self._running.values())} did not end within {self._grace_s:g} s: SIGKILL")
        self._send(signal.SIGKILL)
        while self._running:
            self._reap(os.waitpid(-1, 0))
        self._failures = failures

    def _say_why(self, failures, asks):
        for rank, code in failures:
            _say(f"rank {rank} ended with {_status(code)}{'' if asks else ', after a signal to stop'}")
        if failures and self._running:
            what = f"SIGTERM, and SIGKILL after {self._grace_s:g} s" if asks else f"at most {self._grace_s:g} s are left"
            _say(f"therefore ends {_ranks(self._running.values())}: {what}")

    def _report(self):
        """Which rank is to blame, for the node, once no process writes the file any more."""
        path = os.environ.get("TROUPE_REPORT")
        if not path or self._signalled:
            return
        code = worst([code for _, code in self._failures])
        rank = next(rank for rank, own in self._failures if own == code)
        try:
            with open(path, "a", encoding="ascii") as file:
                file.write(f"\nfailed_rank: {rank}\n")
        except OSError as e:
            _say(f"the report cannot be written: {e}")


def _ranks(ranks):
    ranks = sorted(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _status(code):
    try:
        name = f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        name = ""
    return f"exit status {code}{name}"


def worst(failures):
    """Out of memory is the cause of other ranks' failures, and the node plans the job again by it."""
    out_of_memory = int(os.environ.get("TROUPE_OOM_EXIT") or 0)
    return out_of_memory if out_of_memory in failures else max(failures, default=0)


def guarded(run):
    """run() in a child: whichever of the two processes is killed, the other one ends all that was started.

    A node needs no such help: its keeper ends them.
    """
    parent = os.getpid()
    _prctl(_pr_set_child_subreaper, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _stops)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # a terminal's signals come by way of the parent, once
        signal.signal(signal.SIGHUP, lambda *_: (_kill_descendants(), os._exit(128 + signal.SIGKILL)))
        _prctl(_pr_set_pdeathsig, signal.SIGHUP)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        code = run()
        sys.stdout.flush()
        os._exit(code)
    for number in _stops:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _stops)
    pid = 0
    while pid != child:
        pid, status = os.waitpid(-1, 0)
    for number in _stops:
        signal.signal(number, signal.SIG_IGN)  # there is nobody to pass it on to
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    _say(f"the launcher's process was ended by signal {os.WTERMSIG(status)}: what it had started is killed")
    _kill_descendants()
    return 128 + os.WTERMSIG(status)


def main(arguments=None):
    o = options(arguments)
    command = [sys.executable, *(["-m"] if o.module else []), o.program, *o.arguments]

    def run():
        return Launcher(command, o.grace).run(environments(o.nproc, os.environ))

    return run() if "TROUPE_LEASE" in os.environ else guarded(run)


if __name__ == "__main__":
    sys.exit(main())
