import json
import os
import struct
import unittest
import warnings
from unittest import mock

from programs import Programs
from support import has_torch, here, root, without_torch

if has_torch:
    import torch

    import troupe
    from stages import Loop, Pipeline, unequal
    from troupe import safetensors
    from troupe.layers import checkpoint
    from troupe.layers.model_file import Program
    from troupe.layers.stage import Stage

mixed, gpt = os.path.join(here, "programs/mixed.py"), os.path.join(root, "examples/pytorch/gpt.py")
counting = """
class Counting(torch.optim.SGD):
    def step(self):
        for p in (p for group in self.param_groups for p in group["params"]):
            self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
            p.data -= p.grad / self.state[p]["steps"]
def optimizer(parameters): return Counting(parameters, lr=1)"""
small_gpt = {"layers": 3, "hidden": 16, "heads": 2, "sequence": 8}


@unittest.skipUnless(has_torch, without_torch)
class Checkpoints(Programs):
    def saved(self, pipeline, iteration, lease=0):
        folder = checkpoint.folder_of(self.folder, iteration)
        files = [name for stage in pipeline.stages for name in stage.copy(iteration).write(folder, lease)]
        checkpoint.write_index(folder, iteration, files)
        return folder

    def resumed(self, program, cuts, folder, **more):
        pipeline = Pipeline(program, cuts, **more)
        self.assertEqual({stage.load(folder) for stage in pipeline.stages}, {3})
        return pipeline

    def test_two_stages_write_and_any_number_reads(self):
        warnings.simplefilter("ignore")  # SequentialLR's own
        for program in (Program(mixed), Program(gpt, small_gpt), self.program(more="""
def schedule(optimizer):
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, torch.optim.lr_scheduler.StepLR(optimizer, 1)], [4])"""),
                        Program(self.write("counting.py", self.text + counting))):
            undisturbed = Pipeline(program, (1,))
            for n in range(3):
                undisturbed.iteration(n)
            folder = self.saved(undisturbed, 3)
            losses = [undisturbed.iteration(n) for n in range(3, 6)]
            for cuts, recompute in (((), "none"), ((2,), "stage"), ((1, 2), "layers")):
                with self.subTest(file=program.file, cuts=cuts):
                    pipeline = self.resumed(program, cuts, folder, recompute=recompute)
                    self.assertEqual([pipeline.iteration(n) for n in range(3, 6)], losses)
                    self.assertEqual(unequal(pipeline.weights(), undisturbed.weights()), "")
                    self.assertEqual(unequal(pipeline.states(), undisturbed.states()), "")

    def test_a_copy_is_that_of_its_moment(self):
        pipeline = Pipeline(mixed)
        before = pipeline.weights()
        copy = pipeline.stages[0].copy(0)
        pipeline.iteration(0)
        copy.write(self.path("saved"))
        fresh = Pipeline(mixed)
        pipeline.iteration(1)
        self.assertEqual(fresh.stages[0].load(self.path("saved")), 0)
        self.assertEqual(unequal(fresh.weights(), before), "")

    def test_the_files_say_what_is_in_them(self):
        pipeline = Pipeline(Program(gpt, small_gpt), (2,))
        pipeline.iteration(0)
        folder = self.saved(pipeline, 1, lease=3)
        self.assertEqual(os.path.basename(folder), "iteration-000001")
        names = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
        self.assertEqual(names, [f"layer-0000{i}-lease-3.safetensors" for i in range(5)])
        first, last = (safetensors.SafeTensors(os.path.join(folder, names[i])) for i in (0, 4))
        self.assertEqual(sorted(first.names), ["0.positions", "0.weight", "optim/exp_avg/0.positions", "optim/exp_avg/0.weight",
                                               "optim/exp_avg_sq/0.positions", "optim/exp_avg_sq/0.weight",
                                               "optim/step/0.positions", "optim/step/0.weight"])
        self.assertFalse([name for name in last.names if "weight" in name and "norm" not in name])
        about = json.loads(first.metadata["troupe"])
        self.assertEqual((first.metadata["iteration"], about["layer"], about["layers"], about["class"], about["tied"]),
                         ("1", 0, 5, "Embedding", {"4.weight": "0.weight"}))
        self.assertEqual(about["options"]["0.weight"]["betas"], [0.9, 0.95])
        with open(os.path.join(folder, "model.safetensors.index.json")) as file:
            self.assertEqual(json.load(file)["weight_map"]["0.weight"], names[0])
        self.assertEqual(checkpoint.newest(self.folder), folder)

    def test_files_of_another_lease_are_left_alone(self):
        pipeline = Pipeline(mixed)
        folder = self.saved(pipeline, 0, lease=1)
        pipeline.iteration(0)
        pipeline.stages[0].copy(1).write(folder, lease=2)
        fresh = Pipeline(mixed)
        self.assertEqual(fresh.stages[0].load(folder), 0)
        os.remove(os.path.join(folder, "model.safetensors.index.json"))
        self.refused("found two files of layer 0", lambda: fresh.stages[0].load(folder))

    def test_plain_pytorch_loads_it(self):
        for path, arguments, tied in ((mixed, {}, None), (gpt, small_gpt, ("weight", "weight"))):
            pipeline = Pipeline(Program(path, arguments), (2,))
            pipeline.iteration(0)
            folder = self.saved(pipeline, 1)
            plain = Loop(path, arguments=arguments, tied=tied)
            self.assertNotEqual(unequal(plain.weights(), pipeline.weights()), "")
            self.assertIs(troupe.load(plain.module, folder), plain.module)
            self.assertEqual(unequal(dict(plain.weights()), pipeline.weights()), "")
            troupe.load(plain.layers, folder)
        self.refused("'0.positions' the module has not", lambda: troupe.load(torch.nn.Linear(1, 1), folder))

    def test_a_module_that_a_layer_has_twice_is_saved_once_and_loaded_by_both_names(self):
        program = self.program(self.model, """
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = self.other = nn.BatchNorm1d(4)
    def forward(self, x): return self.other(self.one(x))
def model(): return [troupe.Layer(Twice), troupe.Layer(nn.Linear, 4, 3)]""")
        pipeline = Pipeline(program)
        pipeline.iteration(0)
        folder = self.saved(pipeline, 1)
        names = safetensors.SafeTensors(os.path.join(folder, "layer-00000.safetensors")).names
        self.assertFalse([name for name in names if "other" in name])
        plain = torch.nn.Sequential(*(x.make(*x.args) for x in program.layers(1).layers))
        troupe.load(plain, folder)
        self.assertEqual(unequal(dict(plain.state_dict()), pipeline.weights()), "")

    def test_public_names_are_in_the_files(self):
        program = self.program(more="\ndef names(layer, name): return f'{\"ac\"[layer // 2]}.{name}'")
        folder = self.saved(Pipeline(program), 0)
        module = torch.nn.Module()
        module.a, module.c = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
        troupe.load(module, folder)
        self.assertTrue(torch.equal(module.c.weight, Pipeline(program).weights()["2.weight"]))

    def test_frozen_parameters_are_named_and_not_saved(self):
        values = torch.randn(8, 4)
        os.mkdir(self.path("base"))
        safetensors.write(self.path("base/model.safetensors"), {"w": values}, {})
        text = f"""
class Frozen(nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.w, self.shift = troupe.frozen(folder, "w"), nn.Parameter(torch.zeros(8))
    def forward(self, x): return x @ self.w.T + self.shift
class Bare(nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.w = troupe.frozen(folder, "w")
    def forward(self, x): return x + self.w.sum()
def model(): return [troupe.Layer(Frozen, "{self.path("base")}"), troupe.Layer(Bare, "{self.path("base")}"), nn.Linear(8, 3)]"""
        pipeline = Pipeline(self.program(self.model, text))
        pipeline.iteration(0)
        self.assertTrue(torch.equal(pipeline.weights()["0.w"], values))
        folder = self.saved(pipeline, 1)
        module = torch.nn.Sequential(*(x.make(*x.args) if x.module is None else x.module
                                       for x in pipeline.program.layers(1).layers))
        troupe.load(module, folder)
        self.assertEqual(unequal(dict(module.state_dict()), pipeline.weights()), "")
        self.assertNotIn("0.w", safetensors.SafeTensors(os.path.join(folder, "layer-00000.safetensors")).names)
        self.assertEqual(pipeline.stages[0].load(folder), 1)
        os.mkdir(self.path("other"))
        safetensors.write(self.path("other/model.safetensors"), {"w": values + 1}, {})
        for program, name in ((text.replace("/base", "/other"), "0.w"),
                              (text.replace('Bare, "' + self.path("base"), 'Bare, "' + self.path("other")), "1.w")):
            other = Pipeline(self.program(self.model, program))
            self.refused(f"'{name}' was from a folder with SHA-256", lambda: other.stages[0].load(folder))

    def test_the_first_difference_to_the_program_is_named(self):
        pipeline = Pipeline(self.program(), (1,))
        pipeline.iteration(0)
        folder = self.saved(pipeline, 1)
        first = os.path.join(folder, "layer-00000.safetensors")
        for replaced, by, words in (
                ("nn.Linear, 4, 8)", "nn.Linear, 4, 8, bias=False)", f"{first}: found '0.bias', which the program has not"),
                ("nn.Linear, 4, 8), nn.Tanh(), troupe.Layer(nn.Linear, 8,", "nn.Linear, 4, 6), nn.Tanh(), troupe.Layer(nn.Linear, 6,",
                 f"{first}: found '0.bias' of [8] float32, expected [6] float32"),
                ("nn.Tanh()", "nn.Tanh(), nn.Tanh()", "found a model of 3 layers, expected 4"),
                ("nn.Linear, 4, 8)", "nn.BatchNorm1d, 4)", "found '0.bias' of [8] float32, expected [4] float32"),
                ("nn.Tanh()", "nn.BatchNorm1d(8)", "found no file of layer 1"),
                ("torch.optim.SGD(parameters, lr=0.1, momentum=0.9)", "torch.optim.AdamW(parameters)",
                 "its.py: found the state of SGD, expected AdamW's")):
            with self.subTest(words):
                self.refused(words, lambda: Pipeline(self.program(replaced, by)).stages[0].load(folder))
        self.refused("start() comes before load()", lambda: Stage(self.program()).load(folder), ValueError)
        self.refused("expected a checkpoint", lambda: pipeline.stages[0].load(self.path("none")))
        os.mkdir(self.path("empty"))
        self.refused("found no layer's file", lambda: pipeline.stages[0].load(self.path("empty")))


