"""Parts of bench/tuning/bench_tuning.py, and the faults that they find when they are planted."""

import json
import os
import subprocess
import sys
import unittest

from support import environment, has_torch, root, without_torch

bench = os.path.join(root, "bench", "tuning", "bench_tuning.py")
program, slow = os.environ.get("TROUPE_PROGRAM"), os.environ.get("TROUPE_SLOW")


def run(part, *more):
    """The names of the limits that a part, or its short form, has missed."""
    more = (*more, *(() if slow else ("--short",)))
    found = subprocess.run([sys.executable, bench, part, "--json", *more], env=environment(TROUPE_PROGRAM=program or ""),
                           capture_output=True, text=True)
    assert found.returncode in (0, 1), found.stderr
    missed = json.loads(found.stdout)["missed"]
    assert found.returncode == bool(missed), found.stdout
    return missed


@unittest.skipUnless(has_torch, without_torch)
class Tuning(unittest.TestCase):
    def finds(self, part, fault, limit):
        self.assertIn(limit, run(part, "--plant", fault, "--until", limit))

    def test_a_batch_is_one_mean_over_its_targets_however_it_is_cut(self):
        self.assertEqual(run("weights"), [])
        self.finds("weights", "mean_of_means", "microbatches_8")
        self.finds("weights", "prompt_tokens", "oracle_loss")

    def test_examples_of_a_row_do_not_see_each_other(self):
        self.assertEqual(run("packing"), [])
        self.finds("packing", "attention_across", "gpt2_loss")

    def test_stages_recomputation_and_schedules_have_the_same_bits_and_are_near_plain_pytorch(self):
        self.assertEqual(run("equal"), [])
        self.finds("equal", "scale_missing", "adapter_oracle_losses")

    def test_factors_have_the_gradients_that_follow_from_those_of_all_weights(self):
        self.assertEqual(run("adapter_gradients"), [])
        self.finds("adapter_gradients", "scale_missing", "llama_worst")

    def test_a_resumed_training_has_the_rates_of_one_that_is_not(self):
        self.assertEqual(run("rates"), [])
        self.finds("rates", "rate_off_by_one", "resumed_unequal")

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_folders_of_adapters_mean_the_same_to_troupe_and_to_code_that_knows_peft_alone(self):
        self.assertEqual(run("adapters"), [])
        self.finds("adapters", "scale_missing", "worst")
        self.finds("adapters", "factors_left_out", "missing")
        self.finds("adapters", "factor_doubled", "written_by_the_oracle")

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_an_adapter_of_the_chat_model_learns_and_is_served_with_the_loss_of_its_evaluation(self):
        self.assertEqual(run("learning"), [])

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_trainings_that_are_killed_and_go_on_in_other_stages_end_as_undisturbed_ones(self):
        self.assertEqual(run("resume"), [])
        if slow:
            self.finds("resume", "moments_lost", "full_loss_unequal")

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_merged_weights_are_rounded_once_and_the_others_are_the_bases(self):
        self.assertEqual(run("merged"), [])

    @unittest.skipIf(program is None or not slow, "needs TROUPE_PROGRAM and TROUPE_SLOW")
    def test_memory_of_a_worker_is_as_predicted_for_an_adapter_and_for_all_weights(self):
        self.assertEqual(run("memory_one"), [])
