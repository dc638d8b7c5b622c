"""The package's own program for `train: {base: FOLDER}`: a model folder's layers, trained on the rows that the node has made of
the job's examples (docs/fine_tuning.md).

base: the folder (config.json, *.safetensors); rows, held_out_rows: files of rows, if the stage reads any. updates: of the job;
the rate of each is a function of its number alone.
"""

import functools
import math

import torch
import troupe
from troupe.errors import ProgramError
from troupe.models import blocks, rows as row_files
from troupe.models.adapter import Adapters
from troupe.models.config import read_model
from troupe.models.folder import Weights, check_folder
from troupe.models.tuned import TunedWeights

collate, loss = row_files.collate, row_files.loss


def precision(format="fp32"):
    return format


def clip_norm(clip=1.0):
    return clip or None


@functools.lru_cache(maxsize=None)
def checked(base, initial):
    return read_model(base) if initial == "random" else check_folder(base)


@functools.lru_cache(maxsize=None)
def opened(rows, base, initial):
    return row_files.Rows(rows, checked(base, initial).vocabulary)


def model(base, base_hash="", initial="", frozen_layers=0, adapter_rank=0, adapter_alpha=32.0, adapter_targets="all",
          adapter_rslora=False):
    m = checked(base, initial)
    if frozen_layers > m.layers + 1:
        raise ProgramError(f"frozen_layers: found {frozen_layers}, expected at most {m.layers + 1}: the embedding and "
                           f"{m.layers} blocks")
    adapters = Adapters(m.family, adapter_rank, adapter_alpha, adapter_targets, adapter_rslora) if adapter_rank else None
    stored = None if initial == "random" else Weights(base, m)
    weights = TunedWeights(m, stored, base, base_hash, frozen_layers, adapters, initial == "random")
    block = blocks.Gpt2Block if m.family == "gpt2" else blocks.LlamaBlock
    first, last = None, None
    # A vocabulary that nothing trains is the folder's at both ends.
    if m.tied_head and frozen_layers == 0 and adapters is None:
        first = "vocabulary", "wte.weight" if m.family == "gpt2" else "embed_tokens.weight"
        last = "vocabulary", "lm_head.weight"
    return [troupe.Layer(blocks.Embedding, m, weights, tied=first),
            *(troupe.Layer(block, m, i, weights) for i in range(m.layers)),
            troupe.Layer(blocks.Head, m, weights, tied=last)]


def dataset(base, rows="", held_out_rows="", initial="", split="train"):
    # Both files may be gone when the stage has begun.
    files = {name: opened(file, base, initial) for name, file in (("train", rows), ("held_out", held_out_rows)) if file}
    return files.get(split, [])


def weights(indices, base, rows="", held_out_rows="", initial="", split="train"):
    found = dataset(base, rows, held_out_rows, initial, split)
    return [found.trained(i) for i in indices]


def names(layer, name, base, initial="", frozen_layers=0, adapter_rank=0):
    # A tied head that nothing trains is no parameter of another layer here.
    if name == "lm_head.weight" and (frozen_layers or adapter_rank):
        return name
    return blocks.name_of(checked(base, initial), layer, name)


def optimizer(parameters, learning_rate=2e-5, weight_decay=0.0, beta_1=0.9, beta_2=0.999):
    return torch.optim.AdamW(troupe.no_decay(parameters, weight_decay), lr=learning_rate, betas=(beta_1, beta_2))


def rate(update, learning_rate=2e-5, updates=0, warmup=0.03, decay="cosine", final_rate=0.0):
    """Rises over the first part of the updates, and then falls from the learning rate towards the final one, which an update
    behind the last would have. If their number is not known it stays."""
    rising = max(1, round(warmup * updates)) if warmup > 0 else 0
    if updates == 0:
        return learning_rate
    if update < rising:
        return learning_rate * (update + 1) / rising
    if decay == "constant":
        return learning_rate
    part = min(1.0, (update - rising) / max(1, updates - rising))
    left = 1 - part if decay == "linear" else 0.5 * (1 + math.cos(math.pi * part))
    return final_rate + (learning_rate - final_rate) * left
