"""bench_tuning.py cost, memory_one: a worker beside a loop in plain PyTorch, and beside its predicted memory."""

import json
import os
import subprocess
import sys

from runs import Training, root

loop = os.path.join(root, "tests", "python", "oracle", "plain_lora.py")
warm = 2  # updates before the measured ones


def wide(hidden, blocks):
    return {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": blocks, "num_attention_heads": 8,
            "intermediate_size": hidden * 11 // 4, "max_position_embeddings": 160, "rms_norm_eps": 1e-6, "vocab_size": 256}


def job_of(bench, base, name, updates, microbatches, length, adapter):
    """Rows are texts of bytes: every token but the first of a row is a target."""
    rows = [[ord("a") + (7 * i * i + 5 * r + i) % 26 for i in range(length)] for r in range(8)]
    with open(bench.path("rows.jsonl"), "w") as file:
        file.writelines(json.dumps({"text": "".join(map(chr, row))}) + "\n" for row in rows)
    train = {"base": base, "data": bench.path("rows.jsonl"), "learning_rate": 1e-3, "warmup": 0, "decay": "constant",
             "device": "cpu", "seed": 3, "threads": 1, "schedule": "megatron", **({"adapter": adapter} if adapter else {})}
    return rows, {"name": name, "global_batch": 8, "iterations": updates, "pipeline": {"microbatches": microbatches},
                  "train": train}


def worker_over_plain(bench, parts, rounds=5, updates=8):
    """E9: processor time of an update by a worker and its node, over that of a plain loop. All that disturbs a run makes it longer,
    so the shortest updates of each are compared."""
    parts.configs["worker"] = wide(512, 4)
    base, adapter = bench.base("worker"), {"rank": 16, "alpha": 32, "targets": "q_proj,v_proj"}
    rows, job = job_of(bench, base, "worker", updates, 2, 128, adapter)
    seed = job["train"]["seed"]
    chosen = [parts.order.samples(8 * n, 8, len(rows), seed) for n in range(updates)]
    with open(bench.path("plain.json"), "w") as file:
        json.dump({"rows": rows, "updates": chosen, "microbatches": 2, "rate": 1e-3, "clip": 1.0, **adapter,
                   "targets": adapter["targets"].split(",")}, file)
    plain, worker, differences = [], [], []
    for k in range(rounds):
        training = Training(bench.path(f"worker-{k}"), job, bench.fault, "cpu")
        training.start(1)
        training.wait()
        marks = [x for _, x in training.marked()]
        worker += [after - before for before, after in zip(marks[warm:], marks[warm + 1:])]
        found = subprocess.run([sys.executable, "-I", loop, base, bench.path("plain.json")], capture_output=True, text=True)
        if found.returncode:
            raise SystemExit(found.stderr)
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        plain += [x["cpu_s"] for x in lines[warm:-1]]
        differences.append(abs(training.document()["losses"][0] / lines[0]["loss"] - 1))
    bench.at_least("worker_s", min(worker), 0.1)
    bench.at_most("worker_and_plain_losses", max(differences), 1e-5)
    bench.at_most("worker_over_plain", min(worker) / min(plain), 1.06)


def memory_one(bench, parts):
    """E11: by how much a worker grows for an adapter, and for all weights, of a base of 100 MB. Predicted is what is in use: memory
    that the allocator keeps between tensors depends on the order in which they come and go."""
    parts.configs["memory"] = wide(512, 8)
    base = bench.base("memory")
    bench.at_least("base_bytes", os.path.getsize(os.path.join(base, "model.safetensors")), 1e8)
    grown = {}
    for kind, adapter in (("full", None), ("adapter", {"rank": 16, "alpha": 32})):
        _, job = job_of(bench, base, kind, 4, 8, 64, adapter)
        training = Training(bench.path(kind), job, bench.fault, "memory")
        training.start(1)
        training.wait()
        grown[kind], used = (max(x for _, x in training.marked(name)) for name in ("marks", "marks-used"))
        predicted = training.document()["predicted_bytes"]
        bench.at_most(f"{kind}_predicted_apart", abs(predicted / used - 1), 0.12)
        bench.figures[f"{kind}_bytes"] = {"found": grown[kind], "limit": f"in use {used:.0f}, predicted {predicted}"}
    bench.at_most("adapter_over_full", grown["adapter"] / grown["full"], 0.45)
