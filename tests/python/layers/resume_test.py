"""What is not a number, and what is another at a resume than it was, is said."""

import contextlib
import math
import unittest
from unittest import mock

from layers.describe_test import run
from layers.state_test import Resumes
from support import has_torch, without_torch

if has_torch:
    import torch

    from stages import Pipeline
    from troupe import errors, order
    from troupe.layers.checkpoint import Checkpoint
    from troupe.layers.stage import Stage

    torch.set_num_threads(1)

sgd = "torch.optim.SGD(parameters, lr=0.1, momentum=0.9)"


@unittest.skipUnless(has_torch, without_torch)
class NotANumber(Resumes):
    def test_a_norm_that_is_not_finite_ends_fp32_and_bf16(self):
        for precision in ("fp32", "bf16"):
            for bad in (math.nan, math.inf):
                with self.subTest(precision=precision, bad=bad):
                    p = Pipeline(self.program(more="\nclip_norm = 1.0"), (2,), precision=precision)
                    p.passes(4)
                    p.stages[0].gradients()[0][0] = bad
                    before = p.weights()
                    norm = sum(x for stage in p.stages for x in stage.squared_norms())
                    for stage in p.stages:
                        self.refused(f"iteration 5: the gradient norm is {bad}, expected a finite number", lambda: stage.update(norm),
                                     errors.NotFinite)
                    self.assertTrue(all(torch.equal(before[k], v) for k, v in p.weights().items()))

    def fp16(self):
        with mock.patch("troupe.layers.stage.autocast", lambda precision, device: contextlib.nullcontext):
            p = Pipeline(self.program(), (2,), precision="fp16", microbatches=1)
        return p

    def skip(self, p, n, times):
        for i in range(n, n + times):
            p.passes(i)
            p.stages[0].gradients()[0][0] = math.inf
            self.assertEqual(p.update(), [False, False])
        p.passes(n + times)
        p.stages[0].gradients()[0][0] = math.inf

    def test_fp16_ends_once_its_scale_has_come_to_1(self):
        p = self.fp16()
        self.skip(p, 0, 16)
        self.refused("iteration 17: the gradient norm is inf though the loss is no longer scaled", p.update, errors.NotFinite)

    def test_fp16_ends_after_20_updates_in_a_row_also_over_a_resume(self):
        p = self.fp16()
        for stage in p.stages:
            stage._scale.value = 2.0 ** 40
        self.skip(p, 0, 10)
        p.update()
        folder, other = self.saved(p, 11), self.fp16()
        for stage in other.stages:
            stage.load(folder)
        self.skip(other, 11, 8)
        self.refused("iteration 20: the gradient norm is inf, and so it was in 20 updates in a row", other.update, errors.NotFinite)

    def test_one_finite_update_begins_the_count_anew(self):
        p = self.fp16()
        for stage in p.stages:
            stage._scale.value = 2.0 ** 60
        self.skip(p, 0, 18)
        p.update()
        p.iteration(19)
        self.skip(p, 20, 18)


