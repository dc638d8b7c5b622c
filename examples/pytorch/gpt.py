"""A small GPT as a list of layers: Troupe trains it in stages, python3 -m troupe.plain in one process.

Its text is drawn from the grammar below, so that the example needs no file; text="FILE" reads another one.
"""

import math
import random

import torch
import troupe
from torch import nn
from torch.nn import functional as F

precision, clip_norm = "fp32", 1.0


class Embedding(nn.Module):
    def __init__(self, vocabulary, hidden, sequence):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, hidden) * 0.02)
        self.positions = nn.Parameter(torch.randn(sequence, hidden) * 0.02)

    def forward(self, tokens):
        return F.embedding(tokens, self.weight) + self.positions[: tokens.shape[1]]


class Block(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self._dropped(self.out(self._attention(self.norm1(x))))
        return x + self._dropped(self.down(F.gelu(self.up(self.norm2(x)))))

    def _attention(self, x):
        rows, length, hidden = x.shape
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(hidden, 2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(hidden // self.heads)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = self._dropped(scores.masked_fill(later, -math.inf).softmax(-1))
        return (weights @ v).transpose(1, 2).reshape(rows, length, hidden)

    def _dropped(self, x):
        return F.dropout(x, self.dropout, self.training)


class Head(nn.Module):
    def __init__(self, vocabulary, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.weight = nn.Parameter(torch.empty(vocabulary, hidden))  # the embedding's

    def forward(self, x):
        return F.linear(self.norm(x), self.weight)


def model(layers=4, hidden=64, heads=4, sequence=64, dropout=0.1):
    return [
        troupe.Layer(Embedding, 256, hidden, sequence, tied="tokens"),
        *[troupe.Layer(Block, hidden, heads, dropout) for _ in range(layers)],
        troupe.Layer(Head, 256, hidden, tied="tokens"),
    ]


def loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


class Text:
    """Pieces of a text: `sequence` bytes, and the byte that follows each. The last tenth is held out."""

    def __init__(self, text, sequence, held_out):
        begin = len(text) * 9 // 10
        text = text[begin:] if held_out else text[:begin]
        self.bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.sequence = sequence

    def __len__(self):
        return len(self.bytes) - self.sequence

    def __getitem__(self, i):
        piece = self.bytes[i : i + self.sequence + 1].long()
        return piece[:-1], piece[1:]


def dataset(split="train", text="", sequence=64):
    if text:
        with open(text, "rb") as file:
            return Text(file.read(), sequence, split == "held_out")
    return Text(sentences(20_000).encode(), sequence, split == "held_out")


def optimizer(parameters, rate=1e-3):
    return torch.optim.AdamW(troupe.no_decay(parameters, 0.1), lr=rate, betas=(0.9, 0.95))


def schedule(optimizer, warmup=20):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))


_actors = "the troupe", "a clown", "the old director", "her brother", "every acrobat", "the tall juggler"
_verbs = "carries", "paints", "forgets", "hides", "repairs", "follows"
_things = "the curtain", "a red lamp", "two drums", "the last letter", "a wooden horse", "the stage"
_ends = "before dawn", "without a word", "in the rain", "for the children", "again", "behind the tent"


def sentences(count):
    draw = random.Random(1)
    return " ".join(f"{draw.choice(_actors)} {draw.choice(_verbs)} {draw.choice(_things)} {draw.choice(_ends)}."
                    for _ in range(count))
