import json
import os
import unittest

from support import Scratch, has_torch, here, lines_of, root, until, without_torch
from troupe import order

ROUNDS = 20


@unittest.skipUnless(has_torch, without_torch)
class WithTorch(Scratch):
    def stops(self, world_size):
        process = self.launch("--nproc", world_size, os.path.join(here, "same_step.py"), self.folder, ROUNDS)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        found = []
        for rank in range(world_size):
            with open(self.path(f"stops{rank}")) as file:
                found.append(json.load(file))
        return found

    def test_every_rank_stops_at_the_same_step(self):
        for world_size in (2, 3):
            first, *others = self.stops(world_size)
            for other in others:
                self.assertEqual(other, first)
            self.assertEqual(len(first), ROUNDS + 1)
            self.assertEqual(first[-1], 3)
            self.assertEqual(set(first[0:ROUNDS:5]), {1})  # the answer of a call is that of the one before
            self.assertGreater(max(first), 1)

    def test_a_resized_training_reads_no_sample_twice_and_loses_none(self):
        total, batch = 300, 64
        report, control, samples = self.path("report"), self.path("control"), self.path("samples")

        def reported():
            return dict(line.split(": ") for line in lines_of(report))

        saved = 0
        for attempt, (world_size, stop_after) in enumerate([(2, 20), (1, 40), (3, None)], 1):
            process = self.launch(os.path.join(root, "examples/pytorch/train.py"), "--checkpoint", self.path("saved"),
                                  "--every", 25, "--samples", samples, RANK=0, WORLD_SIZE=world_size,
                                  LOCAL_WORLD_SIZE=world_size, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(),
                                  TROUPE_LEASE=attempt, TROUPE_ATTEMPT=attempt, TROUPE_ITERATION=saved,
                                  TROUPE_ITERATIONS=total, TROUPE_GLOBAL_BATCH=batch, TROUPE_REPORT=report,
                                  TROUPE_CONTROL=control)
            if stop_after:
                until(lambda: len(lines_of(samples + ".0")) >= stop_after)
                self.write("new", "stop: 1\nwithin_s: 60\n")
                os.replace(self.path("new"), control)
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
            found = reported()
            self.assertEqual(int(found["resumed"]), saved)
            saved = int(found["saved"])
            self.assertEqual(found["iteration"], found["saved"])
            self.assertEqual("finished" in found, saved == total)
            if stop_after:
                self.assertLess(saved, total)
                os.remove(control)
        self.assertEqual(saved, total)

        by_iteration = {}
        for rank in range(3):
            for line in lines_of(f"{samples}.{rank}"):
                iteration, *indices = map(int, line.split())
                by_iteration.setdefault(iteration, []).extend(indices)
        for iteration in range(total):
            self.assertEqual(by_iteration[iteration], order.samples(iteration * batch, batch, 1000, seed=1))


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
