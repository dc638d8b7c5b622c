#!/usr/bin/env python3
"""PyTorch models in stages, as real processes on this machine: what is equal to what, what is lost, how fast it is.

    bench_pipelines equal             stages, recomputation and schedules against one stage and a plain PyTorch loop
    bench_pipelines clip              clipped gradients against torch.nn.utils.clip_grad_norm_
    bench_pipelines move              a training moves from two stages to one
    bench_pipelines kills --points 50 SIGKILL of workers, their keepers and nodes during each kind of work
    bench_pipelines stages            two stages on two cores beside one on one
    bench_pipelines schedules         steps under each schedule over a WAN beside the same in virtual time

Each prints one JSON document with --json. $TROUPE_PROGRAM is the program; the package `troupe` is in PYTHONPATH.
"""

import argparse
import json

from pipeline_kills import kills
from pipeline_results import clip, equal, move
from pipeline_speed import stages, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)

    def verb(name, does, *options):
        p = verbs.add_parser(name)
        p.add_argument("--json", action="store_true")
        for option, default in options:
            if default is False:
                p.add_argument(option, action="store_true")
            else:
                p.add_argument(option, type=type(default), default=default)
        p.set_defaults(does=does)

    verb("equal", equal, ("--short", False))
    verb("clip", clip, ("--short", False))
    verb("move", move)
    verb("kills", kills, ("--points", 50), ("--seed", 1))
    verb("stages", stages, ("--rounds", 7), ("--tries", 4))
    verb("schedules", steps, ("--rounds", 5), ("--tries", 4))
    o = parser.parse_args()
    result = o.does(o)
    print(json.dumps(result) if o.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