@unittest.skipUnless(has_torch, without_torch)
class Changed(Resumes):
    def trained(self, program, iterations=3, **more):
        p = Pipeline(program, (2,), **{"rows": 2, "microbatches": 2, **more})
        for n in range(iterations):
            p.iteration(n)
        return self.saved(p, iterations)

    def test_another_global_batch_goes_on_at_the_next_sample(self):
        program = self.program()
        folder = self.trained(program)
        for cuts in ((), (2,)):
            p = Pipeline(program, cuts, rows=4, microbatches=2)
            notes = {note for stage in p.stages for note in [stage.load(folder), *stage.notes][1:]}
            self.assertEqual(notes, {"the global batch was 4 samples, and is 8: it goes on at sample 12 of the order"})
            self.assertEqual(p.stages[-1]._data("train").indices(3), order.samples(12, 8, 40, 5))
            p.iteration(3)
            later = self.saved(p, 4)
        again = Pipeline(program, rows=1, microbatches=2)
        again.stages[0].load(later)
        self.assertEqual(again.stages[0]._data("train").indices(5), order.samples(22, 2, 40, 5))

    def test_another_seed_or_data_set_is_refused(self):
        program = self.program()
        folder = self.trained(program)
        stage = Stage(program, seed=6, rows=2, microbatches=2)
        stage.start()
        self.refused("found a checkpoint of a training with seed 5, expected 6", lambda: stage.load(folder))
        other = self.program("return 40", "return 41")
        for cuts in ((), (2,)):
            p = Pipeline(other, cuts)
            self.refused("found a checkpoint of a training with 40 samples in its data set, expected 41", lambda: p.stages[-1].load(folder))

    def test_a_middle_stage_that_reads_no_data_loads(self):
        program = self.program()
        folder = self.trained(program)
        p = Pipeline(program, (1, 2), rows=2, microbatches=2)
        self.assertEqual([stage.load(folder) for stage in p.stages], [3, 3, 3])

    def test_options_that_the_file_gives_otherwise_now_are_named_and_the_checkpoint_s_go_on(self):
        schedule = "\ndef schedule(optimizer): return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)"
        folder = self.trained(self.program(more=schedule))
        same = Pipeline(self.program(more=schedule), rows=2, microbatches=2)
        same.stages[0].load(folder)
        self.assertEqual(same.stages[0].notes, [])
        other = Pipeline(self.program(sgd, "torch.optim.SGD(parameters, lr=0.3, momentum=0.8)", more=schedule), rows=2, microbatches=2)
        other.stages[0].load(folder)
        self.assertEqual(sorted(other.stages[0].notes), [
            "lr: the file gives 0.3, and had given 0.1 for the checkpoint, whose 0.05 goes on ('0.weight')",
            "momentum: the file gives 0.8, and had given 0.9 for the checkpoint, whose 0.9 goes on ('0.weight')"])
        self.assertEqual(same.iteration(3), other.iteration(3))
        self.assertEqual(same.iteration(4), other.iteration(4))

    def test_a_checkpoint_has_seed_batch_length_samples_and_arguments(self):
        program = self.program(self.model, "def model(width=8): return [troupe.Layer(nn.Linear, 4, width), nn.Tanh(), troupe.Layer(nn.Linear, width, 3)]", width=8)
        about = Checkpoint(self.trained(program)).abouts()
        self.assertEqual([x["data"]["length"] for x in about], [40, 40])
        self.assertEqual({x["data"]["samples"] for x in about}, {12})
        self.assertEqual([about[0]["data"][k] for k in ("seed", "global_batch")], [5, 4])
        self.assertEqual(about[0]["arguments"], {"width": 8})

    def test_checkpoints_without_all_that_are_read_as_before(self):
        import json

        from troupe import safetensors

        program = self.program(more="\ndef schedule(optimizer): return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)")
        folder = self.trained(program)
        expected = Pipeline(program, rows=2, microbatches=2)
        expected.stages[0].load(folder)
        for layer in Checkpoint(folder).layers:
            file, about, _ = Checkpoint(folder).file(layer)
            for key in ("data", "optimizer", "given", "arguments"):
                about.pop(key, None)
            about["numbers"] = {}
            about["schedule"] = {"last_epoch": 3, "_step_count": 4, "_last_lr": [0.05], "base_lrs": [0.1], "step_size": 2, "gamma": 0.5}
            safetensors.write(file.path, {x: file.tensor(x).clone() for x in file.names}, dict(file.metadata, troupe=json.dumps(about)))
        older = Pipeline(program, rows=2, microbatches=2)
        older.stages[0].load(folder)
        self.assertEqual([older.iteration(n) for n in (3, 4)], [expected.iteration(n) for n in (3, 4)])


