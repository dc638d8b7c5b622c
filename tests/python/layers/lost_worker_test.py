"""Workers of programs that end while a stage has peers: they go on for it, and nothing changes."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from support import Scratch, environment, has_torch, lines_of, until, without_torch
from layers.pipeline_test import workers

program = os.environ.get("TROUPE_PROGRAM")
steps = 24

# Clips, draws masks, has a momentum, reports a value. A forward takes 20 ms, and adds a byte to the file MARKS.
drawing = """
import os, time, torch, troupe

class Slow(torch.nn.Module):
    def forward(self, x):
        with open("MARKS", "a") as marks:
            marks.write(".")
        time.sleep(0.02)
        return x
def model():
    return [troupe.Layer(torch.nn.Linear, 6, 16), troupe.Layer(torch.nn.Dropout, 0.3), troupe.Layer(Slow),
            troupe.Layer(torch.nn.Linear, 16, 16), troupe.Layer(torch.nn.Dropout, 0.3), troupe.Layer(torch.nn.Linear, 16, 3)]
def loss(output, target):
    return torch.nn.functional.cross_entropy(output, target), {"right": (float((output.argmax(1) == target).sum()), len(target))}
class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 500
    def __getitem__(self, i):
        draws = torch.Generator().manual_seed(i)
        return torch.randn(6, generator=draws), i % 3
def dataset():
    return Points()
def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)
clip_norm = 0.5
"""

# Passes change the buffers of both stages, which are others in each pipeline.
counting = drawing.replace("troupe.Layer(torch.nn.Linear,", "troupe.Layer(Counted,") + """
class Counted(torch.nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(torch.nn.Linear(inputs, outputs), torch.nn.BatchNorm1d(outputs))
"""

# The first layer's parameter is the last one's, too.
tied = drawing.replace("def model():\n    return [troupe.Layer(torch.nn.Linear, 6, 16),", """
class Ends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6, 6))
    def forward(self, x):
        return x @ self.weight
