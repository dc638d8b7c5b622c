"""Pipelines of a program's layers that the search plans by a profile, and the trainings that are so planned: `troupe plan
--space`, `troupe train`. $TROUPE_PROGRAM is the program; without it or PyTorch nothing is tested. With TROUPE_SLOW, fifty
iterations, beside whose time the plan's is printed."""

import glob
import json
import os
import subprocess
import sys
import unittest

from support import Scratch, environment, has_torch, root, without_torch

program = os.environ.get("TROUPE_PROGRAM")
slow = bool(os.environ.get("TROUPE_SLOW"))
gpt = os.path.join(root, "examples", "pytorch", "gpt.py")
arguments = {"layers": 10, "hidden": 64, "heads": 2, "sequence": 64}  # with embedding and head, 12 layers
iterations = 50 if slow else 6
near, apart = ("west", "west"), ("west", "east")


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class PlannedPipelines(Scratch):
    def troupe(self, *words, status=0):
        done = subprocess.run([program, *map(str, words), "--json"], cwd=self.folder, env=environment(), capture_output=True,
                              text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def setUp(self):
        super().setUp()
        self.profile = self.troupe("profile", "--program", gpt, "--arguments", json.dumps(arguments), "--python",
                                   sys.executable, "--rows", "1,2", "--rounds", "5", "--out", "p.yaml")["models"][0]

    def cluster(self, name, places):
        """Two nodes, of which the first has half of the second one's speed."""
        nodes = {place: [] for place in places}
        for i, place in enumerate(places):
            nodes[place].append({"name": f"n{i}", "gpu": "T4", "gpus": 1, "intra": "pcie3", "inter": "eth10",
                                 "emulate_speed": 0.5 if i == 0 else 1})
        text = {"name": name, "datacenters": [{"name": p, "nodes": n} for p, n in nodes.items()],
                "settings": {"heartbeat_s": 0.2, "lease_s": 10, "restart_s": 1}}
        if len(nodes) > 1:
            text["wan"] = [{"between": ["west", "east"], "rtt_ms": 4, "node_gbps": 1, "connection_gbps": 1, "emulate": True}]
        return self.write(f"{name}.yaml", json.dumps(text))

    def job(self, name, pipeline, gradients="host"):
        return self.write(f"{name}.job.yaml", json.dumps({
            "name": name, "global_batch": 12, "iterations": iterations, "objective": "fastest",
            "train": {"program": gpt, "arguments": arguments, "seed": 3, "device": "cpu", "schedule": "megatron",
                      "python": sys.executable, "gradients": gradients, "checkpoint": self.path(name),
                      "checkpoint_every": iterations},
            "pipeline": pipeline}))

    def planned(self, job, cluster, **more):
        return self.troupe("plan", job, "--cluster", cluster, "--profile", "p.yaml", "--space", "full", **more)

    def trained(self, name, job, cluster):
        ended = self.troupe("train", job, "--world", "local", "--cluster", cluster, "--profile", "p.yaml")
        saved = {}  # file names end with the lease
        for file in glob.glob(self.path(f"{name}/iteration-*/*.safetensors")):
            with open(file, "rb") as f:
                saved[os.path.basename(file).split("-lease-")[0]] = f.read()
        self.assertTrue(saved)
        return ended, saved

    def test_a_pipeline_is_cut_by_the_profile_and_the_speeds_of_its_nodes(self):
        cluster, job = self.cluster("near", near), self.job("cut", {"stages": 2, "data_parallel": 1, "rows": 1,
                                                                 "recompute": False})
        d = self.planned(job, cluster)
        pieces = [s["pieces"] for s in d["plan"]["stages"]]
        point = self.profile["points"][0]
        steps = [x["recompute_s"] + x["backward_s"] for x in point["layers"]]
        steps[-1] += point["loss"]["recompute_s"] + point["loss"]["backward_s"]

        def slowest(cut, speeds):
            return max(sum(steps[:cut]) / speeds[0], sum(steps[cut:]) / speeds[1])
        best = min(slowest(cut, s) for cut in range(1, 12) for s in ((1, 0.5), (0.5, 1)))
        fast_first = d["allocation"][0]["node"] == "n1"
        self.assertLess(slowest(pieces[0], (1, 0.5) if fast_first else (0.5, 1)), 1.15 * best)
        self.assertLess(slowest(pieces[0], (1, 0.5) if fast_first else (0.5, 1)), slowest(6, (1, 0.5)))
        ended, _ = self.trained("cut", job, cluster)
        self.assertEqual(ended["stages_count"], 2)
        print(f"\none pipeline cut at {pieces}: {1e3 * ended['iteration_s']['p50']:.1f} ms, planned "
              f"{1e3 * d['estimate']['iteration_s']:.1f} ms", file=sys.stderr)

    def test_two_pipelines_share_by_speed_and_learn_the_same_in_two_datacenters(self):
        found = {}
        for name, places in (("near", near), ("apart", apart)):
            cluster, job = self.cluster(name, places), self.job(f"two-{name}", {"stages": 1, "data_parallel": 2, "rows": 1})
            d = self.planned(job, cluster)
            self.assertIsNone(d["one_datacenter"])
            self.assertEqual(sorted(g["microbatches"] for g in d["plan"]["groups"]), [4, 8])
            self.assertEqual({s["datacenter"] for g in d["plan"]["groups"] for s in g["stages"]}, set(places))
            # In the same order everywhere, since the order of the pipelines is that of all sums.
            groups = [{"pipelines": 1, "microbatches": m,
                       "stages": [{"gpu": "T4", "pieces": 12, "datacenter": p}]} for m, p in zip((4, 8), places)]
            chosen = self.job(f"chosen-{name}", {"groups": groups})
            ended, saved = self.trained(f"chosen-{name}", chosen, cluster)
            found[name] = ended["losses"], saved
            print(f"\n{name}: {1e3 * ended['iteration_s']['p50']:.1f} ms, planned "
                  f"{1e3 * d['estimate']['iteration_s']:.1f} ms", file=sys.stderr)
        self.assertEqual(len(set(found["near"][0])), iterations)
        self.assertEqual(found["apart"], found["near"])

    def test_torch_is_refused_two_datacenters_with_the_reason(self):
        job = self.job("torch", {"stages": 1, "data_parallel": 2, "rows": 1}, gradients="torch")
        near_both = self.planned(job, self.cluster("near", near))
        self.assertIn("`gradients: torch` cannot sum across datacenters", near_both["one_datacenter"])
        refused = self.planned(job, self.cluster("apart", apart), status=1)
        self.assertIn("`gradients: torch` cannot sum across datacenters", refused["reason"])


if __name__ == "__main__":
    unittest.main()
