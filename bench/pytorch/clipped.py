"""The layers of tests/python/programs/mixed.py, with a limit that their gradients' norm exceeds. An update by SGD is
proportional to the gradients, unlike AdamW's."""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "python", "programs"))

from mixed import dataset, loss, model  # noqa: E402

__all__ = ["clip_norm", "dataset", "loss", "model", "optimizer"]

clip_norm = 0.25


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)
