"""Simulations and plans, by the `troupe` program: no cluster is needed."""

from __future__ import annotations

import os

from troupe.client import command
from troupe.errors import Error, Missing

_texts = {"name", "state", "nodes", "reason", "merged_with"}


class Results:
    """A simulation's results; `document` is the whole of `troupe simulate --json`."""

    def __init__(self, document: dict, jobs: dict[str, list[dict]]):
        self.document = document
        self._jobs = jobs

    @property
    def records(self) -> list[dict]:
        """A dict a policy."""
        return self.document["policies"]

    def jobs(self, policy: str) -> list[dict]:
        """A dict a job: the rows of jobs-POLICY.csv, numbers as such, and None for those that are empty."""
        if policy not in self._jobs:
            raise Error(f"no policy {policy!r} in these results; policies: {', '.join(self._jobs)}")
        return self._jobs[policy]

    def frame(self):
        """The records as a pandas.DataFrame."""
        try:
            import pandas
        except ImportError:
            raise Missing("frame() needs pandas, which is not installed; `records` has the same as dicts") from None
        return pandas.DataFrame(self.records)


def simulate(
    *,
    cluster: str | dict | os.PathLike,
    trace: str | os.PathLike | None = None,
    jobs: list[dict] | None = None,
    files: list[str] | None = None,
    policies: list[str] = ("troupe",),
    seed: int = 1,
    faults: str | os.PathLike | None = None,
    **options,
) -> Results:
    """Replays a trace file, `jobs` (dicts with a trace's columns) or job files, in virtual time under each policy.

    A job's file may have `@SECONDS` behind its name: it is submitted then.
    `options` are others of `troupe simulate`, such as workload="as-is".
    """
    if sum(given is not None for given in (trace, jobs, files)) != 1:
        raise TypeError("simulate() takes one of trace=, jobs= and files=")
    with _folder() as folder:
        if jobs is not None:
            trace = _written(folder, "trace.csv", _trace_of(jobs))
        document = command.run(
            "simulate",
            cluster=_cluster_file(folder, cluster),
            trace=trace,
            job=files,
            policy=list(policies),
            seed=seed,
            faults=faults,
            out=os.path.join(folder, "out"),
            **options,
        )
        names = [record["policy"] for record in document["policies"]]
        return Results(document, {name: _rows(os.path.join(folder, "out", f"jobs-{name}.csv")) for name in names})


def plan(job: str | dict | os.PathLike, cluster: str | dict | os.PathLike, policy: str = "troupe", **options) -> dict:
    """A job's plans and the policy's choice, as `troupe plan --json` has them; `feasible`: there is a choice."""
    return _about_job("plan", job, cluster, policy=policy, **options)


def estimate(job: str | dict | os.PathLike, cluster: str | dict | os.PathLike, stages: list[str], **options) -> dict:
    """The time and memory of a given plan, as `troupe estimate --json` has them; a stage is "GPU:LAYERS"."""
    return _about_job("estimate", job, cluster, stages=list(stages), **options)


def _about_job(verb: str, job: str | dict | os.PathLike, cluster: str | dict | os.PathLike, **options) -> dict:
    argument, text = command.as_argument(job)
    with _folder() as folder:
        return command.run(verb, argument, text=text, cluster=_cluster_file(folder, cluster), **options)


def _folder():
    from tempfile import TemporaryDirectory

    return TemporaryDirectory(prefix="troupe-")


def _cluster_file(folder: str, cluster: str | dict | os.PathLike) -> str:
    text = command.as_text(cluster)
    return os.fspath(cluster) if text is None else _written(folder, "cluster.yaml", text)


def _written(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _trace_of(jobs: list[dict]) -> str:
    """A trace file; jobs without a number get their place, from 1."""
    numbered = [{"job_id": i, **job} for i, job in enumerate(jobs, 1)]
    # A dict, because the order of the columns must not depend on hashes.
    columns = list(dict.fromkeys(name for job in numbered for name in job))
    lines = [",".join(_field(job.get(name)) for name in columns) for job in numbered]
    return "\n".join([",".join(columns), *lines]) + "\n"


def _field(value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ";".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    if any(c in text for c in ',"\n\r'):
        raise Error(f"found {text!r} in a job of a trace, expected no comma, quote or end of line")
    return text


def _rows(path: str) -> list[dict]:
    import csv

    with open(path, newline="", encoding="utf-8") as file:
        return [
            {name: text if name in _texts else command.number(text) for name, text in row.items()}
            for row in csv.DictReader(file)
        ]
