"""Programs' layers as stages of real nodes: `troupe train`. $TROUPE_PROGRAM is the program; without it or PyTorch nothing
is tested."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from support import Scratch, environment, has_torch, lines_of, root, until, without_torch
from troupe import order

program = os.environ.get("TROUPE_PROGRAM")
gpt = os.path.join(root, "examples", "pytorch", "gpt.py")
small = {"layers": 3, "hidden": 32, "heads": 2, "sequence": 32}
iterations, batch, microbatches = 6, 16, 4

raises = """
import torch, troupe

class Raises(torch.nn.Linear):
    calls = 0
    def forward(self, x):
        Raises.calls += 1
        if Raises.calls > 6:
            raise ValueError("seven")
        return super().forward(x)

def model():
    return [troupe.Layer(torch.nn.Linear, 4, 4), troupe.Layer(Raises, 4, 4)]
def loss(output, target):
    return ((output - target) ** 2).mean()
class Zeros(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, i):
        return torch.full((4,), float(i)), torch.zeros(4)
def dataset():
    return Zeros()
def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1e-6)
"""


def cluster(nodes):
    """Each node is a datacenter, 10 ms from the others."""
    names = [f"n{i}" for i in range(nodes)]
    return {"name": "apart",
            "datacenters": [{"name": f"dc-{n}", "nodes": [{"name": n, "gpu": "T4", "gpus": 1, "intra": "pcie3",
                                                           "inter": "eth10"}]} for n in names],
            "wan": [{"between": [f"dc-{a}", f"dc-{b}"], "rtt_ms": 10, "node_gbps": 5, "connection_gbps": 1, "emulate": True}
                    for i, a in enumerate(names) for b in names[i + 1:]],
            "settings": {"heartbeat_s": 0.2, "lease_s": 5, "restart_s": 1}}


def workers(folder):
    """Processes of stages whose output is in the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read()
            output = os.readlink(f"/proc/{pid}/fd/1")
        except OSError:
            continue
        if b"troupe.worker" in line and folder in output:
            found.append(int(pid))
    return found


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class Pipelines(Scratch):
    def job(self, stages=1, schedule="gpipe", file=gpt, arguments=small, steps=iterations, **train):
        train = {"program": file, "arguments": arguments, "seed": 3, "device": "cpu", "schedule": schedule,
                 "python": sys.executable, **train}
        job = {"name": "job", "global_batch": batch, "iterations": steps, "train": train,
               "pipeline": {"stages": stages, "microbatches": microbatches}}
        self.write("cluster.yaml", json.dumps(cluster(stages)))
        return self.write("job.yaml", json.dumps(job))

    def train(self, **about):
        return subprocess.run([program, "train", self.job(**about), "--world", "local", "--cluster",
                               self.path("cluster.yaml"), "--json"],
                              cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=120)

    def losses(self, **about):
        ended = self.train(**about)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)["losses"]

    def plain(self, steps=iterations):
        ended = subprocess.run([sys.executable, "-m", "troupe.plain", gpt, "--arguments", json.dumps(small), "--seed", "3",
                                "--global-batch", str(batch), "--microbatches", str(microbatches), "--iterations",
                                str(steps)], env=environment(), capture_output=True, text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return [float(line.split()[-1]) for line in ended.stdout.splitlines()]

    def test_one_stage_and_several_under_any_schedule_have_the_losses_of_one_process(self):
        expected = self.plain()
        self.assertEqual(len(set(expected)), iterations)
        for stages, schedule in ((1, "gpipe"), (2, "gpipe"), (2, "varuna"), (2, "atlas"), (3, "megatron")):
            with self.subTest(stages=stages, schedule=schedule):
                self.assertEqual(self.losses(stages=stages, schedule=schedule), expected)

    def test_a_worker_whose_loss_restarts_the_training_costs_the_iterations_since_the_last_checkpoint_alone(self):
        steps, saved = 30, self.path("saved")
        expected = self.plain(steps)
        killed = []

        def kill():
            until(lambda: os.path.exists(os.path.join(saved, "iteration-000005", "model.safetensors.index.json")), 60)
            time.sleep(0.3)
            killed.extend(workers(self.folder)[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        losses = self.losses(stages=2, steps=steps, checkpoint=saved, checkpoint_every=5, on_loss="restart")
        thread.join()
        self.assertEqual(len(killed), 1)
        self.assertEqual(losses[-5:], expected[-5:])
        self.assertEqual(workers(self.folder), [])

    def test_moves_and_a_suspension_lose_no_iteration_and_change_no_loss(self):
        steps, curve = 120, self.path("saved/curve.csv")
        job, state = self.job(stages=2, steps=steps, checkpoint=self.path("saved")), self.path("state")

        def troupe(*words):
            ended = subprocess.run([program, *words, "--state", state, "--json"], cwd=self.folder, env=environment(),
                                   capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            return json.loads(ended.stdout) if ended.stdout else None

        def losses():
            return {int(row.split(",")[0]): float(row.split(",")[3]) for row in lines_of(curve) if row[:1].isdigit()}

        subprocess.run([program, "up", self.path("cluster.yaml"), "--state", state, "--detach"], env=environment(), check=True,
                       capture_output=True, timeout=60)
        try:
            troupe("submit", job)
            until(lambda: len(losses()) > 5, 60)
            self.assertEqual(troupe("move", "1", "--stages", "1")["lost_iterations"], 0)
            until(lambda: len(losses()) > 40, 60)
            troupe("suspend", "1")
            troupe("resume", "1")
            troupe("wait", "1")
        finally:
            subprocess.run([program, "down", "--state", state], env=environment(), capture_output=True, timeout=60)
        self.assertEqual([loss for _, loss in sorted(losses().items())], self.plain(steps))
        self.assertEqual(workers(self.folder), [])

    def test_an_exception_ends_the_job_with_its_layer_file_and_line(self):
        line = raises.splitlines().index('            raise ValueError("seven")') + 1
        ended = self.train(stages=2, file=self.write("raises.py", raises), arguments={})
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr + ended.stdout, rf"layer 1 \(Raises\): ValueError: seven \(raises.py:{line}\)")
        until(lambda: workers(self.folder) == [], 10)

    def test_layers_that_cannot_be_cut_apart_train_in_fewer_stages_and_an_event_says_so(self):
        shared = raises.replace("Raises.calls > 6", "False").replace("[troupe.Layer(torch.nn.Linear, 4, 4), troupe.Layer(Raises, 4, 4)]",
                                                                      "[one := torch.nn.Linear(4, 4), Raises(4, 4), one, one]")
        ended = self.train(stages=2, file=self.write("shared.py", shared), arguments={}, steps=2)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        found = json.loads(ended.stdout)
        self.assertEqual(found["stages_count"], 1)
        self.assertIn("asked for 2 stages in 1 pipeline, and has 1 in 1: ", found["events"][0])

    def test_a_resume_with_another_batch_and_other_arguments_goes_on_and_events_say_so(self):
        saved, read = self.path("saved"), self.path("read")
        text = raises.replace("Raises.calls > 6", "False").replace("def optimizer(parameters):", "def optimizer(parameters, rate):").replace(
            "lr=1e-6", "lr=rate").replace("        return torch.full(", f"        open({read!r}, 'a').write(f'{{i}}\\n')\n        return torch.full(")
        file = self.write("reads.py", text)
        for size, rate, steps in ((16, 1e-6, 3), (32, 2e-6, 4)):
            job = self.job(file=file, arguments={"rate": rate}, steps=steps, checkpoint=saved, checkpoint_every=3)
            with open(job) as old:
                about = dict(json.load(old), global_batch=size)
            self.write("job.yaml", json.dumps(about))
            self.write("read", "")
            ended = subprocess.run([program, "train", job, "--world", "local", "--cluster", self.path("cluster.yaml"), "--json"],
                                   cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=120)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        events = " | ".join(json.loads(ended.stdout)["events"])
        self.assertIn("the checkpoint is of a global batch of 16 samples, the job's is 32: it goes on at sample 48 of their order", events)
        self.assertIn('written with arguments {"rate":1e-06}, the job\'s are {"rate":2e-06}', events)
        expected = set(order.samples(48, 32, 100, 3))
        self.assertLessEqual(expected, {int(x) for x in lines_of(read)})

    def test_what_cannot_be_trained_is_refused_before_anything_runs(self):
        first = raises.replace("torch.nn.Linear, 4, 4), troupe.Layer(Raises", "Raises, 4, 4), troupe.Layer(torch.nn.Linear")
        file = self.write("none.py", first.replace("return super().forward(x)", "return None"))
        for verb in (["describe", file], ["check", self.job(file=file, arguments={})]):
            ended = subprocess.run([program, *verb, "--json"], cwd=self.folder, env=environment(TROUPE_PYTHON=sys.executable),
                                   capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 2, ended.stdout)
            self.assertIn("layer 0 (Raises)", ended.stdout)


if __name__ == "__main__":
    unittest.main()
