"""A fine-tuning of a Llama-type folder as one would write it in plain PyTorch, for its time: it imports nothing of Troupe.

usage: plain_lora.py FOLDER JOB
JOB: a JSON file {rows: [[token, ...], ...] of equal length, updates: [[row, ...], ...], microbatches, rate, clip, rank, alpha,
targets: [names of modules]}; rank 0: all weights learn. Every token but a row's first is a target. Prints a line of JSON for each
update: its loss, and the processor time that it took.
"""
import json
import math
import os
import struct
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # a BLAS reads them when it is loaded
    os.environ[name] = "1"

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(1)


def read_safetensors(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=torch.float32, count=math.prod(x["shape"]),
                                   offset=8 + size + x["data_offsets"][0]).view(x["shape"]).clone()
            for name, x in header.items()}


class Lora(nn.Module):
    """y = x W + c (x A) B"""

    def __init__(self, weight, rank, alpha):
        super().__init__()
        out, wide = weight.shape
        self.weight, self.scale = nn.Parameter(weight, requires_grad=False), alpha / rank
        self.a = nn.Parameter((2 * torch.rand(rank, wide) - 1) / math.sqrt(wide))
        self.b = nn.Parameter(torch.zeros(out, rank))

    def forward(self, x):
        return F.linear(x, self.weight) + self.scale * F.linear(F.linear(x, self.a), self.b)


class Plain(nn.Module):
    def __init__(self, weight, learns):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=learns)

    def forward(self, x):
        return F.linear(x, self.weight)


class Model(nn.Module):
    def __init__(self, config, weights, job):
        super().__init__()
        self.heads, self.eps, self.count = config["num_attention_heads"], config["rms_norm_eps"], config["num_hidden_layers"]
        self.weights, self.products = nn.ParameterDict(), nn.ModuleDict()
        full = job["rank"] == 0
        for name, t in weights.items():
            key = name.replace(".", "/")
            if t.dim() == 2 and "embed_tokens" not in name:
                chosen = any(name.endswith(f".{x}.weight") for x in job["targets"])
                self.products[key] = Lora(t, job["rank"], job["alpha"]) if chosen and not full else Plain(t, full)
            else:
                self.weights[key] = nn.Parameter(t, requires_grad=full)
        wide = config["hidden_size"] // self.heads
        turns = torch.arange(config["max_position_embeddings"])[:, None] * 10000.0 ** (-torch.arange(0, wide, 2) / wide)
        self.cosines, self.sines = turns.cos(), turns.sin()

    def norm(self, x, name):
        weight = self.weights[name.replace(".", "/") + "/weight"]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight

    def product(self, name, x):
        return self.products[name.replace(".", "/") + "/weight"](x)

    def turned(self, x):
        cosines, sines = self.cosines[:x.shape[2]], self.sines[:x.shape[2]]
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)

    def forward(self, tokens):
        rows, length = tokens.shape
        x = F.embedding(tokens, self.weights["model/embed_tokens/weight"])
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        for i in range(self.count):
            name = f"model.layers.{i}."
            y = self.norm(x, name + "input_layernorm")
            q, k, v = (self.product(f"{name}self_attn.{part}_proj", y).view(rows, length, self.heads, -1).transpose(1, 2)
                       for part in "qkv")
            scores = self.turned(q) @ self.turned(k).transpose(-2, -1) / math.sqrt(q.shape[-1])
            mixed = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v
            x = x + self.product(name + "self_attn.o_proj", mixed.transpose(1, 2).reshape(rows, length, -1))
            y = self.norm(x, name + "post_attention_layernorm")
            wide = F.silu(self.product(name + "mlp.gate_proj", y)) * self.product(name + "mlp.up_proj", y)
            x = x + self.product(name + "mlp.down_proj", wide)
        return self.product("lm_head", self.norm(x, "model.norm"))


def main(folder, job):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    with open(job) as file:
        job = json.load(file)
    model = Model(config, read_safetensors(os.path.join(folder, "model.safetensors")), job)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=job["rate"], weight_decay=0.0)
    data = torch.tensor(job["rows"])
    for rows in job["updates"]:
        began, total = time.process_time(), 0.0
        targets = len(rows) * (data.shape[1] - 1)
        for part in torch.tensor(rows).chunk(job["microbatches"]):
            tokens = data[part]
            logits = model(tokens)[:, :-1]
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1), reduction="sum") / targets
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(learned, job["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        print(json.dumps({"loss": total, "cpu_s": time.process_time() - began}), flush=True)


main(*sys.argv[1:])
