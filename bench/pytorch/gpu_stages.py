#!/usr/bin/env python3
"""A PyTorch model in stages on one GPU: what is equal, what a killed worker leaves, how long a step takes.

    gpu_stages.py [--device cuda|cpu] [--quick] [--json FILE] CHECK...

    equal      losses of one and of two stages, in deterministic algorithms, and of python3 -m troupe.plain
    kill       a worker's memory on the GPU after SIGKILL: free within 2 s; the training goes on
    precision  bf16, and on a GPU fp16, with clipped gradients: finite losses
    step       GPT-2 124M in bf16: a step of one stage beside the same layers in a plain loop

A line a check; the exit status is 1 if one fails. --device cpu checks this script. $TROUPE_PROGRAM is the program, and the
package `troupe` is in PYTHONPATH.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
examples = os.path.join(os.path.dirname(os.path.dirname(here)), "examples", "pytorch")
program = os.environ.get("TROUPE_PROGRAM", "troupe")
small = {"layers": 4, "hidden": 64, "heads": 4, "sequence": 64}

cluster = {"name": "one-gpu", "datacenters": [{"name": "here", "nodes": [
    {"name": name, "gpu": "H100-80GB", "gpus": 1, "intra": "pcie5", "inter": "eth100"} for name in ("first", "second")]}]}


class World:
    def __init__(self, device, quick, folder):
        self.device, self.quick, self.folder = device, quick, folder
        self.cluster = self.write("cluster.yaml", json.dumps(cluster))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def gpt(self, precision):
        """The file of gpt.py in another precision."""
        return self.write(f"gpt_{precision}.py", f"import sys\nsys.path.insert(0, {examples!r})\nfrom gpt import *\n"
                                                 f"precision = {precision!r}\n")

    def train(self, precision="fp32", arguments=small, stages=1, batch=16, microbatches=4, iterations=10, **more):
        job = {"name": "job", "global_batch": batch, "iterations": iterations,
               "train": {"program": self.gpt(precision), "arguments": arguments, "seed": 3, "device": self.device,
                         "schedule": "varuna", "python": sys.executable, **more},
               "pipeline": {"stages": stages, "data_parallel": 1, "microbatches": microbatches}}
        return subprocess.Popen([program, "train", self.write("job.yaml", json.dumps(job)), "--world", "local", "--cluster",
                                 self.cluster, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                cwd=self.folder)

    def result(self, *arguments, **more):
        return finished(self.train(*arguments, **more))


def finished(process):
    out, error = process.communicate()
    if process.returncode:
        raise RuntimeError(f"status {process.returncode}: {(error or out).strip()[-1000:]}")
    return json.loads(out)


def equal(w):
    one, two = (w.result(stages=n, deterministic=True)["losses"] for n in (1, 2))
    ended = subprocess.run([sys.executable, "-m", "troupe.plain", w.gpt("fp32"), "--arguments", json.dumps(small), "--seed", "3",
                            "--global-batch", "16", "--microbatches", "4", "--iterations", "10", "--device", w.device],
                           capture_output=True, text=True, check=True)
    plain = [float(line.split()[-1]) for line in ended.stdout.splitlines()]
    worst = max(abs(a - b) / b for a, b in zip(one, plain))
    return {"good": one == two and worst < 1e-5, "stages_equal": one == two, "plain_equal": one == plain,
            "plain_relative": worst, "losses": one}


def workers_of(folder):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read()
            if b"troupe.worker" in line and os.readlink(f"/proc/{pid}/cwd").startswith(folder):
                found.append(int(pid))
        except OSError:
            continue
    return found


def on_gpu(device):
    """Processes with memory on the GPU."""
    if device == "cpu":
        return None
    text = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout
    return [line for line in text.splitlines() if line.strip()]


def kill(w):
    saved = os.path.join(w.folder, "saved")
    training = w.train(stages=2, iterations=60, checkpoint=saved, checkpoint_every=10)
    index = os.path.join(saved, "iteration-000010", "model.safetensors.index.json")
    while not os.path.exists(index) and training.poll() is None:
        time.sleep(0.05)
    before = on_gpu(w.device)
    victims = workers_of(w.folder)
    if not victims:
        raise RuntimeError("found no worker to kill")
    began = time.monotonic()
    os.kill(victims[0], signal.SIGKILL)
    while os.path.exists(f"/proc/{victims[0]}") or (before and len(on_gpu(w.device)) >= len(before)):
        if time.monotonic() - began > 10:
            break
        time.sleep(0.02)
    free_s = time.monotonic() - began
    result = finished(training)
    return {"good": free_s <= 2 and not workers_of(w.folder), "free_s": free_s, "gpu_processes_before": before and len(before),
            "last_loss": result["losses"][-1]}


def precision(w):
    found = {}
    for kind in ("bf16", "fp16") if w.device == "cuda" else ("bf16",):  # PyTorch has no fp16 on CPUs
        result = w.result(kind, stages=2, iterations=30)
        found[kind] = result["losses"][-1]
    finite = all(loss is not None and loss == loss and loss < 10 for loss in found.values())
    return {"good": finite, **found}


def step(w):
    sizes = small if w.quick else {"layers": 12, "hidden": 768, "heads": 12, "sequence": 1024, "dropout": 0.0}
    rows, count = (4, 2) if w.quick else (8, 4)
    result = w.result("bf16", arguments=sizes, batch=rows * count, microbatches=count, iterations=12)
    plain = subprocess.run([sys.executable, os.path.abspath(__file__), "plain", w.gpt("bf16"), json.dumps(sizes), str(rows),
                            str(count), w.device], capture_output=True, text=True, check=True,
                           env=dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))
    plain_s, stage_s = float(plain.stdout), result["iteration_s"]["p50"]
    return {"good": stage_s <= 1.08 * plain_s or w.quick, "step_s": stage_s, "plain_step_s": plain_s,
            "ratio": stage_s / plain_s, "rows": rows, "microbatches": count}


def plain_step(file, arguments, rows, count, device):
    """The median time of an iteration of the same layers in a plain loop."""
    import torch
    from troupe.layers.layer import Model

    torch.set_num_threads(1)
    sys.path.insert(0, examples)
    import gpt

    model = Model(gpt.model(**json.loads(arguments)), file)
    layers = model.build(0, len(model), 1, device)
    parameters = [x for layer in layers for x in layer.module.parameters()]
    optimizer = torch.optim.AdamW([x for x in parameters if x.requires_grad], lr=1e-3)
    data = gpt.dataset(sequence=json.loads(arguments)["sequence"])
    times = []
    for iteration in range(12):
        began = time.perf_counter()
        for microbatch in range(count):
            at = (iteration * count + microbatch) * rows
            samples = [data[(at + i) % len(data)] for i in range(rows)]
            x, y = (torch.stack(values).to(device) for values in zip(*samples))
            with torch.autocast(device, dtype=torch.bfloat16):
                for layer in layers:
                    x = layer(x)
                found = gpt.loss(x, y) / count
            found.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    print(statistics.median(times[2:]))


def main():
    if sys.argv[1:2] == ["plain"]:
        file, arguments, rows, count, device = sys.argv[2:]
        return plain_step(file, arguments, int(rows), int(count), device)
    checks = {"equal": equal, "kill": kill, "precision": precision, "step": step}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("checks", nargs="+", choices=checks, metavar="CHECK")
    o = parser.parse_args()
    record, failed = {}, False
    for name in o.checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = checks[name](World(o.device, o.quick, folder))
            except (RuntimeError, subprocess.CalledProcessError, KeyError) as error:
                why = getattr(error, "stderr", None) or str(error)
                found = {"good": False, "why": why.strip()[-1000:]}
        record[name] = found
        failed = failed or not found["good"]
        print(name, "good" if found["good"] else "FAILED",
              " ".join(f"{k}={v}" for k, v in found.items() if k not in ("good", "losses")), flush=True)
    if o.json:
        with open(o.json, "w") as file:
            json.dump({"device": o.device, "quick": o.quick, "checks": record}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
