"""What the measurements of bench_pipelines share: clusters, jobs, trainings, checkpoints as bytes, processes."""

import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import torch
from troupe.client import command

root = Path(__file__).resolve().parents[2]
here = root / "bench" / "pytorch"
mixed = root / "tests" / "python" / "programs" / "mixed.py"
gpt = root / "examples" / "pytorch" / "gpt.py"
small = {"layers": 2, "hidden": 32, "heads": 2, "sequence": 32}  # of gpt.py
schedules = ("gpipe", "megatron", "varuna", "atlas")
seed, iterations, microbatches = 3, 4, 4
mark = f"BENCH_PIPELINES={os.getpid()}"  # of the processes that this one has started


def cluster(nodes, together=False):
    """Each node is a datacenter, 10 ms from the others over an emulated WAN; together: all are in one."""
    names = [f"node-{i}" for i in range(nodes)]
    node = [{"name": n, "gpu": "T4", "gpus": 1, "intra": "pcie3", "inter": "eth10"} for n in names]
    apart = [{"name": f"dc-{i}", "nodes": [n]} for i, n in enumerate(node)]
    wan = [{"between": [f"dc-{a}", f"dc-{b}"], "rtt_ms": 10, "node_gbps": 5, "connection_gbps": 1, "emulate": True}
           for a in range(nodes) for b in range(a + 1, nodes)]
    return {"name": "pipelines", "datacenters": [{"name": "here", "nodes": node}] if together else apart,
            **({} if together else {"wan": wan}), "settings": {"heartbeat_s": 0.2, "lease_s": 5, "restart_s": 1}}


def environment():
    """Without variables of Troupe's or of a launcher's; BLAS has one thread, as in a worker."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TROUPE_", "RANK", "WORLD_SIZE", "MASTER_"))}
    name, value = mark.split("=")
    return dict(kept, PYTHONPATH=str(root / "python"), PYTHONDONTWRITEBYTECODE="1", TROUPE_PYTHON=sys.executable,
                OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", **{name: value})


class Folder:
    """A temporary one, kept if the measurement fails."""

    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="bench-pipelines-"))
        return self

    def __exit__(self, *failed):
        if failed[0] is None:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            print(f"kept: {self.path}", file=sys.stderr)

    def write(self, name, document):
        file = self.path / name
        file.write_text(json.dumps(document))
        return file

    def job(self, program, name="job", arguments=None, batch=16, steps=iterations, stages=1, recompute=False,
            schedule="gpipe", cut=None, microbatches=microbatches, max_restarts=None, **train):
        train = {"program": str(program), "arguments": arguments or {}, "seed": seed, "device": "cpu", "threads": 1,
                 "schedule": schedule, "python": sys.executable, **train}
        pipeline = {"stages": stages, "microbatches": microbatches, "recompute": recompute,
                    **({"cut": cut} if cut else {})}
        return self.write(f"{name}.yaml", {
            "name": name, "model": self.described(program, arguments), "global_batch": batch, "iterations": steps,
            "train": train, "pipeline": pipeline,
            **({} if max_restarts is None else {"max_restarts": max_restarts})})

    def described(self, program, arguments):
        """The file of `troupe describe`: without it each training would describe its program again."""
        text = json.dumps(arguments or {})
        file = self.path / f"model-{zlib.crc32(f'{program} {text}'.encode()):08x}.yaml"
        if not file.exists():
            run("describe", program, "--arguments", text, "--out", file)
        return str(file)

    def trained(self, nodes=1, name="job", together=False, **job):
        """(document, state): of `troupe train --world local`; the last checkpoint's tensors."""
        saved = self.path / f"saved-{name}"
        file = self.job(name=name, checkpoint=str(saved), **job)
        file_of_nodes = self.write(f"{name}-cluster.yaml", cluster(nodes, together))
        found = train(file, "--world", "local", "--cluster", file_of_nodes)
        if len(found["losses"]) != job.get("steps", iterations):
            raise SystemExit(f"{name}: found {len(found['losses'])} losses: {found['events']}")
        return found, state_of(saved)

    def looped(self, program, name="loop", arguments=None, batch=16, steps=iterations, microbatches=microbatches):
        """(document, state) of plain_loop.py."""
        out = self.path / f"{name}.pt"
        done = subprocess.run(plain_loop(program, arguments, batch, steps, microbatches, out), env=environment(),
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"plain_loop.py {program}: {done.stderr}")
        return json.loads(done.stdout), {name: plain(t) for name, t in torch.load(out).items()}


