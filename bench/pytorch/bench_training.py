"""PyTorch's side of bench_training: GPT-2 of gpt2.py on one thread.

usage: bench_training.py LAYERS HIDDEN HEADS SEQUENCE BATCH VOCABULARY STEPS
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

sys.dont_write_bytecode = True  # beside the model, which lies beside this script
import gpt2


def best_step_s(model, tokens, targets, steps, foreach):
    optimizer = gpt2.adamw(model, 3e-4, foreach=foreach)
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
    model = gpt2.GPT(layers, hidden, heads, sequence, vocabulary)
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
