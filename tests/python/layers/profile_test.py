import json
import os
import subprocess
import sys
import unittest
from unittest import mock

from programs import Programs
from support import environment, has_torch, root, without_torch

if has_torch:
    from troupe.profile import few_layers, profile

gpt = os.path.join(root, "examples/pytorch/gpt.py")

# Layers that take as many seconds of a clock as they say.
busy = """
import spent
class Spend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds, later):
        spent.clock += seconds
        ctx.later = later
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        spent.clock += ctx.later
        return gradient, None, None
class Busy(nn.Module):
    def __init__(self, seconds, later, frozen=False, width=1):
        super().__init__()
        self.seconds, self.later = seconds, later
        self.weight = nn.Parameter(torch.ones(width), not frozen)
    def forward(self, x): return Spend.apply(x * self.weight[0], self.seconds, self.later)
class Steps(torch.optim.SGD):
    def step(self):
        spent.clock += sum(p.numel() for group in self.param_groups for p in group["params"])
        return super().step()
def loss(output, target): return Spend.apply(output.sum() * 1e-6, 1000, 2000)
def optimizer(parameters): return Steps(parameters, lr=0.0)
"""
steps = ("forward_s", "recompute_s", "backward_s", "update_s")


@unittest.skipUnless(has_torch, without_torch)
class Profiled(Programs):
    def setUp(self):
        super().setUp()
        self.write("spent.py", "clock = 0.0\n")
        self.addCleanup(lambda: sys.modules.pop("spent", None))

    def profiled(self, layers, rows=(1, 2), free=1e12):
        path = self.program(more=busy + f"def model(): return [{layers}]\n").path
        import spent

        with mock.patch("troupe.layers.timing._HostClock.now", staticmethod(lambda: spent.clock)), \
                mock.patch("troupe.profile._free_bytes", lambda device: free):
            found = profile(path, rows=rows, rounds=3)
        self.assertEqual(found["refusals"], [])
        return found["points"]

    def test_each_layer_has_the_seconds_that_it_takes(self):
        layer = "troupe.Layer(Busy, {}, {}, width={})".format
        equal = [layer(10, 20, 2)] * 5
        layers = ", ".join([layer(1, 2, 1), *equal, layer(100, 200, 3)])
        one, two = self.profiled(layers)
        self.assertEqual((one["rows"], two["rows"]), (1, 2))
        for point in (one, two, *self.profiled(layers, free=0)):
            found = [tuple(x[s] for s in steps) for x in point["layers"]]
            self.assertEqual(found, [(1, 1, 2, 1), *[(10, 10, 20, 2)] * 5, (100, 100, 200, 3)])
            self.assertEqual([point["loss"][s] for s in steps], [1000, 1000, 2000, 0])
            self.assertEqual([x["spread"] for x in point["layers"]], [0] * 7)
            self.assertEqual(set(point["tied"].values()), {0})

    def test_layers_without_gradients_take_no_backward(self):
        point, = self.profiled("Busy(1, 2, frozen=True), Busy(10, 20, frozen=True), Busy(100, 200)", rows=(2,))
        self.assertEqual([x["backward_s"] for x in point["layers"]], [0, 0, 200])
        self.assertEqual([x["update_s"] for x in point["layers"]], [0, 0, 1])

    def test_a_tied_parameter_of_another_stage_is_updated_a_second_time(self):
        tied = "troupe.Layer(Busy, 1, 2, width=4, tied='it')"
        point, = self.profiled(f"{tied}, troupe.Layer(Busy, 10, 20, width=3), {tied}", rows=(1,))
        self.assertEqual([x["update_s"] for x in point["layers"]], [4, 3, 0])
        self.assertEqual(point["tied"]["update_s"], 4)

    def test_three_of_equal_layers_in_a_row_run_and_all_glued_ones(self):
        def kept(same_as, glued=()):
            return few_layers({"layers": [{"same_as": x} for x in same_as],
                                "glued": [{"first": a, "last": b} for a, b in glued]})

        self.assertEqual(kept([0, 1, 1, 1, 1, 1, 6]), [0, 1, 2, 3, 6])
        self.assertEqual(kept([0, 1, 0, 1, 0, 1]), [0, 1, 2, 3, 4, 5])
        self.assertEqual(kept([0] * 6, glued=[(2, 4)]), [0, 1, 2, 3, 4])
        self.assertEqual(kept([0] * 6, glued=[(4, 5)]), [0, 1, 2, 4, 5])

    def test_equal_layers_have_equal_inputs(self):
        found = profile(self.program(self.model, """
def model(): return [nn.Linear(4, 8), nn.AdaptiveAvgPool1d(2), nn.AdaptiveAvgPool1d(2), nn.Linear(2, 3)]""").path, rounds=3)
        self.assertEqual([x["same_as"] for x in found["layers"]], [0, 1, 2, 3])
        self.assertEqual(len(found["points"][0]["layers"]), 4)

    def test_the_command_measures_a_small_gpt_beside_another_process(self):
        done = subprocess.run([sys.executable, "-m", "troupe.profile", gpt, "--arguments",
                               "layers=2,hidden=16,heads=2,sequence=8", "--rows", "2,1", "--rounds", "3", "--busy", "2",
                               "--json"], env=environment(), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        points = json.loads(done.stdout)["points"]
        self.assertEqual([x["rows"] for x in points], [1, 2])
        for x in points[0]["layers"]:
            self.assertTrue(all(0 < x[s] < 10 for s in ("forward_s", "recompute_s", "backward_s")), x)

    def test_the_command_says_each_round_while_it_writes_a_file(self):
        out = self.path("found.json")
        done = subprocess.run([sys.executable, "-m", "troupe.profile", gpt, "--arguments",
                               "layers=1,hidden=16,heads=2,sequence=8", "--rounds", "4", "--out", out],
                              env=environment(), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(), [f"round {n} of 4" for n in (1, 2, 3, 4)])

    def test_what_cannot_run_is_refused_without_points(self):
        found = profile(self.program("nn.Tanh()", "Bad()", """
class Bad(nn.Module):
    def forward(self, x): return None""").path)
        self.assertIn("layer 1 (Bad) returned None", found["refusals"][0])
        self.assertNotIn("points", found)
