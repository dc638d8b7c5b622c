"""Loads what `troupe export` has written into nn.Sequential in plain PyTorch, and compares the loss of the iteration that
follows with the training's own. The stages, workers and checkpoints of Troupe have no part in it; gpt.py itself imports
troupe.Layer, and the numbers of samples and seeds are those of troupe.order and troupe.seeds.

    troupe train examples/pytorch/export.yaml
    troupe export examples/pytorch/saved/iteration-000010 out
    PYTHONPATH=python python3 examples/pytorch/check_export.py out --json

The checkpoint after iteration 10 has the weights with which the training has computed the loss of iteration 11, which is in
its curve.csv. Exit status 1: something is missing or unexpected, or the losses differ by more than 1e-6 of their size."""

import argparse
import csv
import json
import os
import struct
import sys

import torch
from torch import nn

import gpt
from troupe.order import samples
from troupe.seeds import seed_of

here = os.path.dirname(os.path.abspath(__file__))


def read(folder):
    """A state_dict."""
    if os.path.exists(os.path.join(folder, "model.pt")):
        return torch.load(os.path.join(folder, "model.pt"))
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        data = bytearray(file.read())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__")
    types = {"F32": torch.float32, "I64": torch.int64, "BOOL": torch.bool}
    found = {}
    for name, about in header.items():
        dtype, (first, end) = types[about["dtype"]], about["data_offsets"]
        size = torch.empty(0, dtype=dtype).element_size()
        flat = torch.frombuffer(data, dtype=dtype, count=(end - first) // size, offset=begin + first)
        found[name] = flat.view(about["shape"]).clone()
    return found


def loss_of(model, o):
    """The mean loss of the global batch of the iteration after o.iteration, which computes with these weights."""
    data, rows = gpt.dataset(), o.global_batch // o.microbatches
    total = 0.0
    for microbatch in range(o.microbatches):
        found = [data[i] for i in samples(o.iteration * o.global_batch + microbatch * rows, rows, len(data), o.seed)]
        value, target = (torch.stack(x) for x in zip(*found))
        for index, layer in enumerate(model):
            torch.manual_seed(seed_of(o.seed, o.iteration, microbatch, index))  # of this layer's dropout
            value = layer(value)
        total += float(gpt.loss(value, target))
    return total / o.microbatches


def training_loss(curve, iteration):
    with open(curve, newline="") as file:
        found = [row["loss"] for row in csv.DictReader(file) if int(row["iteration"]) == iteration]
    if not found:
        raise SystemExit(f"{curve}: found no iteration {iteration}, expected the one after the checkpoint")
    return float(found[-1])


def main():
    parser = argparse.ArgumentParser(description="Compare an exported gpt.py with its training.")
    parser.add_argument("folder", metavar="DIR", help="of troupe export")
    parser.add_argument("--iteration", type=int, default=10, help="of the checkpoint (10)")
    parser.add_argument("--curve", default=os.path.join(here, "saved", "curve.csv"), help="of the training")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()

    torch.set_num_threads(1)
    model = nn.Sequential(*(layer.make(*layer.args, **layer.kwargs) for layer in gpt.model(layers=o.layers)))
    keys = model.load_state_dict(read(o.folder), strict=False)
    expected = training_loss(o.curve, o.iteration + 1)
    with torch.no_grad():
        loss = loss_of(model, o)
    found = {"missing": len(keys.missing_keys), "unexpected": len(keys.unexpected_keys), "loss": loss,
             "training_loss": expected, "loss_difference": abs(loss - expected) / abs(expected)}
    print(json.dumps(found) if o.json else "\n".join(f"{name}: {value}" for name, value in found.items()))
    return 0 if not found["missing"] + found["unexpected"] and found["loss_difference"] <= 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
