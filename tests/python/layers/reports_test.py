"""What `troupe train` reports of a program: values of its loss, memory, its engine; and recomputing layer by layer."""

import csv
import json
import os
import subprocess
import sys
import unittest

from support import Scratch, environment, has_torch, here, without_torch

program = os.environ.get("TROUPE_PROGRAM")
file = os.path.join(here, "worker_program.py")  # its loss gives {"right": (right ones, all)}
iterations, batch, microbatches = 5, 12, 3
node = {"gpu": "T4", "gpus": 1, "intra": "pcie3", "inter": "eth10"}
cluster = {"name": "two", "datacenters": [{"name": "dc", "nodes": [dict(node, name=name) for name in ("a", "b")]}],
           "settings": {"heartbeat_s": 0.2, "lease_s": 5, "restart_s": 1}}


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class Reports(Scratch):
    def run_of(self, *command):
        ended = subprocess.run(command, cwd=self.folder, env=environment(TROUPE_PYTHON=sys.executable), capture_output=True,
                               text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def train(self, recompute, **train):
        job = {"name": "job", "global_batch": batch, "iterations": iterations,
               "train": {"program": file, "seed": 3, "device": "cpu", **train},
               "pipeline": {"stages": 2, "cut": [2, 2], "microbatches": microbatches, "recompute": recompute}}
        self.write("job.yaml", json.dumps(job))
        self.write("cluster.yaml", json.dumps(cluster))
        return json.loads(self.run_of(program, "train", "job.yaml", "--world", "local", "--cluster", "cluster.yaml", "--json"))

    def test_a_training_that_recomputes_layer_by_layer_has_equal_losses_and_reports_its_values_and_memory(self):
        plain = self.run_of(sys.executable, "-m", "troupe.plain", file, "--seed", "3", "--global-batch", str(batch),
                            "--microbatches", str(microbatches), "--iterations", str(iterations))
        found = self.train("layers", checkpoint=self.path("saved"))
        self.assertEqual(found["losses"], [float(line.split()[-1]) for line in plain.splitlines()])
        self.assertEqual(found["stages"][0]["recompute_s"], 0)
        self.assertRegex(found["engine"], r"^torch \d+\.\d+")
        self.assertGreater(found["worker_ready_s"], 0.1)
        self.assertEqual(found["skipped_updates"], 0)
        self.assertEqual(len(found["peak_bytes"]), 2)
        for peak in found["peak_bytes"]:
            self.assertTrue(5e7 < peak < 5e9, peak)
        self.assertGreater(found["predicted_bytes"], 0)
        self.assertEqual(list(found["values"]), ["right"])
        right = found["values"]["right"]
        self.assertEqual(len(right), iterations)
        self.assertTrue(all(0 <= mean <= 1 and abs(mean * batch * 5 % 1 - 0.5) > 0.499 for mean in right), right)
        with open(self.path("saved/curve.csv"), newline="") as curve:
            self.assertEqual([float(row["right"]) for row in csv.DictReader(curve)], right)


if __name__ == "__main__":
    unittest.main()
