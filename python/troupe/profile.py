"""The times of a program's layers: python3 -m troupe.profile gpt.py --rows 2,4,8 --json

One stage of the model's layers runs forward, backward and update with the program's own data, and notes when each layer
begins; so the times of all layers add up to the stage's. Equal layers get their mean. Where the model is too large for half
of the free memory, of equal layers in a row three run. `troupe profile --program` calls this, and adds what a worker's messages and tensors take."""

import argparse
import json
import os
import subprocess
import sys

from troupe.errors import Error
from troupe.plain import named_values
from troupe.torch_settings import configure_torch

_equal_in_a_row = 3


def profile(path, arguments=None, rows=(1,), rounds=9, device="cpu", seed=1, after_round=None):
    """The description with `points`, one for each of `rows`; without points if something is refused.
    after_round(done, all) is called after each round."""
    from troupe.layers.description import Description
    from troupe.layers.model_file import Program
    from troupe.layers.timing import Timing

    program = Program(path, arguments)
    found = Description(program, seed).found
    if not found["refusals"]:
        timing = Timing(program, chosen_layers(found, rows, device), seed, rows, device)
        rounds = max(rounds, 3)
        for done in range(rounds):
            timing.round()
            if after_round:
                after_round(done + 1, rounds)
        found["points"] = timing.points([x["same_as"] for x in found["layers"]])
    return found


def chosen_layers(found, rows, device):
    """The layers that run. All of them if they can: the more memory a stage uses, the longer each layer takes."""
    layers = found["layers"]
    needed = sum(2 * x["parameter_bytes"] + x["state_bytes"] + max(rows) * x["kept_bytes"] for x in layers)
    return list(range(len(layers))) if needed <= _free_bytes(device) / 2 else few_layers(found)


def few_layers(found):
    """All but the fourth and further equal ones in a row, whose inputs are as their outputs."""
    kept, glued = [], found["glued"]
    for i, layer in enumerate(found["layers"]):
        before = [x["same_as"] for x in found["layers"][max(0, i - _equal_in_a_row):i]]
        is_glued = any(x["first"] <= i <= x["last"] for x in glued)
        if is_glued or before != [layer["same_as"]] * _equal_in_a_row:
            kept.append(i)
    return kept


def _free_bytes(device):
    import torch

    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


def _others(options, count):
    """Processes that compute the same until their input ends."""
    command = [sys.executable, "-m", "troupe.profile", options.program, "--company", "--arguments",
               json.dumps(options.arguments), "--index", str(options.index), "--rows", str(max(options.rows)), "--device", options.device, "--threads",
               str(options.threads)]
    found = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    for process in found:
        process.stdout.readline()  # it computes
    return found


def _keep_company(options):
    import threading

    from troupe.layers.description import Description
    from troupe.layers.model_file import Program
    from troupe.layers.timing import Timing

    program = Program(options.program, options.arguments)
    found, rows = Description(program, 1).found, options.rows[-1:]
    timing = Timing(program, chosen_layers(found, rows, options.device), 1, rows, options.device)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    timing.round()
    print("computing", flush=True)
    while not over.is_set():
        timing.round()


def _numbers(text):
    found = sorted({int(x) for x in text.split(",")})
    if found[0] < 1:
        raise argparse.ArgumentTypeError(f"found {found[0]}, expected 1 or more")
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m troupe.profile", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", metavar="FILE.py")
    parser.add_argument("--arguments", type=named_values, default={}, metavar="NAME=VALUE,..", help="of model() and others")
    parser.add_argument("--rows", type=_numbers, default=[1], metavar="N,..", help="samples of a micro-batch (1)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="at least 3 (9)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(cpu)")
    parser.add_argument("--index", type=int, default=0, metavar="N", help="of the GPU (0)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of a CPU (1)")
    parser.add_argument("--busy", type=int, default=1, metavar="N", help="processes that compute at once (1)")
    parser.add_argument("--company", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", metavar="FILE", help="write the JSON there, and print nothing")
    o = parser.parse_args(arguments)
    if o.device == "cuda":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(o.index))
    others = []
    try:
        configure_torch(o.threads, deterministic=o.device == "cpu")
        if o.company:
            _keep_company(o)
            return 0
        others = _others(o, o.busy - 1)
        # `troupe profile` reads these lines for its progress.
        say = (lambda done, rounds: print(f"round {done} of {rounds}", flush=True)) if o.out else None
        found = profile(o.program, o.arguments, o.rows, o.rounds, o.device, after_round=say)
    except Error as error:
        found = {"refusals": [str(error)]}
    finally:
        for process in others:
            process.kill()
            process.communicate()
    if o.out:
        with open(o.out, "w", encoding="utf-8") as file:
            json.dump(found, file)
    elif o.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 2 if found["refusals"] else 0


def _print(found):
    for point in found.get("points", ()):
        print(f"{point['rows']} rows{'':19} {'forward ms':>12} {'recompute ms':>12} {'backward ms':>12} {'update ms':>12}")
        names = [x["name"] for x in found["layers"]]
        for name, x in (*zip(names, point["layers"]), ("loss", point["loss"])):
            print(f"{name:25} {x['forward_s'] * 1e3:12.3f} {x['recompute_s'] * 1e3:12.3f} {x['backward_s'] * 1e3:12.3f} "
                  f"{x['update_s'] * 1e3:12.3f}")
    for text in found["refusals"]:
        print("refused:", text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
