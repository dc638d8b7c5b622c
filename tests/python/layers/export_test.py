"""`troupe export` of programs' checkpoints, which the tests write themselves."""

import json
import os
import subprocess
import sys
import unittest

from programs import Programs
from support import environment, has_torch, here, root, without_torch

if has_torch:
    import torch

    import troupe
    from stages import Pipeline, unequal
    from troupe import safetensors
    from troupe.layers import checkpoint
    from troupe.layers.model_file import Program

program = os.environ.get("TROUPE_PROGRAM")
mixed, gpt = os.path.join(here, "programs/mixed.py"), os.path.join(root, "examples/pytorch/gpt.py")
small_gpt = {"layers": 2, "hidden": 16, "heads": 2, "sequence": 8}


@unittest.skipUnless(program, "TROUPE_PROGRAM is not set: no program to test")
@unittest.skipUnless(has_torch, without_torch)
class Exports(Programs):
    def saved(self, found, cuts=(1,), iteration=1):
        """The folder of a checkpoint, and the training that has written it."""
        pipeline = Pipeline(found, cuts)
        for n in range(iteration):
            pipeline.iteration(n)
        folder = checkpoint.folder_of(self.path("saved"), iteration)
        files = [name for stage in pipeline.stages for name in stage.copy(iteration).write(folder, 5)]
        checkpoint.write_index(folder, iteration, files)
        return folder, pipeline

    def export(self, *words, status=0, **more):
        more = {"TROUPE_PYTHON": sys.executable, **more}
        ended = subprocess.run([program, "export", self.path("saved"), *words, "--json"], cwd=self.folder,
                               env=environment(**more), capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        return json.loads(ended.stdout)

    @staticmethod
    def module(found):
        return torch.nn.Sequential(*(x.module if x.module is not None else x.make(*x.args) for x in found.layers(1).layers))

    def test_plain_pytorch_loads_all_of_it_by_the_names_of_sequential(self):
        for i, found in enumerate((Program(mixed), Program(gpt, small_gpt))):
            with self.subTest(file=found.file):
                _, pipeline = self.saved(found, iteration=i + 1)
                done = self.export(f"out{i}")
                self.assertEqual((done["iteration"], done["frozen"]), (i + 1, 0))
                file = safetensors.SafeTensors(self.path(done["file"]))
                module = self.module(found)
                self.assertEqual(set(file.names), set(module.state_dict()))
                self.assertEqual(done["parameters"], sum(p.numel() for name, p in module.named_parameters()) -
                                 (module[-1].weight.numel() if found.file == "gpt.py" else 0))
                module.load_state_dict({name: file.tensor(name) for name in file.names}, strict=True)
                self.assertEqual(unequal(module.state_dict(), pipeline.weights()), "")
                self.assertEqual({name: file.dtype(name) for name in file.names},
                                 {name: t.dtype for name, t in module.state_dict().items()})
                troupe.load(self.module(found), self.path(f"out{i}"))

    def test_a_state_dict_is_written_by_pytorch(self):
        _, pipeline = self.saved(Program(gpt, small_gpt))
        file = self.path(self.export("out", "--format", "pt")["file"])
        self.assertEqual(os.listdir(self.path("out")), [os.path.basename(file)])
        found = torch.load(file)
        self.assertEqual(unequal(found, pipeline.weights()), "")
        self.assertLess(os.path.getsize(file), 2 * sum(t.numel() * t.element_size() for t in found.values()) + 20_000)

    def test_without_pytorch_a_state_dict_is_refused_and_safetensors_are_written(self):
        self.saved(Program(mixed))
        none = self.write("python", f"#!/bin/sh\nexec {sys.executable} -S -c 'import sys; sys.argv[0:2] = []\n"
                          "sys.modules[\"torch\"] = None\nimport runpy; runpy.run_module(\"troupe.export_pt\", "
                          "run_name=\"__main__\")' \"$@\"\n")
        os.chmod(none, 0o755)
        self.assertRegex(self.export("out", "--format", "pt", "--python", none, status=2)["error"], "found no PyTorch for")
        self.assertEqual(os.listdir(self.path("out")), [])
        self.export("out", TROUPE_PYTHON="/nowhere")

    def test_public_names_are_those_of_the_file(self):
        text = "\ndef names(layer, name): return f'{\"ac\"[layer // 2]}.{name}'"
        _, pipeline = self.saved(self.program(more=text))
        self.export("out")
        module = torch.nn.Module()
        module.a, module.c = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
        troupe.load(module, self.path("out"))
        self.assertTrue(torch.equal(module.c.weight, pipeline.weights()["2.weight"]))
        self.saved(self.program(more="\ndef names(layer, name): return name"), iteration=2)
        self.assertIn("has the public name", self.export("other", status=2)["error"])

    def test_what_cannot_be_exported_is_refused_with_a_sentence(self):
        folder, _ = self.saved(Program(mixed))
        self.export("out")
        self.assertIn("already exists", self.export("out", status=1)["error"])
        self.assertIn("tokenizer", self.export("other", "--tokenizer", "somewhere", status=2)["error"])
        os.remove(os.path.join(folder, "model.safetensors.index.json"))
        with open(os.path.join(folder, "layer-00000.safetensors"), "wb") as to, \
                open(os.path.join(folder, "layer-00000-lease-5.safetensors"), "rb") as file:
            to.write(file.read())
        ended = subprocess.run([program, "export", folder, "other", "--json"], cwd=self.folder, env=environment(),
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("another file of layer 0", json.loads(ended.stdout)["error"])

    def test_a_checkpoint_of_the_built_in_model_has_no_state_dict(self):
        folder = self.path("saved/iteration-000001")
        os.makedirs(folder)
        safetensors.write(os.path.join(folder, "layers.safetensors"), {"wte.weight": torch.zeros(2, 2)},
                          {"iteration": "1"})
        checkpoint.write_index(folder, 1, ["layers.safetensors"])
        self.assertIn("expected a program's for format pt", self.export("out", "--format", "pt", status=2)["error"])


if __name__ == "__main__":
    unittest.main()
