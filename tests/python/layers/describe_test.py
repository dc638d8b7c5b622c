import json
import os
import subprocess
import sys
import unittest
from contextlib import nullcontext
from unittest import mock

from programs import Programs
from support import environment, has_torch, here, root, without_torch

if has_torch:
    import torch

    from stages import Pipeline
    from troupe.describe import describe
    from troupe.layers.layer import BuiltLayer
    from troupe.layers.measure import measured
    from troupe.layers.model_file import Program
    from troupe.plain import named_values
    from troupe.layers.stage import Stage

mixed, gpt = os.path.join(here, "programs/mixed.py"), os.path.join(root, "examples/pytorch/gpt.py")
small = {"layers": 2, "hidden": 16, "heads": 2, "sequence": 8}
image = os.path.join(root, "examples/pytorch/image.py")


def run(module, *arguments):
    return subprocess.run([sys.executable, "-m", module, *map(str, arguments)], env=environment(), capture_output=True,
                          text=True, check=False)


@unittest.skipUnless(has_torch, without_torch)
class Described(Programs):
    def test_figures_are_those_of_one_sample(self):
        found = describe(gpt, small)
        self.assertEqual((found["refusals"], found["warnings"], found["tied"]), ([], [], ["0.weight", "3.weight"]))
        self.assertEqual(found["tied_parameters"], 256 * 16)
        embedding, block, other, head = found["layers"]
        self.assertEqual(embedding["parameters"], 256 * 16 + 8 * 16)
        self.assertEqual(head["parameters"], 2 * 16)  # the tied one is the first layer's
        self.assertEqual(head["forward_flops"], 2 * 8 * 16 * 256)
        self.assertEqual(block["parameters"], 12 * 16 * 16 + 13 * 16)
        self.assertEqual(block["forward_flops"], 2 * 12 * 8 * 16 * 16 + 2 * 2 * 8 * 8 * 16)
        self.assertEqual(block["output_bytes"], 4 * 8 * 16)
        self.assertEqual(block["state_bytes"], 8 * block["parameters"] + 4 * 12)  # 12 numbers of steps
        self.assertEqual((block["same_as"], other["same_as"], head["same_as"]), (1, 1, 3))
        self.assertEqual(block["outputs"], [{"dtype": "float32", "shape": [8, 16], "gradient": True}])
        # The block keeps its input, which the layer before does not; the next block does not count it again.
        self.assertEqual(block["kept_bytes"], other["kept_bytes"])

    def test_a_stage_has_the_described_bytes(self):
        for path in (mixed, gpt, image):
            found, stage = describe(path), Stage(Program(path))
            self.assertEqual([x["parameter_bytes"] for x in found["layers"]], stage.parameter_bytes)
            self.assertEqual([x["buffer_bytes"] for x in found["layers"]], stage.buffer_bytes)
            self.assertEqual(sum(x["state_bytes"] for x in found["layers"]), stage.optimizer_state_bytes)
            self.assertEqual(sum(x["trainable"] for x in found["layers"]), stage.own_parameters + stage.tied_parameters)

    def test_flops_are_those_of_what_layers_compute(self):
        for layer, value, flops in ((torch.nn.Conv2d(3, 8, 3, groups=1, padding=1), torch.ones(2, 3, 5, 5), 2 * 2 * 8 * 25 * 27),
                                    (torch.nn.ConvTranspose1d(4, 6, 3), torch.ones(2, 4, 5), 2 * 2 * 4 * 5 * 18),
                                    (torch.nn.Conv1d(4, 8, 3, groups=2), torch.ones(1, 4, 5), 2 * 8 * 3 * 6),
                                    (torch.nn.Linear(4, 5), torch.ones(3, 4), 2 * 60), (torch.nn.Linear(4, 5), torch.ones(2, 3, 4), 240)):
            self.assertEqual(measured(BuiltLayer(0, "", layer, None), value, (), nullcontext).flops, flops, layer)

    def test_kept_bytes_are_counted_once(self):
        found = describe(self.program(self.model, """
def model(): return [nn.Linear(4, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)]""").path)
        # Inputs of the linear layers that no layer before them keeps, and results of the others.
        self.assertEqual([x["kept_bytes"] for x in found["layers"]], [16, 32, 0, 0, 32, 0])
        self.assertEqual([x["in_place"] for x in found["layers"]], [False] * 4 + [True, False])

    def test_copies_of_parameters_that_autocast_makes_are_counted_apart(self):
        wide, narrow = describe(gpt, small), describe(self.bf16(), small)
        for one, other in zip(wide["layers"], narrow["layers"]):
            self.assertLess(other["kept_bytes"], 1.01 * one["kept_bytes"])
        block = narrow["layers"][1]
        self.assertEqual(block["cast_bytes"], 2 * (12 * 16 * 16 + 9 * 16))  # matrices and their biases
        self.assertEqual([x["cast_bytes"] for x in wide["layers"]], [0] * 4)

    def bf16(self):
        with open(gpt) as file:
            return self.write("gpt.py", file.read().replace('precision, clip_norm = "fp32"', 'precision, clip_norm = "bf16"'))

    def test_what_deserves_a_warning_gets_one(self):
        found = describe(mixed)
        self.assertEqual(found["warnings"], ["layer 0 (Entrance): no gradient for 0.unused: counted as zero"])
        self.assertEqual(found["layers"][1]["parameters"] - found["layers"][1]["trainable"], 12)
        self.assertEqual([t["dtype"] for t in found["layers"][1]["outputs"]], ["float32", "int64"])
        self.assertEqual([x["in_place"] for x in found["layers"]], [False, False, False, False, True, False])
        found = describe(self.program("nn.Tanh()", "nn.Flatten(0)", more="""
class Last(nn.Linear):
    def forward(self, x): return super().forward(x.view(-1, 8))
def model(): return [nn.Linear(4, 8), nn.Flatten(0), Last(8, 3)]""").path)
        self.assertIn("layer 1 (Flatten) returned [16] for 2 samples", found["warnings"][0])

    def test_layers_that_cannot_be_stages_are_refused_by_name(self):
        for result, words in (("None", "layer 1 (Bad) returned None, expected a tensor or a tuple of tensors"),
                              ("(x, None)", "layer 1 (Bad) returned None in a tuple"), ("{'x': x}", "layer 1 (Bad) returned a dict"),
                              ("[x, x]", "layer 1 (Bad) returned a list"), ("(x,)", "layer 1 (Bad) returned a tuple of 1"),
                              ("(x, (x, x))", "layer 1 (Bad) returned a tuple in a tuple"), ("3.0", "layer 1 (Bad) returned a float"),
                              ("torch.complex(x, x)", "layer 1 (Bad) returned a tensor of torch.complex64"),
                              ("x.to_sparse()", "layer 1 (Bad) returned a tensor of layout torch.sparse_coo"),
                              ("x @ x @ x", "layer 1 (Bad): RuntimeError")):
            with self.subTest(result):
                found = describe(self.program("nn.Tanh()", "Bad()", f"""
class Bad(nn.Module):
    def forward(self, x): return {result}""").path)
                self.assertEqual(len(found["refusals"]), 1)
                self.assertIn(words, found["refusals"][0])
                self.assertEqual(len(found["layers"]), 1)

    def test_other_parts_that_cannot_run_are_refused(self):
        sparse = """
class Looked(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4, sparse=True)
    def forward(self, x): return self.table(x[:, 0].long())
def model(): return [Looked(), nn.Linear(4, 3)]"""
        for more, words in (("def optimizer(parameters): return torch.optim.LBFGS(parameters)", "LBFGS.step() needs a closure"),
                            ("Data.__getitem__ = lambda self, i: (torch.rand(4), 1)", "sample 0 draws from torch's generator"),
                            ("import random\nData.__getitem__ = lambda self, i: (torch.tensor([random.random()] * 4), 1)",
                             "sample 0 was another when it was read again"),
                            (sparse, "layer 0 (Looked): the gradient of '0.table.weight' is sparse"),
                            ("def loss(output, target): return output", "loss() returned a tensor of [2, 3]"),
                            ("def loss(output, target): return output.detach().sum()", "the loss depends on no trainable parameter")):
            with self.subTest(words):
                self.assertIn(words, describe(self.program(more="\n" + more).path)["refusals"][0])

    def test_glued_and_large_models_are_described(self):
        program = self.program(self.model, """
def model():
    one = nn.Linear(4, 4)
    return [one, nn.Tanh(), one, nn.Linear(4, 3)]""")
        found = describe(program.path)
        self.assertEqual(found["glued"], [{"first": 0, "last": 2, "name": "0.weight"}, {"first": 0, "last": 2, "name": "0.bias"}])
        self.assertEqual([x["parameters"] for x in found["layers"]], [20, 0, 0, 15])
        with mock.patch("troupe.layers.description._large_bytes", 100):
            self.assertIn("in every process", describe(program.path)["warnings"][0])

    def test_the_command_prints_json_and_its_status_says_whether_it_can_run(self):
        done = run("troupe.describe", image, "--json", "--arguments", "width=4")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual((found["arguments"], len(found["layers"]), found["samples"]), ({"width": 4}, 7, 4096))
        done = run("troupe.describe", self.write("bad.py", "x = 1"), "--json")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(json.loads(done.stdout)["refusals"], ["bad.py: found no function 'model', expected model()"])