@unittest.skipUnless(has_torch, without_torch)
class Sentences(Resumes):
    def described(self, *words, **more):
        from troupe.describe import describe

        return describe(self.program(*words, **more).path)

    def test_an_import_that_ends_the_program_is_named_with_its_file_and_line(self):
        for more, words in (("import argparse\np = argparse.ArgumentParser()\np.add_argument('--width', required=True)\np.parse_args()",
                             r"its.py: SystemExit: it ends the program when it is imported, with status 2 \(the following arguments are "
                             r"required: --width\): expected no sys.exit\(\) there, .* \(its.py:15\)"),
                            ("import sys\nsys.exit('no licence')", r"with status 'no licence': .* \(its.py:13\)")):
            with self.subTest(more):
                file = self.write("its.py", self.text + "\n" + more)
                for module in ("troupe.describe", "troupe.plain"):
                    done = run(module, file, "--global-batch", 4) if module == "troupe.plain" else run(module, file)
                    self.assertEqual(done.returncode, 2 if module == "troupe.describe" else 1)
                    self.assertRegex(done.stderr, words)
                    self.assertNotIn("usage:", done.stderr)
        program = self.program(more="\nimport argparse\np = argparse.ArgumentParser()\np.add_argument('--width', default=3)\no = p.parse_args()")
        self.assertEqual(program._module.o.width, 3)
        self.refused("model: SystemExit: it ends the program when it is called, with status 3",
                     lambda: self.program(more="\ndef model(): raise SystemExit(3)").layers(1), errors.LayerError)

    def test_samples_that_only_collate_understands_train(self):
        numpy = """
import numpy
Data.__getitem__ = lambda self, i: (numpy.full(4, i % 5, numpy.uint16), numpy.uint16(i % 3))
def collate(samples): return tuple(torch.from_numpy(numpy.stack(x).astype(k)) for x, k in zip(zip(*samples), (numpy.float32, numpy.int64)))"""
        self.assertEqual(self.described(more=numpy)["refusals"], [])
        self.assertEqual(Pipeline(self.program(more=numpy)).iteration(0), Pipeline(self.program(more=numpy), (1,)).iteration(0))
        words = "Data.__getitem__ = lambda self, i: (numpy.random.randint(0, 9, 4).astype(numpy.uint16), 1)\nimport numpy\ndef collate(s): return 1"
        self.assertIn("sample 0 was another when it was read again", self.described(more="\n" + words)["refusals"][0])

    def test_a_damaged_sample_has_its_number(self):
        damaged = "\nData.__getitem__ = lambda self, i: (_ for _ in ()).throw(OSError('truncated'))"
        self.assertRegex(self.described(more=damaged)["refusals"][0], r"^dataset: sample 0: OSError: truncated \(its.py:\d+\)$")

    def test_an_optimizer_of_some_parameters_trains_and_describe_says_what_stays(self):
        some = "torch.optim.SGD([p for n, p in parameters.named() if n.startswith('2.w')], lr=0.1)"
        found = self.described(sgd, some)
        self.assertEqual(found["refusals"], [])
        self.assertEqual(found["warnings"], ["layer 0 (Linear): optimizer() takes none of its parameters: they stay as they are",
                                             "layer 2 (Linear): optimizer() takes not 2.bias: they stay as they are"])
        losses, weights = [], []
        for cuts in ((), (1,), (2,)):
            p = self.three_and_three(self.program(sgd, some), *cuts)
            losses.append(p.iteration(6))
            weights.append(p.weights())
        self.assertEqual(len(set(losses)), 1)
        self.assertTrue(torch.equal(weights[0]["0.weight"], Pipeline(self.program()).weights()["0.weight"]))
        none = self.described(sgd, "torch.optim.SGD([p for n, p in parameters.named() if n == 'x'], lr=0.1)")
        self.assertIn("optimizer() takes no parameter of any layer", none["refusals"][0])

    def test_schedules_that_want_more_than_a_step_are_refused_by_their_own_name(self):
        more = """
class Cosine:
    def __init__(self, optimizer): pass
    def step(self, epoch, metric=None): pass
def schedule(optimizer): return {}"""
        for made, words in (("Cosine(optimizer)", "Cosine.step() needs 'epoch', expected a schedule whose step() counts"),
                            ("3", "schedule() returned int, expected a schedule with step()"),
                            ("torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)", "ReduceLROnPlateau.step() needs a metric")):
            self.assertIn(words, self.described(more=more.replace("{}", made))["refusals"][0])
        broken = "\nclass Bad:\n    def step(self): return 1 / 0\ndef schedule(optimizer): return Bad()"
        self.assertIn("Bad.step: ZeroDivisionError", self.described(more=broken)["refusals"][0])

    def test_a_loss_with_parameters_of_its_own_deserves_a_warning(self):
        found = self.described(more="""
centre = nn.Parameter(torch.zeros(3))
def loss(output, target): return nn.functional.cross_entropy(output - centre, target)""")
        self.assertEqual(found["warnings"], ["loss() has 1 trainable tensor of its own, which nothing trains or saves: expected "
                                             "parameters in the model's layers alone"])

    def test_an_exception_at_resume_has_its_layer(self):
        program = self.program("nn.Tanh()", "troupe.Layer(Picky)", """
class Picky(nn.Module):
    def forward(self, x): return torch.tanh(x)
    def get_extra_state(self): return 1
    def set_extra_state(self, state): raise KeyError("gone")""")
        p = Pipeline(program)
        folder = self.saved(p, 0)
        error = self.refused("layer 1 (Picky): KeyError: 'gone' (its.py:", lambda: p.stages[0].load(folder), errors.LayerError)
        self.assertEqual(error.layer, 1)


if __name__ == "__main__":
    unittest.main()
