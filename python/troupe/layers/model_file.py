"""The file of a program whose model Troupe runs: functions model, loss, dataset and optimizer; by choice schedule, rate,
collate, weights and names, and precision and clip_norm, which are values or functions of arguments."""

import contextlib
import hashlib
import importlib.util
import inspect
import io
import math
import os
import sys

import torch

from troupe.errors import Error, LayerError, ProgramError
from troupe.layers.layer import Model, Parameters
from troupe.layers.randomness import own_of_file
from troupe.seeds import seed_of

_required = {"model": "model()", "loss": "loss(output, target)", "dataset": "dataset(split='train')",
             "optimizer": "optimizer(parameters)"}
_optional = {"schedule": "schedule(optimizer)", "rate": "rate(update)", "collate": "collate(samples)",
             "weights": "weights(indices)", "names": "names(layer, name)"}
precisions = ("fp32", "bf16", "fp16")


class Program:
    """A program's file, executed once. Each function gets those of `arguments` that it names.

    sha256: if given, the file must have it. Raises ProgramError, and LayerError for exceptions of the file's own.
    """

    def __init__(self, path, arguments=None, sha256=None):
        self.path = os.path.abspath(path)
        self.file = os.path.basename(path)
        self.arguments = dict(arguments or {})
        self._module = self._execute(sha256)
        self._functions = {name: self._function(name) for name in (*_required, *_optional)}
        self._check_arguments()
        self.precision = self._one_of("precision", precisions)
        self.clip_norm = self._positive("clip_norm")

    def layers(self, seed):
        """The model's list of layers, made anew: a process keeps the ones that it runs."""
        torch.manual_seed(seed_of(seed, "init", "model"))
        return Model(self._call("model"), self.file)

    def loss(self, output, target):
        return self._functions["loss"](output, target)

    def dataset(self, split="train"):
        """The samples of "train" or "held_out"; there is no held-out data unless the function names `split`."""
        named = self._named("dataset")
        if "split" not in named and split != "train":
            raise ProgramError(f"{self.file}: found dataset() without split, expected {_required['dataset']} to have "
                               f"'{split}'")
        found = self._call("dataset", **({"split": split} if "split" in named else {}))
        if not hasattr(found, "__len__") or not hasattr(found, "__getitem__"):
            raise ProgramError(f"{self.file}: dataset() returned {type(found).__name__}, expected an object with __len__ "
                               "and __getitem__(i): iterable data sets have no numbered samples")
        if len(found) == 0:
            raise ProgramError(f"{self.file}: dataset('{split}') has length 0, expected samples")
        return found

    def optimizer(self, named):
        """The file's optimizer of the (name, parameter) pairs `named`; None if it takes none of them."""
        try:
            found = self._call("optimizer", Parameters(named))
        except LayerError as error:
            if (error.type, error.message) == ("ValueError", "optimizer got an empty parameter list"):
                return None
            raise
        if not isinstance(found, torch.optim.Optimizer):
            raise ProgramError(f"{self.file}: optimizer() returned {type(found).__name__}, expected a torch.optim.Optimizer")
        return found

    def schedule(self, optimizer):
        return self._call("schedule", optimizer) if self._functions["schedule"] else None

    def rate(self, update):
        """The learning rate of an update, from 0 on, for all groups of the optimizer; None: they have their own. With it,
        options of groups that the file has changed since a checkpoint was written are the file's."""
        if not self.has_rate:
            return None
        found = self._call("rate", update)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < math.inf:
            raise ProgramError(f"{self.file}: rate({update}) returned {found!r}, expected a number of 0 or more")
        return float(found)

    @property
    def has_rate(self):
        return self._functions["rate"] is not None

    @property
    def collate(self):
        return self._functions["collate"]

    @property
    def has_weights(self):
        return self._functions["weights"] is not None

    @property
    def has_held_out(self):
        return "split" in self._named("dataset")

    def weights(self, indices, split="train"):
        """The weight of each sample, as floats."""
        chosen = {"split": split} if "split" in self._named("weights") else {}
        found = [float(w) for w in self._call("weights", indices, **chosen)]
        if len(found) != len(indices) or not all(math.isfinite(w) and w >= 0 for w in found):
            raise ProgramError(f"{self.file}: weights() returned {found[:8]}, expected {len(indices)} numbers that are 0 or "
                               "larger")
        return found

    @property
    def own_generators(self):
        """Generators of random numbers that are the file's global names, or their attributes."""
        return own_of_file(self._module)

    def name_of(self, layer, name):
        """The public name of a parameter or buffer: "LAYER.NAME", as nn.Sequential has it, unless the file names it."""
        return str(self._call("names", layer, name)) if self._functions["names"] else f"{layer}.{name}"

    # The file's folder comes first in sys.path, as for a script, so that it finds the modules next to it.
    def _execute(self, sha256):
        try:
            with open(self.path, "rb") as file:
                text = file.read()
        except OSError as error:
            raise ProgramError(f"{self.path}: {error.strerror}, expected a Python file") from None
        self.sha256 = hashlib.sha256(text).hexdigest()
        if sha256 is not None and sha256 != self.sha256:
            raise ProgramError(f"{self.path}: found SHA-256 {self.sha256}, expected {sha256}: the file has changed, or is "
                               "another one on this node")
        folder = os.path.dirname(self.path)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        name = "troupe_program_" + os.path.splitext(self.file)[0]
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None:
            raise ProgramError(f"{self.path}: expected a name that ends with .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        said = io.StringIO()
        try:
            with _as_script(self.path), contextlib.redirect_stderr(said):
                exec(compile(text, self.path, "exec"), module.__dict__)
        except SystemExit as error:
            last = said.getvalue().strip().rpartition("\n")[2]
            raise LayerError(None, self.file, _ended(error, "when it is imported", last)) from error
        except Exception as error:
            sys.stderr.write(said.getvalue())
            raise LayerError(None, self.file, error) from error
        sys.stderr.write(said.getvalue())
        return module

    def _function(self, name):
        found = getattr(self._module, name, None)
        if found is None and name in _optional:
            return None
        if not callable(found):
            expected = {**_required, **_optional}[name]
            what = "no function" if found is None else f"a {type(found).__name__} for"
            raise ProgramError(f"{self.file}: found {what} '{name}', expected {expected}")
        return found

    def _named(self, name):
        function = self._functions.get(name) or getattr(self._module, name, None)
        function = function if callable(function) else None
        parameters = inspect.signature(function).parameters.values() if function else ()
        if any(p.kind == p.VAR_KEYWORD for p in parameters):
            return set(self.arguments) | {p.name for p in parameters}
        return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    def _check_arguments(self):
        taken = {x: self._named(x) for x in ("model", "dataset", "optimizer", "schedule", "rate", "precision", "clip_norm")}
        for name, value in self.arguments.items():
            if not isinstance(value, (bool, int, float, str)):
                raise ProgramError(f"argument '{name}': found {type(value).__name__}, expected a number, a text or a "
                                   "boolean")
            if not any(name in names for names in taken.values()):
                raise ProgramError(f"{self.file}: found argument '{name}', expected one of model(): "
                                   f"{', '.join(sorted(taken['model'])) or 'it has none'}")

    def _call(self, name, *values, **more):
        named = self._named(name)
        chosen = {k: v for k, v in self.arguments.items() if k in named and k not in more}
        try:
            with _as_script(self.path):
                function = self._functions.get(name) or getattr(self._module, name)
                return function(*values, **chosen, **more)
        except Error:
            raise
        except SystemExit as error:
            raise LayerError(None, name, _ended(error, "when it is called")) from error
        except Exception as error:
            raise LayerError(None, name, error) from error

    def _value(self, name, otherwise):
        found = getattr(self._module, name, otherwise)
        return self._call(name) if callable(found) else found

    def _one_of(self, name, allowed):
        found = self._value(name, allowed[0])
        if found not in allowed:
            raise ProgramError(f"{self.file}: {name}: found {found!r}, expected {', '.join(allowed)}")
        return found

    def _positive(self, name):
        found = self._value(name, None)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < math.inf:
            raise ProgramError(f"{self.file}: {name}: found {found!r}, expected a number above 0, or None")
        return float(found)


# A file that parses arguments shall not find those of the process that it is executed in.
@contextlib.contextmanager
def _as_script(path):
    before, sys.argv = sys.argv, [path]
    try:
        yield
    finally:
        sys.argv = before


def _ended(error, when, last=""):
    """A SystemExit as an error with a sentence, which keeps its place."""
    said = f" ({last.partition('error: ')[2] or last})" if last else ""
    text = (f"it ends the program {when}, with status {error.code!r}{said}: expected no sys.exit() there, and values for "
            "arguments from `arguments` of the job, not from a command line, which parse_args() reads")
    return SystemExit(text).with_traceback(error.__traceback__)
