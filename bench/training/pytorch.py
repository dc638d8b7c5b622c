"""The model of bench_training in PyTorch, as its users write it; one thread.

usage: pytorch.py LAYERS HIDDEN HEADS SEQUENCE BATCH VOCABULARY STEPS
Prints a line of JSON with the tokens a second of its best step, by processor time, of the optimizer
with and without foreach.
"""
import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, hidden, heads, sequence):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)
        mask = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, x):
        rows, sequence, hidden = x.shape
        q, k, v = (
            t.view(rows, sequence, self.heads, hidden // self.heads).transpose(1, 2)
            for t in self.c_attn(x).split(hidden, dim=2)
        )
        scores = q @ k.transpose(-2, -1) * (hidden // self.heads) ** -0.5
        weights = F.softmax(scores.masked_fill(self.mask, float("-inf")), dim=-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(rows, sequence, hidden))


class Block(nn.Module):
    def __init__(self, hidden, heads, sequence):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden)
        self.attn = Attention(hidden, heads, sequence)
        self.ln_2 = nn.LayerNorm(hidden)
        self.c_fc = nn.Linear(hidden, 4 * hidden)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, layers, hidden, heads, sequence, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(sequence, hidden)
        self.h = nn.ModuleList(Block(hidden, heads, sequence) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def optimizer_of(model, foreach):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=3e-4, betas=(0.9, 0.95), eps=1e-8, foreach=foreach)


def best_step_s(model, tokens, targets, steps, foreach):
    optimizer = optimizer_of(model, foreach)
    best = float("inf")
    for step in range(steps + 1):
        begin = time.process_time()
        loss = model(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step > 0:
            best = min(best, time.process_time() - begin)
    return best


def main():
    layers, hidden, heads, sequence, batch, vocabulary, steps = map(int, sys.argv[1:8])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    model = GPT(layers, hidden, heads, sequence, vocabulary)
    tokens = torch.randint(vocabulary, (batch, sequence))
    targets = torch.randint(vocabulary, (batch, sequence))
    best = min(best_step_s(model, tokens, targets, steps, foreach) for foreach in (False, True))
    print(json.dumps({
        "version": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_s": batch * sequence / best,
    }))


if __name__ == "__main__":
    main()
