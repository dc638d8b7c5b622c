"""A program's model, layer by layer: python3 -m troupe.describe gpt.py --json

Two samples go through one layer at a time, which is then dropped; figures are those of one. What Troupe cannot run is
refused here, before anything runs, with the layer's name. Exit status 2: something is refused."""

import argparse
import json
import sys

from troupe.errors import Error
from troupe.plain import named_values
from troupe.torch_settings import import_torch


def describe(path, arguments=None, seed=1):
    """The description, as JSON has it; `refusals` is empty unless something cannot be run. Raises ProgramError or
    LayerError for a file without a model, Missing without PyTorch."""
    import_torch()
    from troupe.layers.description import Description
    from troupe.layers.model_file import Program

    return Description(Program(path, arguments), seed).found


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m troupe.describe", description=__doc__.split("\n")[0])
    parser.add_argument("program", metavar="FILE.py")
    parser.add_argument("--arguments", type=named_values, default={}, metavar="NAME=VALUE,..", help="of model() and others")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(1)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", metavar="FILE", help="write the JSON there, and print nothing")
    o = parser.parse_args(arguments)
    try:
        found = describe(o.program, o.arguments, o.seed)
    except Error as error:
        found = {"refusals": [str(error)]}
    if o.out:
        with open(o.out, "w", encoding="utf-8") as file:
            json.dump(found, file)
    elif o.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 2 if found["refusals"] else 0


def _print(found):
    if "layers" in found:
        print(f"{'layer':>5}  {'class':20} {'parameters':>12} {'MFLOPs':>10} {'kept KB':>10} {'output KB':>10}")
    for i, x in enumerate(found.get("layers", ())):
        print(f"{i:5}  {x['name']:20} {x['parameters']:12} {x['forward_flops'] / 1e6:10.3f} {x['kept_bytes'] / 1e3:10.1f} "
              f"{x['output_bytes'] / 1e3:10.1f}{'  in place' if x['in_place'] else ''}")
    if found.get("tied"):
        print(f"tied: {' and '.join(found['tied'])}")
    for x in found.get("glued", ()):
        print(f"layers {x['first']} to {x['last']} share '{x['name']}' and are not cut apart")
    for text in found.get("warnings", ()):
        print("warning:", text)
    for text in found["refusals"]:
        print("refused:", text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
