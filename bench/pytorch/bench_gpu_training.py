"""PyTorch's side of bench_gpu_training: GPT-2 of gpt2.py.

usage: bench_gpu_training.py train  LAYERS HIDDEN HEADS SEQUENCE ROWS VOCABULARY [options]
       bench_gpu_training.py losses LAYERS HIDDEN HEADS SEQUENCE ROWS VOCABULARY CHECKPOINT BATCHES [options]

train: tokens a second of several rounds, their best and their median, and the peak of memory, on random tokens.
losses: the loss of each step, from the weights of CHECKPOINT (a directory of safetensors in Hugging
Face's layout) on BATCHES (numbers of 32 bits: for each step its tokens, then its targets).
Options: --device cuda|cpu, --steps N a round, --rounds N, --warm N steps before, --precision bf16|fp32,
--attention fused|plain (plain keeps all probabilities), --backend any|flash|cudnn (of fused attention: what
PyTorch chooses, or FlashAttention 2 or cuDNN alone), --compile 0|1, --rate R.
Prints one line of JSON; "attention" names the backend. What it has not (torch.compile, a fused optimizer, fused
attention) is left out and named in "without"; without the backend that is asked for it does nothing and says why.
Needs PyTorch 1.13 or newer, and numpy for losses.
"""
import argparse
import glob
import json
import os
import statistics
import sys
import time

import torch

sys.dont_write_bytecode = True  # beside the model, which lies beside this script
import gpt2


def optimizer_of(model, rate, on_gpu, without):
    if on_gpu:
        try:
            return gpt2.adamw(model, rate, fused=True)
        except (TypeError, RuntimeError):
            without.append("fused AdamW")
    return gpt2.adamw(model, rate)


def make_model(a, without):
    fused = a.attention == "fused" and gpt2.FUSED_ATTENTION
    if a.attention == "fused" and not fused:
        without.append("fused attention")
    return gpt2.GPT(a.layers, a.hidden, a.heads, a.sequence, a.vocabulary, fused).to(a.device)


def attention_of(a):
    """The name of what computes attention; None: PyTorch does not say."""
    if a.attention == "plain" or not gpt2.FUSED_ATTENTION:
        return "plain"
    kind = torch.bfloat16 if a.precision == "bf16" else torch.float32
    return gpt2.chosen_backend(a.heads, torch.empty(a.rows, a.sequence, 3 * a.hidden, dtype=kind, device=a.device,
                                                    requires_grad=True))


class Trainer:
    """One micro-batch and one update a step."""

    def __init__(self, a, model, without):
        self.a = a
        self.optimizer = optimizer_of(model, a.rate, a.device == "cuda", without)
        self.model = model
        if a.compile:
            if hasattr(torch, "compile"):
                self.model = torch.compile(model)
            else:
                without.append("torch.compile")

    def step(self, tokens, targets):
        with torch.autocast(self.a.device, dtype=torch.bfloat16, enabled=self.a.precision == "bf16"):
            loss = self.model(tokens, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def warmed_up(a, model, data, without):
    """A trainer that has done its first steps; not compiled, if that does not work here."""
    try:
        trainer = Trainer(a, model, without)
        for _ in range(a.warm):
            loss = trainer.step(*data)
        wait(a.device)
        if a.device == "cuda":
            torch.cuda.reset_peak_memory_stats()  # of training, not of compiling
        return trainer, loss
    except Exception as e:  # Triton and its compiler fail in many ways
        if not a.compile or isinstance(e, torch.cuda.OutOfMemoryError):
            raise
        without.append(f"torch.compile: {str(e).strip().splitlines()[0][:200]}")
        a.compile = 0
        return warmed_up(a, model, data, without)


def memory_of(device):
    if device != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "driver_used_bytes": total - free,
    }


