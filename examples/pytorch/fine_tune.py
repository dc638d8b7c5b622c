"""Fine-tunes a model folder, all its weights, on rows that `troupe check --rows` has made: docs/fine_tuning.md.

base: the folder (config.json, *.safetensors); rows: the file. Both are opened on each node; relative paths begin at this file's
folder.
"""

import functools
import math
import os

import torch
import troupe
from troupe.models import blocks, rows as row_files
from troupe.models.folder import Weights, check_folder

precision, clip_norm = "fp32", 1.0
collate, loss = row_files.collate, row_files.loss


def path(named):
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), named))


@functools.lru_cache(maxsize=None)
def checked(base):
    return check_folder(path(base))


@functools.lru_cache(maxsize=None)
def opened(rows, base):
    return row_files.Rows(path(rows), checked(base).vocabulary)


def model(base):
    m = checked(base)
    weights = Weights(path(base), m)
    block = blocks.Gpt2Block if m.family == "gpt2" else blocks.LlamaBlock
    ends = [("vocabulary", "wte.weight" if m.family == "gpt2" else "embed_tokens.weight"), ("vocabulary", "lm_head.weight")]
    first, last = ends if m.tied_head else (None, None)
    return [troupe.Layer(blocks.Embedding, m, weights, tied=first),
            *(troupe.Layer(block, m, i, weights) for i in range(m.layers)),
            troupe.Layer(blocks.Head, m, weights, tied=last)]


def dataset(rows, base):
    return opened(rows, base)


def weights(indices, rows, base):
    return [opened(rows, base).trained(i) for i in indices]


def names(layer, name, base):
    return blocks.name_of(checked(base), layer, name)


def optimizer(parameters, learning_rate=2e-5, weight_decay=0.0):
    return torch.optim.AdamW(troupe.no_decay(parameters, weight_decay), lr=learning_rate)


def schedule(optimizer, updates=0, warmup=0.03):
    """A rise over a part of the updates, then a cosine down to 0; without their number the rate stays."""
    first = max(1, round(warmup * updates))

    def rate(done):
        if updates == 0 or done < first:
            return 1.0 if updates == 0 else (done + 1) / first
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - first) / max(1, updates - first))))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
