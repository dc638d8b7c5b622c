import json
import os
import subprocess
import sys
import unittest

from support import environment, has_torch, root, without_torch


@unittest.skipUnless(has_torch, without_torch)
class Kept(unittest.TestCase):
    def test_a_forward_allocates_within_a_tenth_of_what_was_described(self):
        done = subprocess.run([sys.executable, "-B", os.path.join(root, "bench/pytorch/kept_memory.py")], env=environment(),
                              capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len({x["kind"] for x in found["kinds"]}), 5)
        kept = {(x["kind"], x["recompute"]): x["measured_bytes"] for x in found["kinds"]}
        for kind in {x["kind"] for x in found["kinds"]}:
            self.assertLess(kept[kind, "stage"], kept[kind, "layers"])
            self.assertLess(kept[kind, "layers"], kept[kind, "none"])
