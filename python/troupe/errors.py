"""The package's errors; all of them are troupe.Error."""

from __future__ import annotations


class Error(Exception):
    """Any error of this package."""


class CommandError(Error):
    """The `troupe` program refused something: the error of its --json.

    `file` is "-" for a job given as a text or a dict; `file` and `line` are None where no file is to blame.
    """

    def __init__(self, code: str, file: str | None, line: int | None, text: str):
        super().__init__(code, file, line, text)
        self.code, self.file, self.line, self.text = code, file, line, text

    def __str__(self) -> str:
        return self.text


class NotInTroupe(Error):
    """No controller's address is known here."""


class StaleLease(Error):
    """A newer lease has the directory: this attempt may no longer write there."""


class BadReport(Error):
    """A report that cannot be true."""


class Missing(Error):
    """Something that the call needs is not there: a variable, a package."""
