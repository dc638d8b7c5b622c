"""A program's side of a job: troupe.init() and the Run that it returns."""

import atexit
import math
import operator
import os
import sys
import time
from collections import deque

from troupe import order
from troupe.program.agreement import Agreement, distributed
from troupe.errors import BadReport, Missing
from troupe.program.reports import Control, Report

_largest = 10**15  # the node ignores larger numbers
_steps_kept = 32  # the median of these is step_s


def init(seed=0, global_batch=None, iterations=None):
    """This process' part of the job, by the environment that the node and the launcher give it.

    Outside Troupe: rank 0 of 1 (or what a launcher says), no request to stop, and reports go nowhere. `global_batch` and
    `iterations` are for that case, and for jobs whose files have none: otherwise the job's own count. The node is told
    `iterations`, so that everyone sees N of M, and the job is done after the last one.
    """
    run = Run(os.environ, seed, global_batch, iterations)
    atexit.register(run.flush)
    return run


class Run:
    """Numbers of this process: rank, world_size, local_rank, node_rank. Of the job: global_batch, iterations (None if
    nobody has said them), lease (0 outside Troupe), attempt, resume_from (the saved iterations that the controller knows
    of), grace_s (from the request to stop to SIGKILL).

    Iterations count from the job's beginning. Those of report(), saved() and resumed() are *completed* ones: after
    iteration i of steps(), that is i + 1.
    """

    def __init__(self, environment, seed=0, global_batch=None, iterations=None):
        number = _Numbers(environment)
        self.seed = seed
        self.rank = number("RANK", 0)
        self.world_size = number("WORLD_SIZE", 1)
        self.local_rank = number("LOCAL_RANK", 0)
        self.node_rank = number("NODE_RANK", 0)
        self.global_batch = number("TROUPE_GLOBAL_BATCH", global_batch)
        said = None if iterations is None else _count(iterations, "iterations")
        self.iterations = number("TROUPE_ITERATIONS", said)
        self.lease = number("TROUPE_LEASE", 0)
        self.attempt = number("TROUPE_ATTEMPT", 1)
        self.resume_from = number("TROUPE_ITERATION", 0)
        self.grace_s = number("TROUPE_GRACE_S", None, float)
        if not 0 <= self.rank < self.world_size:
            raise Missing(f"found RANK {self.rank} and WORLD_SIZE {self.world_size}, expected a rank below the size")

        # Each node reads a file of its own: its first process says that the control file is read, and that all is done.
        # The progress is rank 0's alone.
        first = self.local_rank == 0
        self._report = Report(environment.get("TROUPE_REPORT") or None if first else None)
        self._control = Control(environment.get("TROUPE_CONTROL") or None)
        self._agreement = None
        self._stop = False
        self._resumed = None
        self._iteration = None
        self._saved = None
        self._reported_at = None
        self._step_times = deque(maxlen=_steps_kept)
        self._loss = None
        # The job's file comes first. Without its number the program's own is the job's.
        if said is not None and not environment.get("TROUPE_ITERATIONS"):
            self._tell(last=said)
        self._report.set(control=1)
        self._report.flush()

    def share(self):
        """The number of this rank's samples of a global batch. They add up; two ranks differ by at most 1."""
        return order.share(self._batch(), self.rank, self.world_size)[1]

    def indices(self, iteration, length):
        """This rank's samples of iteration `iteration` (from 0) of a dataset of `length`: a list of share() numbers.

        The global batch of an iteration is the same for any number of ranks; troupe.order says how it is made.
        """
        iteration = _count(iteration, "iteration")
        length = _count(length, "length")
        if length == 0:
            raise Missing("found a dataset of length 0, expected samples")
        first, size = order.share(self._batch(), self.rank, self.world_size)
        return order.samples(iteration * self._batch() + first, size, length, self.seed)

    def steps(self, start=None):
        """The iterations from `start` (resume_from, unless the program has resumed elsewhere) to the job's last, until
        should_stop()."""
        if self.iterations is None:
            raise Missing("found no TROUPE_ITERATIONS, expected it or init(iterations=N)")
        self.resumed(self.resume_from if start is None else start)
        for iteration in range(self._resumed, self.iterations):
            if self.should_stop():
                return
            yield iteration
        self._settle()

    def resumed(self, iteration):
        """This attempt goes on after that many iterations; to be said before the first report. steps() says it."""
        iteration = _count(iteration, "resumed")
        if self._iteration is not None:
            raise BadReport(f"found resumed {iteration} after the report of iteration {self._iteration}")
        self._resumed = iteration
        self._tell(resumed=iteration)

    def report(self, iteration, loss=None):
        """`iteration` iterations are complete. Cheap: a file is written every 0.5 s. A tensor may be the loss: it is read
        when the file is written."""
        iteration = _count(iteration, "iteration")
        done = self._done()
        if iteration < done:
            raise BadReport(f"found iteration {iteration} after {done}, expected one that does not fall")
        if self._resumed is None:
            self.resumed(self.resume_from)
        self._count_step(iteration - done)
        self._iteration = iteration
        if loss is not None:
            self._loss = loss.detach() if hasattr(loss, "detach") else _real(loss)
        self._tell(iteration=iteration, step_s=self._step_s, loss=self._loss_now, peak_bytes=_peak_bytes)
        if self._report.due():
            self._report.flush()

    def should_stop(self):
        """Whether the program should save and exit now. Between steps, on every rank.

        With torch.distributed all ranks get the same answer in the same call: a request that one of them has seen in one
        call is everyone's answer in the next. Without it, each process reads its own file.
        """
        if not self._stop:
            self._stop = self._ask()
            if self._stop:
                self._report.flush()
        return self._stop

    def saved(self, iteration):
        """The checkpoint after `iteration` iterations is complete and durable: a later attempt may begin there."""
        iteration = _count(iteration, "saved")
        if iteration > self._done():
            raise BadReport(f"found saved {iteration} after iteration {self._done()}, expected at most that")
        if self._saved is not None and iteration < self._saved:
            raise BadReport(f"found saved {iteration} after saved {self._saved}, expected one that does not fall")
        self._saved = iteration
        self._tell(saved=iteration)
        self._report.flush()

    def fence(self, path):
        """Context manager: raises StaleLease if a newer lease has the directory `path`. No other lease can take it while
        the body runs, which should be short: the rename that makes a checkpoint visible."""
        from troupe.program.fence import Fence

        return Fence(path, self.lease)

    def finish(self):
        """All is done: exit status 0 finishes the job, even if a stop was requested."""
        self._settle()
        self._report.set(finished=1)
        self._report.flush()

    def flush(self):
        """Writes what is not yet written. At exit it happens by itself."""
        self._report.flush()

    def _batch(self):
        if not self.global_batch:
            raise Missing("found no TROUPE_GLOBAL_BATCH, expected it or init(global_batch=N)")
        return self.global_batch

    def _done(self):
        if self._iteration is not None:
            return self._iteration
        return self.resume_from if self._resumed is None else self._resumed

    def _tell(self, **lines):
        if self.rank == 0:
            self._report.set(**lines)

    # Every rank reads its node's file: a request may reach one node sooner than another.
    def _ask(self):
        requested = self._control.stop_requested()
        dist = distributed()
        if dist is None:
            return requested
        # A program may end its group and make another one, whose ranks agree anew.
        if self._agreement is None or self._agreement.world is not dist.group.WORLD:
            self._agreement = Agreement(dist)
        return self._agreement.next(requested)

    def _settle(self):
        if self._agreement is not None and self._agreement.last():
            self._stop = True

    # Before the first report there was no step of known length, but imports, a context and a checkpoint.
    def _count_step(self, iterations):
        now = time.monotonic()
        if self._reported_at is not None and iterations > 0:
            self._step_times.append((now - self._reported_at) / iterations)
        self._reported_at = now

    def _step_s(self):
        times = sorted(self._step_times)
        return f"{times[len(times) // 2]:.6g}" if times else None

    def _loss_now(self):
        if self._loss is None:
            return None
        loss = float(self._loss)
        return f"{loss:.9g}" if math.isfinite(loss) else None


class _Numbers:
    def __init__(self, environment):
        self._environment = environment

    def __call__(self, name, default, kind=int):
        text = self._environment.get(name)
        if not text:
            return default
        try:
            return kind(text)
        except ValueError:
            raise Missing(f"{name}: found '{text}', expected a number") from None


def _count(value, what):
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not 0 <= number <= _largest:
        raise BadReport(f"{what}: found {value!r}, expected a number of 0 to {_largest}")
    return number


def _real(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadReport(f"loss: found {value!r}, expected a number") from None


def _peak_bytes():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return cuda.max_memory_allocated()
