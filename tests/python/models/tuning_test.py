"""Parts of bench/tuning/bench_tuning.py, and the faults that they find when they are planted."""

import json
import os
import subprocess
import sys
import unittest

from support import environment, has_torch, root, without_torch

bench = os.path.join(root, "bench", "tuning", "bench_tuning.py")
program = os.environ.get("TROUPE_PROGRAM")


def run(part, fault=None, points=10):
    """The names of the limits that a part has missed."""
    more = ["--points", str(points), *(["--plant", fault] if fault else [])]
    found = subprocess.run([sys.executable, bench, part, "--json", *more], env=environment(TROUPE_PROGRAM=program or ""),
                           capture_output=True, text=True)
    assert found.returncode in (0, 1), found.stderr
    missed = json.loads(found.stdout)["missed"]
    assert found.returncode == bool(missed), found.stdout
    return missed


@unittest.skipUnless(has_torch, without_torch)
class Tuning(unittest.TestCase):
    def test_a_batch_is_one_mean_over_its_targets_however_it_is_cut(self):
        self.assertEqual(run("weights"), [])
        self.assertIn("microbatches_8", run("weights", "mean_of_means"))
        self.assertIn("oracle_loss", run("weights", "prompt_tokens"))

    def test_examples_of_a_row_do_not_see_each_other(self):
        self.assertEqual(run("packing"), [])
        self.assertIn("gpt2_loss", run("packing", "attention_across"))

    def test_stages_recomputation_and_schedules_have_the_same_bits_and_are_near_plain_pytorch(self):
        self.assertEqual(run("equal"), [])
        self.assertIn("adapter_oracle_losses", run("equal", "scale_missing"))

    def test_factors_have_the_gradients_that_follow_from_those_of_all_weights(self):
        self.assertEqual(run("adapter_gradients"), [])
        self.assertIn("llama_worst", run("adapter_gradients", "scale_missing"))

    def test_a_resumed_training_has_the_rates_of_one_that_is_not(self):
        self.assertEqual(run("rates"), [])
        self.assertIn("resumed_unequal", run("rates", "rate_off_by_one"))

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_folders_of_adapters_mean_the_same_to_troupe_and_to_code_that_knows_peft_alone(self):
        self.assertEqual(run("adapters"), [])
        self.assertIn("worst", run("adapters", "scale_missing"))
        self.assertIn("missing", run("adapters", "factors_left_out"))
        self.assertIn("written_by_the_oracle", run("adapters", "factor_doubled"))

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_an_adapter_of_the_chat_model_learns_and_is_served_with_the_loss_of_its_evaluation(self):
        self.assertEqual(run("learning"), [])

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_trainings_that_are_killed_and_go_on_in_other_stages_end_as_undisturbed_ones(self):
        self.assertEqual(run("resume", points=5), [])
        self.assertIn("full_loss_unequal", run("resume", "moments_lost", points=2))

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_merged_weights_are_rounded_once_and_the_others_are_the_bases(self):
        self.assertEqual(run("merged"), [])

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_memory_of_a_worker_is_as_predicted_for_an_adapter_and_for_all_weights(self):
        self.assertEqual(run("memory_one"), [])
