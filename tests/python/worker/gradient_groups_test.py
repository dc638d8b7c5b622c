"""Gradients of several pipelines, summed by the workers (`gradients: torch`) and by the nodes. $TROUPE_PROGRAM is the
program; without it or PyTorch nothing is tested."""

import json
import os
import subprocess
import sys
import unittest

from support import Scratch, environment, has_torch, root, without_torch

program = os.environ.get("TROUPE_PROGRAM")
gpt = os.path.join(root, "examples", "pytorch", "gpt.py")
small = {"layers": 2, "hidden": 32, "heads": 2, "sequence": 32}

# The model of gpt.py, in which a node's PyTorch lacks something.
lacking = """
import os, sys
sys.path.insert(0, {folder!r})
import datetime, torch
import troupe.worker.groups as groups
from gpt import *
if os.environ.get("TROUPE_NODE") == "n1":
    {patch}
groups._limit = datetime.timedelta(seconds=3)
"""


def cluster(nodes):
    names = [f"n{i}" for i in range(nodes)]
    made = [{"name": n, "gpu": "T4", "gpus": 1, "intra": "pcie3", "inter": "eth10"} for n in names]
    return {"name": "groups", "datacenters": [{"name": "dc", "nodes": made}],
            "settings": {"heartbeat_s": 0.2, "lease_s": 5, "restart_s": 1}}


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class Groups(Scratch):
    def train(self, gradients, stages=1, file=gpt):
        job = {"name": "job", "global_batch": 16, "iterations": 4,
               "train": {"program": file, "arguments": small, "seed": 3, "device": "cpu", "schedule": "gpipe",
                         "python": sys.executable, "gradients": gradients},
               "pipeline": {"stages": stages, "data_parallel": 2, "microbatches": 2}}
        ended = subprocess.run([program, "train", self.write("job.yaml", json.dumps(job)), "--world", "local", "--cluster",
                                self.write("cluster.yaml", json.dumps(cluster(2 * stages))), "--json"],
                               cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stderr + ended.stdout)
        result = json.loads(ended.stdout)
        self.assertEqual(result["data_parallel"], 2)
        return result["losses"], " ".join(map(str, result["events"]))

    def lacking(self, patch):
        return self.write("lacking.py", lacking.format(folder=os.path.dirname(gpt), patch=patch))

    def test_workers_sum_gradients_as_the_nodes_do(self):
        for stages in (1, 2):
            with self.subTest(stages=stages):
                by_nodes, _ = self.train("host", stages)
                by_workers, events = self.train("torch", stages)
                self.assertNotIn("falling back", events)
                self.assertEqual(by_workers[0], by_nodes[0])
                for a, b in zip(by_workers, by_nodes):
                    self.assertLess(abs(a - b) / b, 1e-5)

    def test_the_nodes_sum_if_a_worker_cannot(self):
        expected, _ = self.train("host")
        for patch, why in (("torch.distributed.is_available = lambda: False", "no torch.distributed"),
                           ("groups.Group.join = lambda *_: 1 / 0", "ZeroDivisionError")):
            with self.subTest(why=why):
                losses, events = self.train("torch", file=self.lacking(patch))
                self.assertRegex(events, f"stage 0: falling back to host all-reduce: .*{why}")
                self.assertEqual(losses, expected)


if __name__ == "__main__":
    unittest.main()
