"""Fine-tuning a folder by the package's own program: rows of examples, losses beside plain PyTorch, stages, an export that
the inference engine reads. $TROUPE_PROGRAM is the program; without it or PyTorch nothing is tested."""

import json
import os
import shutil
import subprocess
import sys
import unittest

from support import Scratch, environment, has_torch, root, without_torch

if has_torch:
    import torch
    from troupe import order, safetensors
    from troupe.errors import ProgramError
    from troupe.models.folder import read_folder
    from troupe.models.rows import Rows, collate, loss
    from models.folders import engine_logits, program, write_folder
    from models.random_rows import random_rows, write_rows
    from models.parity_test import logits_of, relative

script = os.path.join(root, "python", "troupe", "programs", "fine_tune.py")
oracle = os.path.join(root, "tests", "python", "oracle", "plain_training.py")
reference = os.path.join(root, "tests", "gpu", "inference", "reference.py")
batch, updates, rate = 4, 6, 0.003


@unittest.skipUnless(has_torch, without_torch)
class RowsOfFiles(Scratch):
    def test_targets_are_trained_tokens_behind_others_of_their_example(self):
        rows = Rows(write_rows(self.path("rows"), [
            [{"tokens": [5, 6, 7], "trained": [1, 0, 1]}, {"tokens": [8, 9], "trained": [1, 1]}],
            [{"tokens": [3, 4], "trained": [0, 1]}]]), 96)
        tokens, positions, targets = rows[0]
        self.assertEqual(tokens.tolist(), [5, 6, 7, 8, 9])
        self.assertEqual(positions.tolist(), [0, 1, 2, 0, 1])
        self.assertEqual(targets.tolist(), [-100, 7, -100, 9, -100])
        self.assertEqual([rows.trained(0), rows.trained(1), len(rows)], [2, 1, 2])
        (tokens, positions), targets = collate([rows[0], rows[1]])
        self.assertEqual(positions.tolist(), [[0, 1, 2, 0, 1], [0, 1, 0, 1, 2]])
        self.assertEqual(targets[1].tolist(), [4, -100, -100, -100, -100])

    def test_files_that_have_no_rows_or_damaged_ones_are_refused(self):
        good = write_rows(self.path("rows"), random_rows(3))
        with self.assertRaisesRegex(ProgramError, "found token [0-9]+, expected less than the model's vocabulary of 8"):
            Rows(good, 8)
        with self.assertRaisesRegex(ProgramError, "expected a file of `troupe check --rows`"):
            Rows(os.path.join(root, "configs", "models", "scribe", "model.safetensors"), 256)
        found = safetensors.SafeTensors(good)
        tensors = {name: found.tensor(name).clone() for name in found.names}
        tensors["examples"][1] = tensors["examples"][2]
        safetensors.write(good, tensors, {"format": "troupe-rows-1"})
        with self.assertRaisesRegex(ProgramError, "do not fit together"):
            Rows(good, 96)

    def test_a_packed_row_has_the_loss_and_gradients_of_its_examples_alone(self):
        data = random_rows(6)
        packed = Rows(write_rows(self.path("packed"), data), 96)
        alone = Rows(write_rows(self.path("alone"), [[x] for row in data for x in row]), 96)
        for name in ("gpt2", "qwen3"):
            folder = write_folder(self.folder, name)
            sums = []
            for rows in packed, alone:
                _, layers = read_folder(folder)
                (tokens, positions), targets = collate([rows[i] for i in range(len(rows))])
                value = tokens, positions
                for layer in layers:
                    value = layer(value)
                found = loss(value, targets)
                found.backward()
                sums.append((float(found.detach()), torch.cat([p.grad.flatten() for x in layers for p in x.parameters()])))
            self.assertLess(abs(sums[0][0] / sums[1][0] - 1), 1e-6, name)
            self.assertLess(relative(sums[0][1], sums[1][1]), 1e-5, name)


