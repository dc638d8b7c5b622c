"""A running cluster's jobs, through the `troupe` program.

The controller is found as the program finds it: `controller=`, else $TROUPE_CONTROLLER, else the file
`controller.address` in $TROUPE_STATE or ./troupe-state. Every function takes the program's options of the
connection: `controller`, `state`, `keys`, `patience` (seconds).
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from troupe.client import command
from troupe.errors import CommandError, Missing, NotInTroupe


def submit(job: str | dict | os.PathLike, wait: bool = False, **connection) -> Job:
    """Submits a job: a file's name or Path, a YAML text, or a dict with the keys of a job's file."""
    argument, text = command.as_argument(job)
    entry = _ask("submit", argument, text=text, **connection)["jobs"][0]
    submitted = Job(entry["job"], _checkpoint_of(job), **connection)
    if wait:
        submitted.wait()
    return submitted


def jobs(**connection) -> list[dict]:
    """All jobs, as `troupe status --json` has them."""
    return _ask("status", **connection)["jobs"]


def nodes(**connection) -> list[dict]:
    """All nodes, as `troupe status --json` has them."""
    return _ask("status", **connection)["nodes"]


class Job:
    """A job of a cluster by its number; `checkpoint` is the folder of its checkpoints, for curve()."""

    def __init__(self, number: int, checkpoint: os.PathLike | None = None, **connection):
        self.number = number
        self._checkpoint = checkpoint
        self._connection = connection

    def __repr__(self) -> str:
        return f"Job({self.number})"

    def status(self) -> dict:
        return self._ask("status")["jobs"][0]

    def wait(self, timeout_s: float | None = None) -> dict:
        """How the job ended: state, exit_code, attempts, detail. TimeoutError after `timeout_s`; the job goes on."""
        return self._ask("wait", timeout_s=timeout_s)["jobs"][0]

    def logs(self, rank: int = 0) -> str:
        """The output of its latest attempt on the node of that rank."""
        return self._ask("logs", rank=rank)["text"]

    def cancel(self) -> dict:
        return self._change("cancel", "cancelled")

    def suspend(self) -> dict:
        return self._change("suspend", "moved")

    def resume(self) -> dict:
        return self._change("resume", "moved")

    def move(self, gpus=None, gpu=None, nodes=None, stages=None, **layout) -> dict:
        """Moves it to other GPUs or another layout; `layout` are the other options of `troupe move`."""
        return self._change("move", "moved", gpus=gpus, gpu=gpu, nodes=nodes, stages=stages, **layout)

    def curve(self) -> dict[str, list]:
        """The columns of its curve.csv, which a training writes into its folder of checkpoints."""
        if self._checkpoint is None:
            raise Missing(f"job {self.number}: no folder of checkpoints is known; give Job(number, checkpoint)")
        file = Path(self._checkpoint) / "curve.csv"
        try:
            return _columns(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Missing(f"{file}: no such file: the training has written none yet") from None

    def _ask(self, verb: str, **options) -> dict:
        return _ask(verb, self.number, **options, **self._connection)

    def _change(self, verb: str, done: str, **options) -> dict:
        """The answer of a verb that changes the job, which it may refuse with a reason."""
        answer = self._ask(verb, **options)
        if not answer[done]:
            raise CommandError("refused", None, None, answer["reason"])
        return answer


def _ask(verb: str, *arguments, **options) -> dict:
    try:
        return command.run(verb, *arguments, **options)
    except CommandError as e:
        if e.code == "unavailable" and not _has_address(options):
            raise NotInTroupe(e.text) from None
        raise


def _has_address(options: dict) -> bool:
    # The program's order: an explicit state directory wins over $TROUPE_CONTROLLER.
    if options.get("controller"):
        return True
    state = options.get("state")
    if not state and os.environ.get("TROUPE_CONTROLLER"):
        return True
    return (Path(state or os.environ.get("TROUPE_STATE") or "troupe-state") / "controller.address").exists()


def _checkpoint_of(job: str | dict | os.PathLike) -> Path | None:
    """Only of a dict: this package reads no YAML."""
    training = job.get("train") if isinstance(job, dict) else None
    folder = training.get("checkpoint") if isinstance(training, dict) else None
    return Path(folder).absolute() if folder else None


def _columns(text: str) -> dict[str, list]:
    # The trainer may be writing: what follows the last end of line is cut.
    rows = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())
    columns: dict[str, list] = {name: [] for name in rows.fieldnames or []}
    for row in rows:
        for name, value in row.items():
            columns[name].append(command.number(value))
    return columns