def train(a):
    without = []
    model = make_model(a, without)
    data = [torch.randint(a.words, (a.rows, a.sequence), device=a.device) for _ in range(2)]
    trainer, loss = warmed_up(a, model, data, without)
    rounds = []
    for _ in range(a.rounds):
        begin = time.perf_counter()
        for _ in range(a.steps):
            loss = trainer.step(*data)
        wait(a.device)
        rounds.append((time.perf_counter() - begin) / a.steps)
    tokens = a.rows * a.sequence
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_s": min(rounds),
        "median_step_s": statistics.median(rounds),
        "tokens_per_s": tokens / min(rounds),
        "median_tokens_per_s": tokens / statistics.median(rounds),
        "worst_tokens_per_s": tokens / max(rounds),
        "compiled": bool(a.compile) and hasattr(torch, "compile"),
        "loss": float(loss),
        "without": without,
        **memory_of(a.device),
    }


def read_safetensors(directory):
    """All tensors in 32 bits of a directory's files: 8 bytes of length, a JSON header, the values."""
    import numpy

    tensors = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
        with open(path, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            start = f.tell()
            for name, what in header.items():
                if name == "__metadata__" or name.startswith("adam."):
                    continue
                assert what["dtype"] == "F32", (name, what["dtype"])
                begin, end = what["data_offsets"]
                f.seek(start + begin)
                values = numpy.frombuffer(f.read(end - begin), dtype="<f4")
                tensors[name] = torch.from_numpy(values.reshape(what["shape"]).copy())
    return tensors


def load(model, tensors):
    """Weights of products are stored [in, out]; PyTorch has them [out, in]."""
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, p in own.items():
            values = tensors[name]
            if isinstance(model.get_submodule(name.rsplit(".", 1)[0]), torch.nn.Linear) and values.dim() == 2:
                values = values.t()
            p.copy_(values)
    return sorted(set(tensors) - set(own))


def losses(a):
    import numpy

    without = []
    model = make_model(a, without)
    unread = load(model, read_safetensors(a.checkpoint))
    batches = numpy.fromfile(a.batches, dtype="<u4").astype("int64")
    batches = torch.from_numpy(batches.reshape(-1, 2, a.rows, a.sequence)).to(a.device)
    trainer = Trainer(a, model, without)
    found = [trainer.step(tokens, targets) for tokens, targets in batches]
    return {"losses": [float(l) for l in found], "unread": unread, "without": without}


def arguments():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("what", choices=["train", "losses"])
    for name in ("layers", "hidden", "heads", "sequence", "rows", "vocabulary"):
        p.add_argument(name, type=int)
    p.add_argument("files", nargs="*")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--warm", type=int, default=5)
    p.add_argument("--words", type=int, default=0)
    p.add_argument("--rate", type=float, default=3e-4)
    p.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    p.add_argument("--attention", choices=["fused", "plain"], default="fused")
    p.add_argument("--backend", choices=["any", "flash", "cudnn"], default="any")
    p.add_argument("--compile", type=int, default=1)
    a = p.parse_args()
    a.rounds = max(1, a.rounds)
    a.words = a.words or a.vocabulary
    if a.what == "losses":
        a.checkpoint, a.batches = a.files
    return a


def main():
    a = arguments()
    if a.device == "cuda" and not torch.cuda.is_available():
        print(json.dumps({"version": torch.__version__, "why": "this PyTorch finds no CUDA device"}))
        return
    torch.manual_seed(1)
    said = {"version": torch.__version__, "device": a.device}
    if a.device == "cuda":
        said["device"] = torch.cuda.get_device_name()
    else:
        torch.set_flush_denormal(True)
    has = a.backend == "any" or gpt2.allow_only(a.backend)
    said["attention"] = attention_of(a) if has else None
    if not has:
        said["why"] = f"this PyTorch has no attention of {a.backend}"
    elif a.backend != "any" and said["attention"] not in (None, a.backend):
        said["why"] = f"PyTorch cannot use {a.backend} for this attention"
    else:
        try:
            said.update(train(a) if a.what == "train" else losses(a))
        except torch.cuda.OutOfMemoryError:
            said["why"] = "out of memory"
    print(json.dumps(said))


if __name__ == "__main__":
    main()
