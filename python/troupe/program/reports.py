"""The files between a program and its node: $TROUPE_REPORT, which the program writes, and $TROUPE_CONTROL, which it reads."""

import os
import sys
import time

_pause_s = 0.5  # between writes that are not urgent


class Report:
    """The lines of $TROUPE_REPORT. Without a path nothing is written."""

    def __init__(self, path):
        self._path = path
        self._lines = {}
        self._written_at = float("-inf")
        self._waiting = False
        self._failed = False
        # A child that fork() made must not write what its parent had at that moment.
        self._owner = os.getpid()

    def due(self):
        return self._path is not None and time.monotonic() - self._written_at >= _pause_s

    def set(self, **lines):
        """A function as value is called at the next write."""
        if self._path is not None:
            self._lines.update(lines)
            self._waiting = True

    def flush(self):
        if not self._waiting or os.getpid() != self._owner:
            return
        self._waiting = False
        self._written_at = time.monotonic()
        text = "".join(f"{key}: {value}\n" for key, value in self._values() if value is not None)
        temporary = self._path + ".new"
        try:
            with open(temporary, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(temporary, self._path)
        except OSError as e:
            # A training does not end because its progress cannot be shown.
            if not self._failed:
                print(f"troupe: the report cannot be written: {e}", file=sys.stderr)
            self._failed = True

    def _values(self):
        for key, value in self._lines.items():
            yield key, value() if callable(value) else value


class Control:
    """$TROUPE_CONTROL: absent until a stop is requested, then written as a whole."""

    def __init__(self, path):
        self._path = path

    def stop_requested(self):
        if self._path is None or not os.path.exists(self._path):
            return False
        try:
            with open(self._path, encoding="ascii", errors="replace") as file:
                lines = file.read(4096).splitlines()
        except FileNotFoundError:
            return False
        return any(_number_of(line, "stop") > 0 for line in lines)


def _number_of(line, key):
    name, _, value = line.partition(":")
    try:
        return float(value) if name.strip() == key else 0
    except ValueError:
        return 0
