"""The package's errors; all of them are troupe.Error."""

from __future__ import annotations

import os
import sys
import traceback


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


class ProgramError(Error):
    """A program's file, or a thing that it has made, cannot be run: found and expected."""


class NotFinite(Error):
    """A loss, or the norm of the gradients, is not a finite number, which ends the training."""


class LayerError(Error):
    """An exception from the program's own code: in a layer (of number `layer`), or in one of its functions (None).

    `layer_name` is the layer's class or the function; `type` and `message` are the exception's; `file` and `line` those
    of its innermost frame outside of PyTorch, Python's library and this package, None without one; `traceback` has at most 16 KiB.
    """

    def __init__(self, layer: int | None, layer_name: str, error: BaseException):
        self.layer, self.layer_name = layer, layer_name
        self.type, self.message = type(error).__name__, str(error)
        self.file, self.line = _place(error)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.traceback = text[-_traceback_bytes:]
        self.out_of_memory = isinstance(error, MemoryError) or self.type == "OutOfMemoryError" or (
            isinstance(error, RuntimeError) and any(words in self.message for words in _memory_words))
        super().__init__(layer, layer_name, self.type, self.message)

    def __str__(self) -> str:
        who = self.layer_name if self.layer is None else f"layer {self.layer} ({self.layer_name})"
        where = "" if self.file is None else f" ({os.path.basename(self.file)}:{self.line})"
        return f"{who}: {self.type}: {self.message}{where}"


_traceback_bytes = 16 << 10
_memory_words = ("CUDA out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")


def _place(error):
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    hidden = tuple(os.path.dirname(os.path.abspath(f)) + os.sep for f in (torch, __file__) if f) + ("<",)
    library = os.path.dirname(os.__file__) + os.sep
    found = (None, None)
    for frame in traceback.extract_tb(error.__traceback__):
        installed = not frame.filename.startswith(library) or "-packages" in frame.filename
        if installed and not frame.filename.startswith(hidden):
            found = frame.filename, frame.lineno
    if isinstance(error, SyntaxError) and error.filename:
        found = error.filename, error.lineno
    return found
