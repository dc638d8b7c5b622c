"""Jobs with `train: {base: FOLDER}`: the program trains, evaluates, saves and exports without a file of the user's."""

import csv
import json
import os
import signal
import subprocess
import sys
import unittest

from support import Scratch, environment, has_torch, until, without_torch

if has_torch:
    import torch
    from troupe.models.folder import read_folder
    from models.folders import configs, engine_logits, program, write_folder
    from models.parity_test import logits_of, relative

questions = [("What is %d and %d?" % (a, b), "%d" % (a + b)) for a in range(4) for b in range(5)]


@unittest.skipUnless(has_torch, without_torch)
@unittest.skipIf(os.environ.get("TROUPE_PROGRAM") is None, "needs TROUPE_PROGRAM")
class BaseJob(Scratch):
    def setUp(self):
        super().setUp()
        self.base = self.path("base")
        os.mkdir(self.base)
        self.data = self.write("data.jsonl", "".join(json.dumps({"prompt": q, "completion": a}) + "\n" for q, a in questions))

    # 256 tokens are bytes: no tokenizer is needed.
    def write_base(self, name):
        configs["bytes"] = {**configs[name], "vocab_size": 256}
        return write_folder(self.base, "bytes")

    def job(self, name, pipeline, **train):
        return {"name": name, "global_batch": 4, "iterations": 6, "pipeline": pipeline,
                "train": {"base": self.base, "data": self.data, "device": "cpu", "held_out": 0.25, "evaluate_every": 2,
                          "learning_rate": 3e-3, "checkpoint": self.path(name), **train}}

    def run_troupe(self, *words):
        return subprocess.run([program, *words], env=environment(TROUPE_PYTHON=sys.executable), capture_output=True, text=True,
                              cwd=self.folder)

    def trained(self, name, pipeline, *more, **train):
        file = self.write(name + ".yaml", json.dumps(self.job(name, pipeline, **train)))
        found = self.run_troupe("train", file, "--world", "local", "--state", self.path("state-" + name), "--json", *more)
        self.assertEqual(found.returncode, 0, found.stderr + found.stdout)
        with open(os.path.join(self.path(name), "curve.csv")) as curve:
            rows = list(csv.DictReader(curve))
        return json.loads(found.stdout), rows

    def export(self, name, *more):
        found = self.run_troupe("export", self.path(name), self.path(f"{name}-exported"), *more, "--json")
        self.assertEqual(found.returncode, 0, found.stderr + found.stdout)
        return json.loads(found.stdout)

    def test_two_stages_have_the_losses_and_evaluations_of_one_and_the_export_is_served(self):
        self.write_base("qwen3-untied")
        one, curve = self.trained("one", {"stages": 1, "microbatches": 2})
        two, other = self.trained("two", {"stages": 2, "microbatches": 2})
        self.assertEqual((one["stages_count"], two["stages_count"]), (1, 2))
        self.assertEqual(one["losses"], two["losses"])
        self.assertLess(one["losses"][-1], one["losses"][0])
        for column in ("learning_rate", "held_out_loss"):
            self.assertEqual([x[column] or "" for x in curve], [x[column] or "" for x in other])
        self.assertEqual([bool(x["held_out_loss"]) for x in curve], [False, True] * 3)
        held = [float(x["held_out_loss"]) for x in curve if x["held_out_loss"]]
        with open(os.path.join(self.path("one"), "best.json")) as file:
            best = json.load(file)
        self.assertEqual(best, {"iteration": 2 * (held.index(min(held)) + 1), "loss": min(held)})
        self.assertEqual(one["evaluations"], [{"iteration": 2 * k, "loss": x} for k, x in enumerate(held, 1)])
        self.assertEqual([one["best"], one["base"]["folder"], one["adapter"]], [best, self.base, None])
        self.assertEqual(self.export("two", "--best")["iteration"], best["iteration"])
        tokens = list(b"What is 2 and 3? And so on, until the end.")
        model, layers = read_folder(self.path("two-exported"))
        value = logits_of(layers, torch.tensor([tokens]), torch.arange(len(tokens), dtype=torch.int32)[None])[0]
        found = engine_logits(self.path("two-exported"), tokens)
        self.assertLess(relative(value, found), 1e-4)
        self.assertGreater(relative(found, engine_logits(self.base, tokens)), 1e-3)

    def test_a_training_from_random_weights_is_exported_though_its_base_has_none(self):
        self.write_base("gpt2")
        for name in os.listdir(self.base):
            if name.endswith(".safetensors"):
                os.unlink(os.path.join(self.base, name))
        self.trained("random", {"stages": 2, "microbatches": 2}, initial="random", frozen_layers=1)
        self.export("random")
        tokens = list(b"What is 2 and 3?")
        model, layers = read_folder(self.path("random-exported"))
        value = logits_of(layers, torch.tensor([tokens]), torch.arange(len(tokens), dtype=torch.int32)[None])[0]
        self.assertLess(relative(value, engine_logits(self.path("random-exported"), tokens)), 1e-4)
        found = self.run_troupe("check", self.write("adapter.yaml", json.dumps(self.job("beside", {"stages": 1}, initial="random",
                                                                                       adapter={}))))
        self.assertEqual(found.returncode, 2)
        self.assertIn("found with adapter", found.stdout + found.stderr)

    def test_two_pipelines_evaluate_each_held_out_row_once(self):
        self.write_base("gpt2")
        _, one = self.trained("one", {"stages": 1, "microbatches": 2})  # the last held-out micro-batch is short
        cluster = self.write("two-nodes.yaml", json.dumps({"name": "two", "datacenters": [{"name": "here", "nodes": [
            {"name": x, "gpu": "T4", "gpus": 1, "intra": "pcie3", "inter": "eth10"} for x in "ab"]}]}))
        done, two = self.trained("two", {"stages": 1, "data_parallel": 2, "microbatches": 2}, "--cluster", cluster)
        self.assertEqual(done["data_parallel"], 2)
        for a, b in zip(one, two):
            self.assertAlmostEqual(float(a["loss"]) / float(b["loss"]), 1, delta=1e-5)
            if a["held_out_loss"]:
                self.assertAlmostEqual(float(a["held_out_loss"]) / float(b["held_out_loss"]), 1, delta=1e-5)

    def test_a_training_ends_at_the_evaluation_that_reaches_its_target_and_so_does_it_when_it_is_resumed(self):
        self.write_base("llama")
        pipeline = {"stages": 2, "microbatches": 2}
        whole, _ = self.trained("whole", pipeline)
        target = whole["evaluations"][1]["loss"]
        for _ in range(2):  # the second time nothing is left to do
            found, curve = self.trained("early", pipeline, target_loss=target)
            self.assertEqual([float(x["loss"]) for x in curve], whole["losses"][:4])
            self.assertEqual(float(curve[-1]["held_out_loss"]), target)
            self.assertTrue(os.path.exists(os.path.join(self.path("early"), "iteration-000004", "model.safetensors.index.json")))
            self.assertFalse(os.path.exists(os.path.join(self.path("early"), "iteration-000006")))

    def test_an_adapter_in_two_stages_leaves_the_base_and_is_exported_for_peft(self):
        self.write_base("llama-two-heads")
        found, curve = self.trained("low", {"stages": 2, "microbatches": 2}, adapter={"rank": 4, "alpha": 8}, learning_rate=3e-2)
        self.assertLess(float(curve[-1]["loss"]), float(curve[0]["loss"]))
        self.assertEqual(found["adapter"], {"rank": 4, "alpha": 8, "targets": "all", "rslora": False})
        done = self.export("low")
        self.assertEqual([done[k] for k in ("kind", "rank", "base")], ["adapter", 4, self.base])
        tokens = list(b"What is 1 and 1?")
        adapted = engine_logits(self.base, tokens, "--adapter", self.path("low-exported"))
        self.assertGreater(relative(adapted, engine_logits(self.base, tokens)), 1e-3)

    def test_a_training_that_was_killed_ends_as_one_that_was_not(self):
        self.write_base("llama")
        pipeline = {"stages": 2, "microbatches": 2}
        _, whole = self.trained("whole", pipeline, checkpoint_every=3)
        job = self.job("killed", pipeline, checkpoint_every=3, evaluate_every=2)
        file = self.write("killed.yaml", json.dumps(job))
        with open(self.path("said"), "w") as said:
            process = subprocess.Popen([program, "train", file, "--world", "local", "--state", self.path("state-first")],
                                       env=environment(TROUPE_PYTHON=sys.executable), stdout=said, stderr=said, cwd=self.folder,
                                       start_new_session=True)
            index = os.path.join(self.path("killed"), "iteration-000002", "model.safetensors.index.json")
            until(lambda: os.path.exists(index) or process.poll() is not None, 120)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with open(os.path.join(self.path("killed"), "curve.csv")) as curve:
            self.assertLess(len(list(csv.DictReader(curve))), 6)
        _, again = self.trained("killed", pipeline, checkpoint_every=3)
        for column in ("iteration", "loss", "gradient_norm", "learning_rate", "held_out_loss"):
            self.assertEqual([x[column] or "" for x in again], [x[column] or "" for x in whole], column)
        both = []
        for name in ("whole", "killed"):
            self.export(name)
            for file in (os.path.join(self.path(f"{name}-exported"), "model.safetensors"),
                         os.path.join(self.path(name), "best.json")):
                with open(file, "rb") as found:
                    both.append(found.read())
        self.assertEqual(both[:2], both[2:])

    def test_keys_that_exclude_each_other_are_refused_with_what_was_found(self):
        self.write_base("gpt2")
        for train, sentence in (({"program": "x.py"}, "program: found with base"),
                                ({"eval_data": self.data}, "held_out: found with eval_data"),
                                ({"adapter": {"targets": "q_proj"}}, "found target 'q_proj'"),
                                ({"adapter": {"rank": 2}, "frozen_layers": 1}, "frozen_layers: found with adapter"),
                                ({"base": self.path("none")}, "found no folder"),
                                ({"frozen_layers": 9}, "expected at most 3")):
            file = self.write("bad.yaml", json.dumps(self.job("bad", {"stages": 1}, **train)))
            found = self.run_troupe("check", file)
            self.assertEqual(found.returncode, 2, train)
            self.assertIn(sentence, found.stderr + found.stdout)