def model():
    return [troupe.Layer(Ends, tied="weight"), troupe.Layer(torch.nn.Linear, 6, 16),""").replace(
    "troupe.Layer(torch.nn.Linear, 16, 3)]", "troupe.Layer(torch.nn.Linear, 16, 6), troupe.Layer(Ends, tied=\"weight\")]")

# A sample that ends the process that reads it.
poisonous = drawing.replace("        draws =", "        if i == 77:\n            os.kill(os.getpid(), 9)\n        draws =")


def cluster(nodes):
    return {"name": "one-place", "datacenters": [{"name": "dc", "nodes": [
        {"name": f"n{i}", "gpu": "T4", "gpus": 2, "intra": "pcie3", "inter": "eth10"} for i in range(nodes)]}],
            "settings": {"heartbeat_s": 0.2, "lease_s": 5, "restart_s": 1}}


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class LostWorkers(Scratch):
    def job(self, name, text, pipelines, **train):
        # Checkpoints have the hash of the file, which is the same for all trainings of a program.
        file = self.write("program.py", text.replace("MARKS", self.path("marks")))
        self.write("marks", "")
        train = {"program": file, "seed": 3, "device": "cpu", "python": sys.executable, "checkpoint": self.path(name),
                 "checkpoint_every": 1000, **train}
        return self.write(f"{name}.yaml", json.dumps({
            "name": name, "global_batch": 8 * pipelines, "iterations": steps, "train": train,
            "pipeline": {"stages": 2, "microbatches": 2, "data_parallel": pipelines}}))

    def train(self, name, text, kill=None, pipelines=2, **train):
        """(exit status, its JSON, rows of its curve, what it said). kill(): called when a third of its iterations are done."""
        self.write("cluster.yaml", json.dumps(cluster(pipelines)))
        running = subprocess.Popen([program, "train", self.job(name, text, pipelines, **train), "--world", "local", "--cluster",
                                    self.path("cluster.yaml"), "--json"], cwd=self.folder, env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._end, running)
        if kill is not None:
            until(lambda: running.poll() is not None or os.path.getsize(self.path("marks")) > steps // 3 * 2 * pipelines, 90)
            kill()
        out, error = running.communicate(timeout=180)
        rows = list(csv.DictReader(lines_of(os.path.join(self.path(name), "curve.csv"))))
        return running.returncode, json.loads(out) if out.strip() else {}, rows, error

    def kill_worker(self, which, after_s=0.0):
        time.sleep(after_s)
        found = sorted(workers(self.folder))
        self.assertGreater(len(found), which)
        os.kill(found[which], signal.SIGKILL)

    def check_as_undisturbed(self, found, expected):
        (status, ended, rows, error), (_, _, undisturbed, _) = found, expected
        self.assertEqual(status, 0, error)
        self.assertEqual(ended["heals"]["count"], 1)
        columns = "iteration", "loss", "gradient_norm", "right"
        self.assertEqual([[row[c] for c in columns] for row in rows], [[row[c] for c in columns] for row in undisturbed])
        self.assertEqual(len(rows), steps)

    def test_peers_go_on_for_a_worker_that_is_killed_with_the_same_losses_norms_values_and_weights(self):
        expected = self.train("undisturbed", drawing)
        self.assertEqual(expected[0], 0, expected[3])
        for which in range(4) if os.environ.get("TROUPE_SLOW") else (0, 3):
            with self.subTest(worker=which):
                name = f"lost-{which}"
                found = self.train(name, drawing, lambda: self.kill_worker(which, 0.03 * which))
                self.check_as_undisturbed(found, expected)
                self.assertEqual(self.weights(name), self.weights("undisturbed"))
                self.assertEqual(workers(self.folder), [])

    def test_checkpoints_that_a_killed_worker_leaves_are_those_of_an_undisturbed_training(self):
        expected = self.train("undisturbed", drawing, checkpoint_every=1)
        found = self.train("killed", drawing, lambda: self.kill_worker(0), checkpoint_every=1)
        self.check_as_undisturbed(found, expected)
        both = self.complete("undisturbed") & self.complete("killed")
        self.assertGreater(len(both), 2)
        for iteration in both:
            with self.subTest(iteration=iteration):
                self.assertEqual(self.weights("killed", iteration), self.weights("undisturbed", iteration))

    def complete(self, name):
        return {int(x[len("iteration-"):]) for x in os.listdir(self.path(name)) if x.startswith("iteration-")
                and os.path.exists(os.path.join(self.path(name), x, "model.safetensors.index.json"))}

    def weights(self, name, iteration=steps):
        folder = os.path.join(self.path(name), f"iteration-{iteration:06}")
        with open(os.path.join(folder, "model.safetensors.index.json")) as file:
            files = sorted(set(json.load(file)["weight_map"].values()))
        return [open_bytes(os.path.join(folder, f)) for f in files]

    def test_a_program_whose_passes_change_buffers_starts_again_from_its_checkpoint(self):
        expected = self.train("undisturbed", counting)
        self.assertEqual(expected[0], 0, expected[3])
        status, ended, rows, error = self.train("counts", counting, lambda: self.kill_worker(1))
        self.assertEqual(status, 0, error)
        self.assertNotIn("heals", ended)  # of the last attempt
        self.assertEqual([r["loss"] for r in rows], [r["loss"] for r in expected[2]])

    def test_the_only_worker_of_a_stage_begins_again_from_its_nodes_copy_and_no_iteration_is_lost(self):
        for name, text in (("draws", drawing), ("tied", tied), ("counts", counting)):
            expected = self.train(f"{name}-undisturbed", text, pipelines=1)
            self.assertEqual(expected[0], 0, expected[3])
            for which in range(2):
                with self.subTest(program=name, worker=which):
                    found = self.train(f"{name}-{which}", text, lambda: self.kill_worker(which, 0.02 * which), pipelines=1)
                    self.check_as_undisturbed(found, expected)
                    self.assertEqual(found[1]["heals"]["joined"], 1)
                    self.assertEqual(self.weights(f"{name}-{which}"), self.weights(f"{name}-undisturbed"))
                    self.assertEqual(workers(self.folder), [])

    def test_a_sample_that_ends_each_worker_fails_the_job_with_its_micro_batch_after_three(self):
        status, ended, rows, error = self.train("poisonous", poisonous, pipelines=4)
        self.assertEqual(status, 1, error)
        self.assertRegex(error + json.dumps(ended), "of micro-batch [0-9]+ of iteration [0-9]+, as those of two other replicas")
        self.assertEqual(workers(self.folder), [])


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    unittest.main()
