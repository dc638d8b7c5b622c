"""A program's file trained in this process: python3 -m troupe.plain gpt.py --global-batch 64 --microbatches 8

It prints each iteration's loss: what Troupe computes for the same file, seed, rows and number of micro-batches, in any
number of stages of one pipeline."""

import argparse
import json
import sys

from troupe.errors import Error, Missing, ProgramError
from troupe.torch_settings import configure_torch


def main(arguments=None):
    o = _options(arguments)
    try:
        return _train(o)
    except (Error, OSError) as error:
        print(getattr(error, "traceback", ""), file=sys.stderr, end="")
        print(error, file=sys.stderr)
        return 2 if isinstance(error, (Missing, ProgramError)) else 1


def _train(o):
    configure_torch(o.threads, deterministic=o.device == "cpu")
    from troupe.layers import checkpoint
    from troupe.layers.model_file import Program
    from troupe.layers.stage import Stage

    if o.microbatches < 1 or o.global_batch < 1 or o.global_batch % o.microbatches:
        raise ProgramError(f"found {o.microbatches} micro-batches of a global batch of {o.global_batch}, expected a divisor")
    stage = Stage(Program(o.program, o.arguments), seed=o.seed, rows=o.global_batch // o.microbatches,
                  microbatches=o.microbatches, recompute=o.recompute, device=o.device)
    stage.start()
    found = checkpoint.newest(o.checkpoint) if o.checkpoint else None
    first = stage.load(found) if found else 0
    for note in stage.notes:
        print(note, file=sys.stderr)
    for iteration in range(first, o.iterations):
        print(f"iteration {iteration} loss {train(stage, iteration, o.microbatches)!r}", flush=True)
    if o.checkpoint and first < o.iterations:
        folder = checkpoint.folder_of(o.checkpoint, o.iterations)
        checkpoint.write_index(folder, o.iterations, stage.copy(o.iterations).write(folder))
    return 0


def train(stage, iteration, microbatches):
    """An iteration of a model's only stage, in the order of 1F1B. Its loss: the mean of the micro-batches'."""
    losses = 0.0
    for microbatch in range(microbatches):
        losses += stage.forward(iteration, microbatch).loss
        stage.backward(iteration, microbatch)
    stage.gradients()
    squared = 0.0
    for norm in reversed(stage.squared_norms()) if stage.needs_norm else ():
        squared += norm
    stage.update(squared if stage.needs_norm else None)
    return losses / microbatches


def _options(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m troupe.plain", description=__doc__.split("\n")[0])
    parser.add_argument("program", metavar="FILE.py")
    parser.add_argument("--arguments", type=named_values, default={}, metavar="NAME=VALUE,..", help="of model() and others")
    parser.add_argument("--global-batch", type=int, default=32, metavar="N", help="samples of an iteration (32)")
    parser.add_argument("--microbatches", type=int, default=4, metavar="N", help="of an iteration (4)")
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="to the last one, from the job's first (20)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(1)")
    parser.add_argument("--recompute", choices=("none", "stage", "layers"), default="none", help="results are the same")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of a CPU; part of the results' bits (1)")
    parser.add_argument("--checkpoint", metavar="DIR", help="go on from its newest checkpoint, and save the last iteration")
    return parser.parse_args(arguments)


def named_values(text):
    """{name: value} of NAME=VALUE,..: numbers, true, false, or texts; or of a JSON object."""
    if text.startswith("{"):
        return json.loads(text)
    found = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.isidentifier():
            raise argparse.ArgumentTypeError(f"found '{part}', expected NAME=VALUE")
        found[name] = _value(value)
    return found


def _value(text):
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


if __name__ == "__main__":
    sys.exit(main())
