"""Python programs on a cluster of `troupe up`: what they print, who is to blame, and whether they can save when they are
stopped. $TROUPE_PROGRAM is the program; without it nothing is tested."""

import json
import os
import subprocess
import tempfile
import unittest

from support import has_torch, here, until, without_torch

program = os.environ.get("TROUPE_PROGRAM")
limit_s = 90

# It finishes its step after SIGTERM, saves and exits, as tutorials do; two workers load its samples.
LOADS = """
import os, signal, sys, time
import torch

stop = False


def on_term(*_):
    global stop
    stop = True


class Slow(torch.utils.data.Dataset):
    def __len__(self): return 100000
    def __getitem__(self, i): time.sleep(0.01); return torch.ones(4) * i


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, on_term)
    loader = torch.utils.data.DataLoader(Slow(), 4, num_workers=2, multiprocessing_context=sys.argv[1])
    for step, x in enumerate(loader):
        if step == 0: print("trains")
        time.sleep(0.3)
        if stop:
            next(iter(loader))  # it needs more samples first
            with open(sys.argv[2], "w") as file: file.write(str(step))
            sys.exit(0)
"""
PRINTS = "import time\nfor i in range(10 ** 6):\n    print('step', i)\n    time.sleep(0.1)\n"
FAILS = """
import os, sys, time
if os.environ["RANK"] == sys.argv[1]:
    time.sleep(0.5)
    sys.exit("ValueError: bad sample in shard 7")
time.sleep(60)
"""
DISOBEYS = """
import signal, sys, time
def stop(*_): sys.exit("RuntimeError: cannot save")
signal.signal(signal.SIGTERM, stop)
print("begins")
while True: time.sleep(0.1)
"""


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
class Stops(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="troupe-stops-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.state = os.path.join(cls.folder, "state")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        subprocess.run([program, "up", os.path.join(here, "cluster.yaml"), "--detach", "--state", cls.state], check=True,
                       stdout=subprocess.DEVNULL, env=environment)
        cls.addClassCleanup(lambda: cls.verb("down", "--now"))

    @classmethod
    def verb(cls, *words):
        return subprocess.run([program, *words, "--state", cls.state], capture_output=True, text=True, cwd=cls.folder)

    def submit(self, name, script, *arguments, **more):
        with open(os.path.join(self.folder, name + ".py"), "w") as file:
            file.write(script)
        job = {"name": name, "gpus": 1, "command": ["/usr/bin/python3", name + ".py", *arguments], **more}
        with open(os.path.join(self.folder, name + ".yaml"), "w") as file:
            json.dump(job, file)
        done = self.verb("submit", name + ".yaml", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return str(json.loads(done.stdout)["jobs"][0]["job"])

    def prints(self, job, text):
        until(lambda: text in self.verb("logs", job).stdout, limit_s)

    def status(self, job):
        return json.loads(self.verb("status", job, "--json").stdout)["jobs"][0]

    def test_what_a_program_prints_is_seen_while_it_runs(self):
        job = self.submit("prints", PRINTS)
        self.prints(job, "step 3")
        self.verb("cancel", job)

    def test_the_rank_that_failed_is_named_as_it_knows_itself(self):
        for failing, gpus in ((3, 4), (1, 2)):  # on two nodes, and on one
            launch = ["python3", "-m", "troupe.run", "fails.py", str(failing)]
            job = self.submit("fails", FAILS, gpus=gpus, command=launch)
            self.assertEqual(self.verb("wait", job).returncode, 1)
            found = self.status(job)
            self.assertEqual(found["failed_rank"], failing)
            self.assertIn(f"rank {failing} on {found['failed_node']}: exit status 1", found["detail"])
            said = self.verb("explain", job).stdout
            self.assertIn("ValueError: bad sample in shard 7", said)
            self.assertIn(f"troupe.run: rank {failing} ended with exit status 1", said)

    def test_explain_says_that_a_stopped_program_has_not_saved(self):
        job = self.submit("disobeys", DISOBEYS)
        self.prints(job, "begins")
        self.verb("suspend", job)
        said = self.verb("explain", job).stdout
        self.assertIn("exit status 1 after it was asked to stop, and no save reported", said)
        self.assertIn("RuntimeError: cannot save", said)
        self.verb("cancel", job)

    @unittest.skipUnless(has_torch, without_torch)
    def test_loader_workers_live_until_the_program_has_saved(self):
        jobs = {how: self.submit("loads-" + how, LOADS, how, how + ".saved", grace_s=40) for how in ("fork", "spawn")}
        for job in jobs.values():
            self.prints(job, "trains")
        for how, job in jobs.items():
            self.verb("suspend", job)
            self.assertTrue(os.path.exists(os.path.join(self.folder, how + ".saved")), self.verb("logs", job).stdout[-2000:])
            self.verb("cancel", job)


if __name__ == "__main__":
    unittest.main()
