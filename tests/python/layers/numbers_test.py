"""Numbers that nothing else would show to be wrong: they are believed by the node, or they are a training's own."""

import ctypes
import os
import types
import unittest
from unittest import mock

from support import Scratch, has_torch, without_torch
from troupe.program import Run

if has_torch:
    import torch

    from troupe.layers.precision import LossScale
    from troupe.layers.segment import Segment
    from troupe.layers.store import hash_of
    from troupe.worker.tensors import Outgoing, read
    from troupe import errors


class StepTime(Scratch):
    def step_s(self, *reports):
        """After reports of (iteration, time)."""
        run = Run({"TROUPE_REPORT": self.path("report"), "TROUPE_GLOBAL_BATCH": "8", "TROUPE_ITERATIONS": "100"})
        for iteration, at_s in reports:
            with mock.patch("time.monotonic", return_value=at_s):
                run.report(iteration)
        return run._step_s()

    def test_a_report_of_several_iterations_has_the_time_of_one(self):
        self.assertEqual(self.step_s((1, 100.0), (5, 108.0)), "2")
        self.assertEqual(self.step_s((10, 100.0), (20, 105.0), (30, 110.0), (31, 119.0)), "0.5")

    def test_one_report_has_no_time(self):
        self.assertIsNone(self.step_s((4, 100.0)))


@unittest.skipUnless(has_torch, without_torch)
class Scale(unittest.TestCase):
    def good(self, scale, times, first=1):
        for n in range(times):
            scale.updated(1.0, first + n)
        return scale.value

    def test_it_doubles_after_exactly_2000_good_updates(self):
        scale = LossScale("fp16")
        self.assertEqual(self.good(scale, 1999), 65536.0)
        self.assertEqual(self.good(scale, 1), 131072.0)
        self.assertEqual(self.good(scale, 1999), 131072.0)
        self.assertEqual(self.good(scale, 1), 262144.0)

    def test_one_that_is_skipped_halves_it_and_begins_the_count_anew(self):
        scale = LossScale("fp16")
        self.good(scale, 1999)
        scale.updated(float("inf"), 2000)
        self.assertEqual(scale.value, 32768.0)
        self.assertEqual(self.good(scale, 1999), 32768.0)
        self.assertEqual(self.good(scale, 1), 65536.0)

    def test_a_resumed_one_goes_on_where_it_was(self):
        scale = LossScale("fp16")
        scale.updated(float("inf"), 1)
        self.good(scale, 1999)
        later = LossScale("fp16")
        later.restore(scale.state())
        self.assertEqual((later.value, later.good), (32768.0, 1999))
        self.assertEqual(self.good(later, 1), 65536.0)


@unittest.skipUnless(has_torch, without_torch)
class Slots(unittest.TestCase):
    def read_and_overwritten(self, copy):
        """What a stage has of a buffer that then is another's."""
        sent = torch.arange(6, dtype=torch.float32).reshape(2, 3).requires_grad_()
        out = Outgoing([sent])
        memory = bytearray(out.bytes)
        out.write(memory, 0)
        place = types.SimpleNamespace(region=0, offset=0, bytes=out.bytes)
        (got,) = read(memory, place, copy)
        self.assertTrue(torch.equal(got.detach(), sent.detach()))
        self.assertTrue(got.requires_grad)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + out._offsets[0], 0, 24)
        return got.detach()

    def test_a_copied_input_stays_when_its_buffer_is_given_to_others(self):
        self.assertTrue(torch.equal(self.read_and_overwritten(True), torch.arange(6.0).reshape(2, 3)))

    def test_one_that_is_not_copied_is_the_buffer_itself(self):
        self.assertTrue(torch.equal(self.read_and_overwritten(False), torch.zeros(2, 3)))


@unittest.skipUnless(has_torch, without_torch)
class Buffers(unittest.TestCase):
    def test_a_recomputation_that_fails_leaves_the_buffers_as_they_were(self):
        class Counting(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(1))
                self.fails = False

            def forward(self, x):
                self.seen += 1
                if self.fails:
                    raise ValueError("it fails")
                return x * 1

        class Layer:
            index, name = 0, "Counting"

            def __init__(self):
                self.module = Counting()

            def __call__(self, value):
                return self.module(value)

        layer = Layer()
        segment = Segment([layer], torch.enable_grad, lambda layer, seed: None)
        given = (torch.ones(2, requires_grad=True),)
        then = segment.buffers()
        segment.run((1, 0, 0), given)
        segment.run((1, 0, 1), given)
        now = layer.module.seen
        self.assertEqual(now.item(), 2)
        segment.rerun((1, 0, 0), given, then)
        self.assertEqual(layer.module.seen.item(), 2)
        layer.module.fails = True
        with self.assertRaises(errors.LayerError):
            segment.rerun((1, 0, 0), given, then)
        self.assertIs(layer.module.seen, now)
        self.assertEqual(layer.module.seen.item(), 2)


@unittest.skipUnless(has_torch, without_torch)
class Hashes(Scratch):
    def hash_with(self, name, files):
        os.makedirs(self.path(name))
        for file, text in files.items():
            self.write(os.path.join(name, file), text)
        return hash_of(self.path(name))

    def test_a_folder_s_hash_is_of_names_and_contents(self):
        one = self.hash_with("a", {"a.safetensors": "x", "b.safetensors": "y"})
        self.assertEqual(one, self.hash_with("b", {"a.safetensors": "x", "b.safetensors": "y", "notes.txt": "of no weight"}))
        self.assertNotEqual(one, self.hash_with("c", {"a.safetensors": "x", "c.safetensors": "y"}))
        self.assertNotEqual(one, self.hash_with("d", {"a.safetensors": "x", "b.safetensors": "z"}))
        self.assertNotEqual(one, self.hash_with("e", {"a.safetensors": "xy", "b.safetensors": ""}))
        self.assertNotEqual(one, self.hash_with("f", {"a.safetensors": "y", "b.safetensors": "x"}))


if __name__ == "__main__":
    unittest.main()
