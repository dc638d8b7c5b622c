"""bench/pytorch/bench_pipelines.py in its short forms: results of stages against one stage and plain PyTorch, to the bit.
$TROUPE_PROGRAM is the program; without it or PyTorch nothing is tested."""

import json
import os
import subprocess
import sys
import unittest

from support import environment, has_torch, root, without_torch

program = os.environ.get("TROUPE_PROGRAM")


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class Results(unittest.TestCase):
    def measured(self, *words):
        ended = subprocess.run([sys.executable, os.path.join(root, "bench", "pytorch", "bench_pipelines.py"), *words, "--json"],
                               env=environment(TROUPE_PROGRAM=program), capture_output=True, text=True, timeout=300)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def test_stages_recomputation_and_schedules_change_no_bit_and_a_plain_loop_has_the_same(self):
        found = self.measured("equal", "--short")
        self.assertEqual((found["cases"], found["unequal"], found["plain_unequal"]), (4, 0, 0), found)
        self.assertLessEqual(found["relative"], 1e-6)

    def test_gradients_are_clipped_as_by_pytorch_in_any_number_of_stages(self):
        found = self.measured("clip", "--short")
        self.assertEqual((found["cases"], found["unequal"]), (2, 0), found)
        self.assertEqual(found["clipped"], found["iterations"])
        self.assertLessEqual(max(found["relative"], found["norms"]), 1e-6)


if __name__ == "__main__":
    unittest.main()
