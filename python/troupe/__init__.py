"""What a program under Troupe needs: its place, its samples, reports, and the request to stop.

    run = troupe.init()
    for i in run.steps():
        ...                      # iteration i, with the samples run.indices(i, len(dataset))
        run.report(i + 1, loss)

docs/python.md describes it. The package needs the standard library alone; its modules are imported when used.
"""

__version__ = "0.1.0"

_places = {
    "init": "program",
    "Run": "program",
    "permuted": "order",
    "Error": "errors",
    "StaleLease": "errors",
    "BadReport": "errors",
    "Missing": "errors",
}

__all__ = ["__version__", *_places]


def __getattr__(name):
    place = _places.get(name)
    if place is None:
        raise AttributeError(f"module 'troupe' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module("troupe." + place), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_places))
