"""Programs that fail on real nodes, as their users see it: examples/pytorch/raises.yaml and out_of_memory.yaml."""

import json
import os
import subprocess
import sys
import time
import unittest

from layers.pipeline_test import workers
from support import Scratch, environment, has_torch, root, until, without_torch

program = os.environ.get("TROUPE_PROGRAM")
examples = os.path.join(root, "examples", "pytorch")


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class Failures(Scratch):
    def troupe(self, *words, status=0):
        ended = subprocess.run([program, *words, "--state", self.path("state")], cwd=self.folder,
                               env=environment(TROUPE_PYTHON=sys.executable), capture_output=True, text=True, timeout=90)
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        return ended.stdout

    def asked(self, *words, status=0):
        return json.loads(self.troupe(*words, "--json", status=status))

    def up(self, gpus):
        """A node for each type, each faster than the one before: GPUs of equal speed count as equal, whatever their memory."""
        nodes = [{"name": f"n{i}", "gpu": gpu, "gpus": 1, "intra": "pcie3", "inter": "eth10",
                  "emulate_speed": 1 - 0.1 * (len(gpus) - 1 - i)} for i, gpu in enumerate(gpus)]
        self.write("cluster.yaml", json.dumps({"name": "mixed", "datacenters": [{"name": "dc", "nodes": nodes}],
                                               "settings": {"heartbeat_s": 0.2, "lease_s": 5, "restart_s": 1}}))
        self.addCleanup(subprocess.run, [program, "down", "--state", self.path("state")], env=environment(),
                        capture_output=True, timeout=60)
        self.troupe("up", self.path("cluster.yaml"), "--detach")

    def test_an_exception_is_the_jobs_detail_and_its_traceback_is_in_the_log(self):
        self.up(["T4"])
        file = os.path.join(examples, "raises.py")
        with open(file) as lines:
            line = next(n for n, text in enumerate(lines, 1) if "self.linear(x)" in text)
        began = time.monotonic()
        found = self.asked("submit", os.path.join(examples, "raises.yaml"), "--wait", status=1)
        self.assertLess(time.monotonic() - began, 30)
        detail = json.dumps(found)
        self.assertRegex(detail, rf"layer 1 \(Block\): RuntimeError: .*\(raises\.py:{line}\)")
        log = self.troupe("logs", "1")
        self.assertIn("Traceback", log)
        self.assertIn(f'raises.py", line {line}, in forward', log)
        until(lambda: workers(self.folder) == [], 10)

    def test_an_interpreter_without_pytorch_ends_the_job_at_once_with_a_sentence(self):
        self.up(["T4"])
        model, bare = self.path("model.yaml"), self.write("bare", f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
        os.chmod(bare, 0o755)
        subprocess.run([program, "describe", os.path.join(examples, "raises.py"), "--python", sys.executable, "--out", model],
                       env=environment(), check=True, capture_output=True, timeout=90)
        self.write("job.yaml", json.dumps({"name": "bare", "model": model, "global_batch": 16, "iterations": 20, "train": {
            "program": os.path.join(examples, "raises.py"), "device": "cpu", "python": bare}, "pipeline": {"stages": 1, "microbatches": 4}}))
        found = json.dumps(self.asked("submit", self.path("job.yaml"), "--wait", status=1))
        self.assertRegex(found, "stage 0 of pipeline 0 on node n0: found no PyTorch for .*No module named 'torch'.*, expected .*python3-torch")
        self.assertEqual(self.asked("status", "1")["jobs"][0]["attempts"], 1)

    def test_a_lack_of_memory_is_planned_higher_and_the_job_finishes_on_a_larger_gpu(self):
        self.up(["T4", "A100-40GB"])
        ended, = self.asked("submit", os.path.join(examples, "out_of_memory.yaml"), "--wait")["jobs"]
        self.assertEqual((ended["state"], ended["out_of_memory"], ended["attempts"]), ("finished", 1, 2))
        job, = self.asked("status", "1")["jobs"]
        self.assertEqual([share["gpu"] for share in job["allocation"]], ["A100-40GB"])
        first, second = self.asked("explain", "1")["memory"]
        self.assertTrue(first["out_of_memory"])
        self.assertFalse(second["out_of_memory"])
        self.assertGreater(second["peak_bytes"], 1e7)
        self.assertGreater(second["predicted_bytes"], first["predicted_bytes"])
        self.assertRegex(self.troupe("logs", "1", "--attempt", "1"), "layer 1 .Large.: (OutOfMemoryError|MemoryError)")


if __name__ == "__main__":
    unittest.main()
