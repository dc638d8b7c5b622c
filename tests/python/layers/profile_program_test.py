"""`troupe profile --program`, and what reads its file. $TROUPE_PROGRAM is the program; without it or PyTorch nothing is
tested."""

import json
import os
import subprocess
import sys
import unittest

from support import Scratch, environment, has_torch, root, without_torch

program = os.environ.get("TROUPE_PROGRAM")
gpt = os.path.join(root, "examples/pytorch/gpt.py")
arguments = {"layers": 4, "hidden": 32, "heads": 2, "sequence": 32}
steps = ("forward_s", "recompute_s", "backward_s", "update_s", "gradients_s")


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class ProfiledPrograms(Scratch):
    def troupe(self, *words, status=0):
        done = subprocess.run([program, *map(str, words), "--json"], cwd=self.folder, env=environment(), capture_output=True,
                              text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def profile(self, *more, status=0):
        return self.troupe("profile", "--program", gpt, "--arguments", json.dumps(arguments), "--python", sys.executable,
                           "--rows", "1,4", "--rounds", "3", "--out", "p.yaml", *more, status=status)

    def job(self, **train):
        nodes = [{"name": n, "gpu": "T4", "gpus": 1, "intra": "pcie3", "inter": "eth10"} for n in "ab"]
        self.write("cluster.yaml", json.dumps({"name": "near", "datacenters": [{"name": "here", "nodes": nodes}]}))
        train = {"program": gpt, "arguments": arguments, "device": "cpu", "python": sys.executable, **train}
        return self.write("job.yaml", json.dumps({
            "name": "job", "global_batch": 8, "iterations": 3, "train": train,
            "pipeline": {"stages": 2, "data_parallel": 1, "microbatches": 4, "recompute": False}}))

    def test_estimates_plans_and_virtual_trainings_are_sums_of_its_layers(self):
        found = self.profile()["models"][0]
        self.assertEqual([p["rows"] for p in found["points"]], [1, 4])
        names = [x["name"] for x in found["points"][0]["layers"]]
        self.assertEqual(names, ["0_Embedding", *(f"{i}_Block" for i in range(1, 5)), "5_Head"])
        for point in found["points"]:
            self.assertEqual(point["layers"][1], {**point["layers"][3], "name": "1_Block"})
            for x in (*point["layers"], point["plain"]):
                self.assertTrue(all(0 <= x[s] < 10 for s in steps) and x["backward_s"] > 0, x)
            self.assertGreater(point["tied"]["update_s"], 0)
        self.assertEqual(self.troupe("check", "p.yaml")["files"][0]["kind"], "profile")

        with_profile = (self.job(), "--cluster", "cluster.yaml", "--profile", "p.yaml")
        plan = self.troupe("plan", *with_profile)
        self.assertIn("the profile of", plan["estimate"]["from"])
        virtual = self.troupe("train", "--world", "virtual", *with_profile)
        one, four = found["points"]
        # Micro-batches of two rows: a third of the way from one to four.
        parts = [*zip(one["layers"], four["layers"]), (one["loss"], four["loss"])]
        backward = sum(a["backward_s"] + (b["backward_s"] - a["backward_s"]) / 3 for a, b in parts)
        backward += 2 * one["plain"]["backward_s"]
        if found["tensors_gbytes_s"]:
            backward += 2 * 2 * 4 * 32 * 32 / (found["tensors_gbytes_s"] * 1e9)  # out of one stage, into the other
        self.assertAlmostEqual(sum(s["backward_s"] for s in virtual["stages"]) / backward, 1, 3)
        slowest = max(s["forward_s"] + s["backward_s"] for s in virtual["stages"])
        self.assertGreater(virtual["iteration_s"]["p50"], 4 * slowest)
        self.assertAlmostEqual(virtual["iteration_s"]["p50"] / plan["estimate"]["iteration_s"], 1, 1)
        for words in (("estimate", *with_profile, "--stages", "T4:2,T4:4"), ("whatif", *with_profile)):
            self.troupe(*words)

    def test_other_layers_and_wrong_options_are_refused(self):
        self.profile()
        refusal = self.troupe("plan", self.job(arguments={**arguments, "layers": 5}), "--cluster", "cluster.yaml", "--profile",
                              "p.yaml", status=2)
        self.assertIn("none with the layers of 'gpt'", refusal["error"])
        self.assertIn("models only", self.profile("--sequence", "8", status=2)["error"])
        refusal = self.troupe("profile", "--program", "none.py", "--out", "p.yaml", status=2)
        self.assertIn("none.py: no such file", refusal["error"])
        bad = self.write("bad.py", "x = 1")
        refusal = self.troupe("profile", "--program", bad, "--python", sys.executable, "--out", "p.yaml", status=2)
        self.assertIn("found no function 'model'", refusal["error"])
