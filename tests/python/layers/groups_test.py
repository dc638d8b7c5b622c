"""Programs whose pipelines are groups, in one datacenter or in two over an emulated WAN, as real nodes: `troupe train`.
$TROUPE_PROGRAM is the program; without it or PyTorch nothing is tested."""

import glob
import json
import os
import subprocess
import sys
import unittest

from support import Scratch, environment, has_torch, root, without_torch

program = os.environ.get("TROUPE_PROGRAM")
gpt = os.path.join(root, "examples", "pytorch", "gpt.py")
layers = {"layers": 3, "hidden": 32, "heads": 2, "sequence": 32}
iterations, rows = 6, 2

cluster = {
    "name": "two-sites",
    "datacenters": [{"name": name, "nodes": [{"name": name, "gpu": "T4", "gpus": 2, "count": count, "intra": "pcie3",
                                              "inter": "eth10"}]} for name, count in (("west", 3), ("east", 2))],
    "wan": [{"between": ["west", "east"], "rtt_ms": 40, "node_gbps": 0.2, "connection_gbps": 0.2, "emulate": True}],
    "settings": {"heartbeat_s": 0.2, "lease_s": 10, "restart_s": 1}}


def group(datacenter, pipelines, microbatches, pieces):
    """Pipelines of two stages."""
    return {"pipelines": pipelines, "microbatches": microbatches,
            "stages": [{"gpu": "T4", "pieces": n, "datacenter": datacenter} for n in pieces]}


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class Groups(Scratch):
    def train(self, name, groups, gradients="host"):
        batch = rows * sum(g["pipelines"] * g["microbatches"] for g in groups)
        job = {"name": name, "global_batch": batch, "iterations": iterations,
               "train": {"program": gpt, "arguments": layers, "seed": 3, "device": "cpu", "schedule": "megatron",
                         "python": sys.executable, "checkpoint": self.path(name), "checkpoint_every": iterations,
                         "gradients": gradients},
               "pipeline": {"groups": groups}}
        self.write("cluster.yaml", json.dumps(cluster))
        return subprocess.run([program, "train", self.write(f"{name}.yaml", json.dumps(job)), "--world", "local",
                               "--cluster", self.path("cluster.yaml"), "--json"],
                              cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=120)

    def trained(self, name, groups):
        ended = self.train(name, groups)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        saved = {}  # file names end with the lease
        for file in glob.glob(self.path(f"{name}/iteration-*/*.safetensors")):
            with open(file, "rb") as f:
                saved[os.path.basename(file).split("-lease-")[0]] = f.read()
        self.assertTrue(saved)
        return json.loads(ended.stdout)["losses"], saved

    def pieces(self):
        """How many of the program's layers each of the two stages has."""
        ended = subprocess.run([program, "describe", gpt, "--arguments", json.dumps(layers), "--python", sys.executable,
                                "--json"], cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        number = len(json.loads(ended.stdout)["layers"])
        return number - number // 2, number // 2

    def test_pipelines_in_two_datacenters_have_the_losses_and_weights_of_one(self):
        pieces = self.pieces()
        for name, shares in (("one-and-two", ((1, 2), (2, 2))), ("three-to-one", ((1, 3), (1, 1)))):
            with self.subTest(shares=name):
                near, near_saved = self.trained(f"{name}-near", [group("west", *s, pieces) for s in shares])
                places = zip(("west", "east"), shares)
                apart, apart_saved = self.trained(f"{name}-apart", [group(d, *s, pieces) for d, s in places])
                self.assertEqual(len(set(near)), iterations)
                self.assertEqual(apart, near)
                self.assertEqual(apart_saved, near_saved)

    def test_torch_sums_over_one_datacenter_alone(self):
        pieces = self.pieces()
        ended = self.train("torch", [group("west", 1, 2, pieces), group("east", 1, 2, pieces)], "torch")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("give the program `gradients: host`", ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main()