@unittest.skipUnless(has_torch, without_torch)
class Plain(Programs):
    def test_its_losses_are_those_of_stages_and_a_checkpoint_goes_on(self):
        arguments = {"layers": 1, "hidden": 16, "heads": 2, "sequence": 8}
        common = (gpt, "--arguments", ",".join(f"{k}={v}" for k, v in arguments.items()), "--global-batch", 12,
                  "--microbatches", 4, "--seed", 5, "--checkpoint", self.path("saved"))
        printed = []
        for iterations in (2, 4):
            done = run("troupe.plain", *common, "--iterations", iterations)
            self.assertEqual(done.returncode, 0, done.stderr)
            printed += [float(line.split()[-1]) for line in done.stdout.splitlines()]
        torch.set_num_threads(1)
        pipeline = Pipeline(Program(gpt, arguments), (1,))
        self.assertEqual(printed, [pipeline.iteration(n) for n in range(4)])

    def test_a_program_that_cannot_run_is_refused_with_status_2(self):
        done = run("troupe.plain", self.path("none.py"))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("none.py: No such file or directory", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_arguments_are_numbers_texts_and_booleans(self):
        self.assertEqual(named_values("a=1,b=0.5,c=true,d=x y"), {"a": 1, "b": 0.5, "c": True, "d": "x y"})
