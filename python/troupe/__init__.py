"""Troupe's package for Python programs and their users."""

_places = {
    "Decision": "policy",
    "Policy": "policy",
    "give_up": "policy",
    "move": "policy",
    "start": "policy",
    "stop": "policy",
}

__all__ = [*_places]


def __getattr__(name):
    place = _places.get(name)
    if place is None:
        raise AttributeError(f"module 'troupe' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module("troupe." + place), name)
    globals()[name] = value
    return value
