#!/usr/bin/env python3
"""Prompts in a training's bubbles, packed once more by other code: what `troupe train --prefill` says of the rules
`whole` and `resumable` must be within 0.03 of it.

The bubbles are those of the training alone, as --timeline draws them, repeated. A prompt's time follows from the
served model's shape: multiplications at 60 % of an A100's peak, and 128 rows more than it has. Rule whole: as many
prompts as Troupe is given are always under way; the next one goes to the datacenter with the fewest, and there to the
device that can begin it soonest behind its own others. Rule resumable: each bubble is full except for half of an
operation.

Two more lines, which Troupe is not compared with, show what the rule whole is worth with one queue for all devices, of
which only the first prompt may begin, and with one in which a prompt that fits no bubble stays first instead of being
declined.

Prints used shares of the devices' time; ends with 1 if they differ. Only Python's standard library."""

import argparse
import collections
import csv
import heapq
import itertools
import json
import os
import subprocess
import sys
import tempfile

FLOPS = 0.6 * 312e12
HALF_RATE_ROWS = 128
OPERATION_S = 1e-3
MOST_DIFFERENCE = 0.03
ITERATIONS = 190  # that the packing fills
UNDER_WAY = 256


def prompt_seconds(shape):
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    keys = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    weights = layers * hidden * (2 * hidden + 2 * keys + 3 * shape["intermediate_size"])
    return lambda n: (2 * weights + 2 * layers * hidden * n) * (n + HALF_RATE_ROWS) / FLOPS


class training:
    """One iteration of every device: its bubbles as (begin, end) in seconds, the last one before the first task."""

    def __init__(self, timeline, iteration_s):
        self.iteration_s = iteration_s
        steps = ("forward", "recompute", "backward")
        tasks = collections.defaultdict(list)
        busy_s = 0
        for e in json.load(open(timeline))["traceEvents"]:
            if e["ph"] == "X" and e["cat"] in steps + ("update",):
                tasks[(e["pid"], e["tid"])].append((e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6))
                busy_s += e["dur"] / 1e6 if e["cat"] in steps else 0
        self.used = busy_s / len(tasks) / iteration_s
        self.bubbles = {device: list(self._gaps(sorted(all_))) for device, all_ in tasks.items()}

    def _gaps(self, tasks):
        free = max(end for _, end in tasks) - self.iteration_s
        for begin, end in tasks:
            if begin - free > 1e-9:
                yield free, begin
            free = max(free, end)

    def soonest(self, device, earliest_s, length_s):
        first = max(0, int(earliest_s // self.iteration_s) - 1)
        for i in range(first, first + 4):
            for begin, end in self.bubbles[device]:
                at = max(begin + i * self.iteration_s, earliest_s)
                if at + length_s <= end + i * self.iteration_s:
                    return at
        return None


def whole(t, lengths, seconds):
    free, under_way, ends = collections.defaultdict(float), collections.Counter(), []
    datacenters = sorted({datacenter for datacenter, _ in t.bubbles})
    end_s, used_s, now_s = ITERATIONS * t.iteration_s, 0, 0
    for n in itertools.cycle(lengths):
        length_s = seconds(n)
        if len(ends) == UNDER_WAY:
            now_s, ended = heapq.heappop(ends)
            under_way[ended] -= 1
        if now_s > end_s:
            return t.used + used_s / len(t.bubbles) / end_s
        there = min(datacenters, key=lambda d: under_way[d])
        places = ((t.soonest(d, max(free[d], now_s), length_s), d) for d in t.bubbles if d[0] == there)
        begin, device = min(((at, d) for at, d in places if at is not None), default=(0, None))
        if device is None:
            continue  # it fits no bubble
        free[device] = begin + length_s
        under_way[there] += 1
        heapq.heappush(ends, (free[device], there))
        used_s += length_s if free[device] <= end_s else 0


def in_one_queue(t, lengths, seconds, declines):
    free, begun_s = collections.defaultdict(float), 0
    end_s, used_s = ITERATIONS * t.iteration_s, 0
    for n in itertools.cycle(lengths):
        length_s = seconds(n)
        places = ((t.soonest(d, max(free[d], begun_s), length_s), d) for d in t.bubbles)
        begin, device = min(((at, d) for at, d in places if at is not None), default=(end_s, None))
        if device is None and declines:
            continue
        if begin + length_s > end_s:
            return t.used + used_s / len(t.bubbles) / end_s
        free[device], begun_s = begin + length_s, begin
        used_s += length_s


def resumable(t, _lengths, _seconds):
    filled_s = sum(max(0, end - begin - OPERATION_S / 2) for b in t.bubbles.values() for begin, end in b)
    return t.used + filled_s / len(t.bubbles) / t.iteration_s


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("program")
    arguments.add_argument("configs")
    given = arguments.parse_args()
    at = lambda *path: os.path.join(given.configs, *path)
    job = [at("jobs", "bubbletea-gpt-a.yaml"), "--cluster", at("clusters", "atlas-testbed.yaml"), "--json"]

    def run(*more):
        done = subprocess.run([given.program, "train"] + job + list(more), check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    with open(at("traces", "azure-code-10min.csv")) as f:
        lengths = [int(r["prompt_tokens"]) for r in csv.DictReader(l for l in f if not l.startswith("#"))]
    with tempfile.TemporaryDirectory() as directory:
        timeline = os.path.join(directory, "timeline.json")
        alone = training(timeline, run("--timeline", timeline)["iteration_s"]["p50"])
    models = {name: at("models", name + ".json") for name in ("llama3-8b", "llama3.2-1b")}
    seconds = {name: prompt_seconds(json.load(open(path))) for name, path in models.items()}
    wrong = 0
    for name, rule, pack in itertools.chain.from_iterable(
            ((name, "whole", whole), (name, "resumable", resumable)) for name in models):
        packed = pack(alone, lengths, seconds[name])
        said = run("--prefill", "azure", "--prefill-model", models[name], "--depth", "1", "--saturated", str(UNDER_WAY),
                   "--rule", rule)["prefill"]["utilization"]["after"]
        bad = abs(said - packed) > MOST_DIFFERENCE
        wrong += bad
        print(f"{name:12} {rule:10} used {said:.4f}, packed by this script {packed:.4f}{'  WRONG' if bad else ''}")
    for text, declines in (("one queue", True), ("one queue, nothing declined", False)):
        packed = in_one_queue(alone, lengths, seconds["llama3-8b"], declines)
        print(f"{'llama3-8b':12} {'whole':10} with {text}, packed by this script {packed:.4f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
