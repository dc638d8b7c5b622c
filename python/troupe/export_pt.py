"""Weights of a safetensors file as a state_dict: python3 -m troupe.export_pt model.safetensors model.pt

`torch.load("model.pt")` reads it; with weights_only=True, too."""

import os
import sys

from troupe.errors import Missing, ProgramError
from troupe.torch_settings import import_torch


def write(source, target):
    """Writes `target` as a whole or not at all. Raises ProgramError for a file that is no safetensors file, Missing
    without PyTorch."""
    torch = import_torch()
    from troupe.safetensors import SafeTensors

    file = SafeTensors(source)
    part = target + ".part"
    # Of a view torch.save would write the whole file's memory.
    torch.save({name: file.tensor(name).clone() for name in file.names}, part)
    os.replace(part, target)


def main(arguments):
    if len(arguments) != 2:
        print("usage: python3 -m troupe.export_pt model.safetensors model.pt", file=sys.stderr)
        return 2
    try:
        write(*arguments)
    except (Missing, ProgramError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