@unittest.skipUnless(has_torch, without_torch)
class FineTuning(Scratch):
    def setUp(self):
        super().setUp()
        self.data = random_rows(14)
        self.rows = write_rows(self.path("rows.safetensors"), self.data)
        self.base = self.path("base")
        os.mkdir(self.base)

    def plain_losses(self, microbatches, *more, until=updates, **arguments):
        arguments = json.dumps({"base": self.base, "rows": self.rows, "learning_rate": rate, **arguments})
        found = subprocess.run(
            [sys.executable, "-m", "troupe.plain", script, "--arguments", arguments, "--global-batch", str(batch),
             "--microbatches", str(microbatches), "--iterations", str(until), *more],
            env=environment(), capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stderr)
        return [float(line.split()[-1]) for line in found.stdout.splitlines()]

    def oracle_losses(self):
        chosen = [order.samples(i * batch, batch, len(self.data), 1) for i in range(updates)]
        job = self.write("job.json", json.dumps({"updates": chosen, "rows": self.data, "rates": [rate] * updates, "clip": 1.0}))
        found = subprocess.run([sys.executable, "-I", oracle, reference, self.base, job], capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stderr)
        return [json.loads(line) for line in found.stdout.splitlines()]

    def test_losses_are_those_of_plain_pytorch_for_any_number_of_microbatches(self):
        for name in ("gpt2", "qwen3", *(("llama-linear",) if os.environ.get("TROUPE_SLOW") else ())):
            write_folder(self.base, name)
            expected = self.oracle_losses()
            self.assertTrue(all(x["norm"] > 1 for x in expected))  # clipping counts
            for microbatches in (1, 4) if name == "qwen3" else (2,):
                found = self.plain_losses(microbatches)
                for one, other in zip(found, expected):
                    self.assertLess(abs(one / other["loss"] - 1), 1e-5, (name, microbatches, found, expected))

    def test_a_training_that_is_resumed_has_the_losses_of_one_that_is_not(self):
        write_folder(self.base, "llama-two-heads")
        whole = self.plain_losses(1, updates=updates)
        saved = "--checkpoint", self.path("saved")
        self.assertEqual(self.plain_losses(1, *saved, until=2, updates=updates) + self.plain_losses(1, *saved, updates=updates),
                         whole)

    def job(self, stages):
        return self.write("job.yaml", json.dumps({
            "name": "tune", "global_batch": batch, "iterations": updates, "pipeline": {"stages": stages, "microbatches": 2},
            "train": {"program": script, "device": "cpu", "seed": 1, "checkpoint": self.path(f"out-{stages}"),
                      "arguments": {"base": self.base, "rows": self.rows, "learning_rate": rate}}}))

    def trained(self, stages):
        found = subprocess.run([program, "train", self.job(stages), "--world", "local", "--state", self.path(f"state-{stages}"),
                                "--json"], env=environment(TROUPE_PYTHON=sys.executable), capture_output=True, text=True,
                               cwd=self.folder)
        self.assertEqual(found.returncode, 0, found.stderr + found.stdout)
        return json.loads(found.stdout)

    def exported(self, stages):
        """A folder that can be served: weights of the training, all else of its base."""
        folder = self.path(f"exported-{stages}")
        found = subprocess.run([program, "export", self.path(f"out-{stages}"), folder], env=environment(), capture_output=True,
                               text=True)
        self.assertEqual(found.returncode, 0, found.stderr + found.stdout)
        shutil.copy(os.path.join(self.base, "config.json"), folder)
        return folder

    @unittest.skipIf(os.environ.get("TROUPE_PROGRAM") is None, "needs TROUPE_PROGRAM")
    def test_stages_train_the_same_and_the_export_is_what_the_inference_engine_reads(self):
        write_folder(self.base, "qwen3-untied")
        two = self.trained(2)
        self.assertEqual(two["stages_count"], 2)
        self.assertEqual(two["losses"], self.plain_losses(2))
        self.assertLess(two["losses"][-1], two["losses"][0])
        tokens = [x % 96 for x in range(7, 300, 7)]
        model, layers = read_folder(self.exported(2))
        found = engine_logits(self.path("exported-2"), tokens)
        value = logits_of(layers, torch.tensor([tokens]), torch.arange(len(tokens), dtype=torch.int32)[None])[0]
        self.assertLess(relative(value, found), 1e-4)
        self.assertGreater(relative(found, engine_logits(self.base, tokens)), 1e-2)
        # A tied head is one tensor in the folder.
        write_folder(self.base, "gpt2")
        shutil.rmtree(self.path("out-2"))
        shutil.rmtree(self.path("exported-2"))
        self.assertEqual(self.trained(2)["stages_count"], 2)
        read_folder(self.exported(2))
        engine_logits(self.path("exported-2"), tokens)
