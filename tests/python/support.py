"""Where the files are, and environments of programs."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import unittest

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
has_torch = importlib.util.find_spec("torch") is not None
without_torch = "needs PyTorch (Debian: python3-torch)"

_ours = ("TROUPE_", "RANK", "LOCAL_", "WORLD_SIZE", "NNODES", "NODE_RANK", "MASTER_")


def environment(**more):
    """This process' own, without what Troupe or a launcher may have set."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_ours)}
    return dict(kept, PYTHONPATH=os.path.join(root, "python"), PYTHONDONTWRITEBYTECODE="1",
                **{k: str(v) for k, v in more.items()})


def lines_of(path):
    try:
        with open(path) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def until(condition, limit_s=20):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not so after {limit_s} s")
        time.sleep(0.01)


class Scratch(unittest.TestCase):
    """A folder of its own for each test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def launch(self, *arguments, **more):
        """The launcher in a process group of its own, as a node starts it."""
        process = subprocess.Popen([sys.executable, "-m", "troupe.run", *map(str, arguments)], env=environment(**more),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()