def plain_loop(program, arguments, batch, steps, microbatches, out=None):
    return [sys.executable, str(here / "plain_loop.py"), str(program), "--arguments", json.dumps(arguments or {}),
            "--batch", str(batch), "--microbatches", str(microbatches), "--iterations", str(steps), "--seed", str(seed),
            *(["--out", str(out)] if out else [])]


def train(*words):
    """The document of `troupe train`."""
    return json.loads(run("train", *words, "--json"))


def run(*words):
    """What `troupe` prints, in a folder of its own: a training there has its logs in `out`."""
    program = os.path.abspath(command.program())
    with tempfile.TemporaryDirectory(prefix="bench-pipelines-out-") as out:
        done = subprocess.run([program, *map(str, words)], cwd=out, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"troupe {' '.join(map(str, words))}: {done.stderr or done.stdout}")
    return done.stdout


# -- checkpoints, read without the package

types = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "U8": torch.uint8}


def complete(saved):
    """Iterations of the complete checkpoints, in their order."""
    return sorted(int(file.parent.name.split("-")[1]) for file in saved.glob("iteration-*/*.index.json"))


def state_of(saved):
    """{name: (type, shape, bytes)} of the newest complete checkpoint: weights, buffers, optimizer state."""
    folder = saved / f"iteration-{complete(saved)[-1]:06d}"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found = {}
    for name in set(index["weight_map"].values()):
        data = (folder / name).read_bytes()
        size, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        for tensor, x in header.items():
            begin, end = x["data_offsets"]
            found[tensor] = (x["dtype"], x["shape"], data[8 + size + begin:8 + size + end])
    return found


def plain(t):
    kind = next(name for name, dtype in types.items() if dtype == t.dtype)
    return kind, list(t.shape), t.contiguous().numpy().tobytes()


def differences(one, other):
    """Names of tensors that only one has, or whose bytes differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def relative(one, other):
    """The norm of the weights' difference over their norm."""
    both = [(tensor(one[name]), tensor(other[name])) for name in sorted(one)
            if not name.startswith(("optim/", "buffer/"))]
    return float((sum(((a - b) ** 2).sum() for a, b in both) / sum((b ** 2).sum() for _, b in both)) ** 0.5)


def tensor(found):
    kind, shape, data = found
    return torch.frombuffer(bytearray(data), dtype=types[kind]).view(shape).double()


# -- a cluster with a controller

class Cluster:
    """`troupe up` of nodes that are datacenters. nodes: {name: process}."""

    def __init__(self, folder, nodes):
        self.folder, self.state, self.count = folder, folder.path / "state", nodes

    def __enter__(self):
        file = self.folder.write("cluster.yaml", cluster(self.count))
        text = self.command("up", file, "--detach")
        self.nodes = {name: int(pid) for name, pid in re.findall(r"^(node-\d+) +process (\d+)", text, re.M)}
        return self

    def __exit__(self, *_):
        subprocess.run([command.program(), "down", "--state", str(self.state)], env=environment(), capture_output=True)
        for pid in self.nodes.values():  # those that were started again are not of `troupe up`
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            until("the end of the workers", lambda: not workers(self.folder.path), 10)
        self.left = workers(self.folder.path)

    def command(self, *words):
        return run(*words, "--state", self.state)

    def json(self, *words):
        return json.loads(self.command(*words, "--json"))

    def submit(self, file):
        return self.json("submit", file)["jobs"][0]["job"]

    def status(self, job):
        return self.json("status", job)["jobs"][0]


def curve(saved):
    """{iteration: loss} of a training's curve.csv. Those computed again after a loss of work come twice."""
    file = saved / "curve.csv"
    rows = [row.split(",") for row in file.read_text().splitlines()] if file.exists() else []
    return {int(row[0]): float(row[3]) for row in rows if row[0].isdigit()}


def workers(folder):
    """Workers whose output is in the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"troupe.worker" in line and str(folder) in os.readlink(f"/proc/{pid}/fd/1"):
                found.append(int(pid))
    return found


def until(what, condition, limit_s=90):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError(f"{what}: not within {limit_s} s")
