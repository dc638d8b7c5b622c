"""The blocks of docs/python.md, as pasted in a checkout. $TROUPE_PROGRAM is the program; without it nothing is tested."""

import os
import re
import subprocess
import sys
import unittest

from support import Scratch, environment, root

program = os.environ.get("TROUPE_PROGRAM")


def blocks():
    with open(os.path.join(root, "docs", "python.md")) as file:
        return re.findall(r"^```python\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
class Page(Scratch):
    def run_here(self, *words):
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env=environment(TROUPE_PROGRAM=program))

    def test_every_block_works_as_pasted(self):
        os.symlink(os.path.join(root, "configs"), self.path("configs"))
        up = self.run_here(program, "up", "configs/clusters/demo.yaml", "--detach")
        self.addCleanup(self.run_here, program, "down")
        self.assertEqual(up.returncode, 0, up.stderr)
        found = blocks()
        self.assertEqual(len(found), 4)
        for block in found:
            ended = self.run_here(sys.executable, "-c", block)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), block)


if __name__ == "__main__":
    unittest.main()
