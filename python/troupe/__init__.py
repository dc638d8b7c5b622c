"""What a program under Troupe needs: its place, its samples, reports, and the request to stop.

    run = troupe.init()
    for i in run.steps():
        ...                      # iteration i, with the samples run.indices(i, len(dataset))
        run.report(i + 1, loss)

Beside it, troupe.client follows the jobs of a cluster, and simulate(), plan() and estimate() run the `troupe` program.

A file whose model Troupe runs in pipeline stages gives its layers with Layer, no_decay and frozen; load() reads what was
trained.

docs/python.md describes it. The package needs the standard library alone, and PyTorch for models; its modules are imported
when used.
"""

__version__ = "0.1.0"

_places = {
    "init": "program",
    "Run": "program",
    "permuted": "order",
    "Layer": "layers.layer",
    "no_decay": "layers.layer",
    "frozen": "layers.store",
    "load": "layers.checkpoint",
    "Error": "errors",
    "StaleLease": "errors",
    "BadReport": "errors",
    "ProgramError": "errors",
    "LayerError": "errors",
    "NotFinite": "errors",
    "Missing": "errors",
    "CommandError": "errors",
    "NotInTroupe": "errors",
    "Results": "client.simulation",
    "simulate": "client.simulation",
    "plan": "client.simulation",
    "estimate": "client.simulation",
    "Policy": "policy",
    "Decision": "policy",
    "start": "policy",
    "stop": "policy",
    "move": "policy",
    "give_up": "policy",
}
_modules = ("client",)

__all__ = ["__version__", *_places, *_modules]


def __getattr__(name):
    place = _places.get(name)
    if place is None and name not in _modules:
        raise AttributeError(f"module 'troupe' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module("troupe." + place), name) if place else import_module("troupe." + name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_places) | set(_modules))
