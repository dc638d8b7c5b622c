"""The rule of docs/operating.md, "Fencing": a lock, the newest lease in a file next to the data, and the write under the lock."""

import fcntl
import os
import time

from troupe.errors import Error, StaleLease

_patience_s = 60  # for the lock, whose holder should only rename a file


class Fence:
    """Context manager: the directory is this lease's alone while the body runs. Without a lease (outside Troupe) it only locks."""

    def __init__(self, directory, lease):
        self._directory = os.fspath(directory)
        self._lease = lease
        self._lock = None

    def __enter__(self):
        os.makedirs(self._directory, exist_ok=True)
        self._lock = os.open(self._path("fence.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            self._wait()
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        os.close(self._lock)  # releases it
        self._lock = None

    def _path(self, name):
        return os.path.join(self._directory, name)

    # flock() has no time limit, so the lock is polled.
    def _wait(self):
        until = time.monotonic() + _patience_s
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Error(f"{self._path('fence.lock')}: locked by another process for {_patience_s} s") from None
                time.sleep(0.01)

    def _newest(self):
        try:
            with open(self._path("fence"), encoding="ascii") as file:
                text = file.read(64).strip()
        except FileNotFoundError:
            return 0
        if text and not text.isdigit():
            raise Error(f"{self._path('fence')}: found '{text}', expected the number of a lease")
        return int(text or 0)

    def _take(self):
        newest = self._newest()
        if not self._lease or self._lease == newest:
            return
        if self._lease < newest:
            raise StaleLease(f"{self._directory}: lease {newest} has it now, lease {self._lease} may no longer write")
        with open(self._path("fence.new"), "w", encoding="ascii") as file:
            file.write(f"{self._lease}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._path("fence.new"), self._path("fence"))
