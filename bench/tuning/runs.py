"""Trainings of a folder by `troupe train`, for parts of bench_tuning.py."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))


class Training:
    """Runs of `troupe train` with one checkpoint folder, whose workers have gates and marks (gates/sitecustomize.py)."""

    def __init__(self, folder, job, fault="", marks=""):
        """marks: cpu or memory, if the workers note such figures."""
        self.folder, self.saved, self.gates = folder, os.path.join(folder, "saved"), os.path.join(folder, "gates")
        self.job, self.fault, self.marks, self.runs, self.process = job, fault, marks, 0, None
        os.makedirs(self.gates)

    def start(self, stages):
        self.runs += 1
        pipeline = {**self.job["pipeline"], "stages": stages}
        document = {**self.job, "pipeline": pipeline, "train": {**self.job["train"], "checkpoint": self.saved}}
        with open(os.path.join(self.folder, "job.yaml"), "w") as file:
            json.dump(document, file)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
        places = os.pathsep.join([os.path.join(here, "gates"), os.path.join(root, "python")])
        words = [os.environ["TROUPE_PROGRAM"], "train", "job.yaml", "--world", "local", "--json",
                 "--state", os.path.join(self.folder, f"state-{self.runs}")]
        with open(os.path.join(self.folder, "output"), "w") as output:
            self.process = subprocess.Popen(
                words, cwd=self.folder, stdout=output, stderr=output, start_new_session=True,
                env={**kept, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1", "TROUPE_PYTHON": sys.executable,
                     "TUNING_GATES": self.gates, "TUNING_FAULT": self.fault, "TUNING_MARKS": self.marks})

    def ended(self):
        """Whether the run has; one that has failed ends the measurement."""
        if self.process is None or self.process.poll() is None:
            return self.process is None
        if self.process.returncode != 0:
            with open(os.path.join(self.folder, "output")) as file:
                raise SystemExit(f"a training ended with {self.process.returncode}: {file.read()[-3000:]}")
        self.process = None
        return True

    def wait(self):
        self.until("the end of a training", self.ended, 300)

    def kill(self, pid):
        """A worker, or the run itself and with it all of its processes."""
        os.kill(pid, signal.SIGKILL)
        if pid == self.process.pid:
            self.process.wait()
            self.process = None
            self.until("the end of its workers", lambda: not self.workers())

    def workers(self):
        """Processes that have this training's gates in their environment."""
        mark, found = f"TUNING_GATES={self.gates}\0".encode(), []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/environ", "rb") as file:
                    found += [int(pid)] if mark in file.read() else []
        return found

    def until(self, what, condition, limit_s=90):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            time.sleep(0.005)
        with open(os.path.join(self.folder, "output")) as file:
            raise SystemExit(f"{what}: not within {limit_s} s; {file.read()[-3000:]}")

    # -- gates

    def set(self, place):
        with open(os.path.join(self.gates, place), "w"):
            pass

    def reached(self, place):
        def found():
            if self.process and self.process.poll() is not None:
                self.ended()
                raise SystemExit(f"the training ended before {place}")
            return next((int(x.rsplit("-", 1)[1]) for x in os.listdir(self.gates) if x.startswith(f"reached-{place}-")), None)
        return self.until(place, found)

    def open(self, place):
        for name in os.listdir(self.gates):
            if name == place or name.startswith(f"reached-{place}-"):
                os.unlink(os.path.join(self.gates, name))

    # -- what it has left

    def marked(self, name="marks"):
        """[(iteration, figure)] that the worker of a single stage has noted."""
        with open(os.path.join(self.gates, name)) as file:
            return [(int(n), float(x)) for n, x in (line.split() for line in file)]

    def document(self):
        with open(os.path.join(self.folder, "output")) as file:
            text = file.read()
        return json.loads(text[text.index("\n{\n") if not text.startswith("{") else 0:])

    def curve(self):
        """{iteration: its row}; of one that was computed again the last."""
        path = os.path.join(self.saved, "curve.csv")
        if not os.path.exists(path):
            return {}
        with open(path) as file:
            return {int(row["iteration"]): row for row in csv.DictReader(file, restval="") if (row["iteration"] or "").isdigit()}

    def complete(self):
        if not os.path.isdir(self.saved):
            return []
        return sorted(int(x.split("-")[1]) for x in os.listdir(self.saved) if x.startswith("iteration-") and
                      os.path.exists(os.path.join(self.saved, x, "model.safetensors.index.json")))

    def best(self):
        with open(os.path.join(self.saved, "best.json")) as file:
            return json.load(file)
