"""Runs the `troupe` program with --json."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from troupe.errors import CommandError, Missing

if TYPE_CHECKING:
    import subprocess

# subprocess and the like are imported where they are used: programs that only report their progress import
# this package, too, and each restart of theirs would pay for them.


def program() -> str:
    """The program: $TROUPE_PROGRAM, else the one installed with this package, else the first on $PATH."""
    chosen = os.environ.get("TROUPE_PROGRAM")
    if chosen:
        return chosen
    # PREFIX/lib/troupe/python/troupe/client/command.py and PREFIX/bin/troupe are installed together.
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    beside = os.path.normpath(os.path.join(package, "..", "..", "..", "..", "bin", "troupe"))
    if os.path.isfile(beside):
        return beside
    from shutil import which

    found = which("troupe")
    if found is None:
        raise Missing(f"no program `troupe`: neither {beside} nor one on $PATH; set $TROUPE_PROGRAM")
    return found


def run(verb: str, *arguments, text: str | None = None, timeout_s: float | None = None, **options) -> dict:
    """The document of `troupe VERB ARGUMENTS --json`; `text` is its standard input.

    Raises CommandError for the program's error. A "no" with a document, such as a plan that is not feasible, is
    returned. TimeoutError after `timeout_s`.
    """
    import subprocess

    line = [program(), verb, *map(str, arguments), *flags(options), "--json"]
    try:
        ended = subprocess.run(
            line, input=text or "", capture_output=True, timeout=timeout_s, encoding="utf-8", errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"troupe {verb} did not end within {timeout_s:g} s") from None
    except OSError as e:
        raise Missing(f"{line[0]}: cannot be run: {e.strerror}") from None
    document = parsed(verb, ended)
    if "error" in document:
        raise CommandError(document["code"], document.get("file"), document.get("line"), document["error"])
    return document


def parsed(verb: str, ended: subprocess.CompletedProcess) -> dict:
    try:
        document = json.loads(ended.stdout)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    end = f"signal {-ended.returncode}" if ended.returncode < 0 else f"exit status {ended.returncode}"
    last = (ended.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
    raise CommandError("malformed", None, None, f"troupe {verb} ended by {end} without a JSON document: {last}")


def flags(options: dict) -> list[str]:
    """Options of the command line: {"max_gpus": 4, "nodes": ["a", "b"]} is --max-gpus=4 --nodes=a --nodes=b."""
    words = []
    for key, value in options.items():
        name = "--" + key.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(name)
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        words += [f"{name}={one}" for one in values]
    return words


def as_text(given: str | dict | os.PathLike) -> str | None:
    """The text of a description; None if `given` names a file.

    A word without a colon is no YAML of a job or a cluster: it is the name of a file, perhaps of none.
    """
    if isinstance(given, dict):
        return json.dumps(given, indent=1)
    if isinstance(given, os.PathLike):
        return None
    is_name = "\n" not in given and (":" not in given or os.path.exists(given))
    return None if is_name else given


def as_argument(given: str | dict | os.PathLike) -> tuple[str, str | None]:
    """A verb's argument and standard input. From there, relative names in a text count from the current directory."""
    text = as_text(given)
    return (os.fspath(given), None) if text is None else ("-", text)


def number(text: str) -> int | float | None:
    """A number of a CSV file that the program has written; None for an empty field."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)