@unittest.skipUnless(has_torch, without_torch)
class Format(Programs):
    def test_tensors_of_every_type_are_read_as_they_were(self):
        tensors = {str(i): torch.arange(6).reshape(2, 3).to(dtype) for i, dtype in enumerate(safetensors._names)}
        tensors.update(empty=torch.zeros(0, 3), number=torch.tensor(2.5), turned=torch.arange(6.0).view(2, 3).T)
        path = self.path("all.safetensors")
        safetensors.write(path, tensors, {"a": "b"})
        found = safetensors.SafeTensors(path)
        self.assertEqual(found.metadata, {"a": "b"})
        self.assertEqual(unequal({name: found.tensor(name) for name in found.names}, tensors), "")
        self.assertEqual(os.listdir(self.folder), ["all.safetensors"])

    def test_a_file_that_cannot_be_written_leaves_the_old_one(self):
        path = self.path("one.safetensors")
        safetensors.write(path, {"a": torch.ones(2)}, {})
        with mock.patch("os.fsync", side_effect=OSError), self.assertRaises(OSError):
            safetensors.write(path, {"a": torch.zeros(2)}, {})
        self.assertEqual(os.listdir(self.folder), ["one.safetensors"])
        self.assertTrue(torch.equal(safetensors.SafeTensors(path).tensor("a"), torch.ones(2)))

    def test_damaged_files_are_refused(self):
        good = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}

        def entry(**more):
            return {"a": dict(good["a"], **more)}

        def file(header, data=8, length=None):
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            return struct.pack("<Q", len(text) if length is None else length) + text + bytes(data)

        self.read(file(good))
        for words, content in (
                ("found a header of 3 bytes in 3", b"abc"), ("found a header of 0 bytes", file(b"")),
                ("found a header of 1000 bytes", file(good, length=1000)),
                ("found a header of 18446744073709551615 bytes", file(good, length=(1 << 64) - 1)),
                ("no JSON object", file(b"[1]")), ("no JSON object", file(b"{]")), ("no JSON object", file(b"\xff\xff")),
                ("no JSON object", file(b"[" * 100000)),
                ("metadata that are no texts", file(dict(good, __metadata__={"a": 1}))),
                ("'a' has dtype 'F31'", file(entry(dtype="F31"))), ("'a' has dtype 0", file({"a": 3})),
                ("'a' has shape [-2]", file(entry(shape=[-2]))), ("'a' has shape [true]", file(entry(shape=[True]))),
                ("and offsets [0]", file(entry(data_offsets=[0]))), ("'a' has 8 bytes, expected 12", file(entry(shape=[3]))),
                ("'a' has -8 bytes", file(entry(data_offsets=[8, 0]))),
                ("found 'a' at 4, expected 0", file(entry(data_offsets=[4, 12]), 12)),
                ("found 'b' at 4, expected 8", file(dict(good, b={"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}), 12)),
                ("expected ", file(good, 7)), ("expected ", file(good, 9))):
            with self.subTest(words):
                self.refused(words.replace("true", "True"), lambda: self.read(content))

    def read(self, content):
        with open(self.path("x.safetensors"), "wb") as file:
            file.write(content)
        return safetensors.SafeTensors(self.path("x.safetensors"))
