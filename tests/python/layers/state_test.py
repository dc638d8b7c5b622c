"""What a checkpoint has of a program's state: after it, a training goes on as if it had not ended, to the bit."""

import os
import unittest
import warnings

from programs import Programs
from programs.optimizers import head, optimizers, schedules, sgd
from support import has_torch, root, without_torch

if has_torch:
    import torch

    from stages import Pipeline, unequal
    from troupe.layers import checkpoint
    from troupe.describe import describe
    from troupe.layers.model_file import Program

    torch.set_num_threads(1)

gpt = os.path.join(root, "examples/pytorch/gpt.py")


wide = """
class Wide(nn.Linear):
    def __init__(self, *args): super().__init__(*args, dtype=torch.float64)
    def forward(self, x): return super().forward(x.double())
def model(): return [troupe.Layer(Wide, 4, 8), nn.Tanh(), troupe.Layer(Wide, 8, 3)]
"""


class Resumes(Programs):
    """For tests of trainings that end after some iterations and go on from their checkpoint."""

    def setUp(self):
        super().setUp()
        warnings.simplefilter("ignore")  # schedules' own

    def saved(self, pipeline, iteration):
        folder = checkpoint.folder_of(self.folder, iteration)
        files = [name for stage in pipeline.stages for name in stage.copy(iteration).write(folder)]
        checkpoint.write_index(folder, iteration, files)
        return folder

    def three_and_three(self, program, *cuts, then=None, first=3, **more):
        """then: the cut of the second part, if it is another one."""
        undisturbed = Pipeline(program, cuts, rows=2, microbatches=2, **more)
        for n in range(first):
            undisturbed.iteration(n)
        folder = self.saved(undisturbed, first)
        resumed = Pipeline(program, cuts if then is None else then, rows=2, microbatches=2, **more)
        self.assertEqual({stage.load(folder) for stage in resumed.stages}, {first})
        for n in range(first, first + 3):
            self.assertEqual(resumed.iteration(n), undisturbed.iteration(n))
        self.assertEqual(unequal(resumed.weights(), undisturbed.weights()), "")
        self.assertEqual(unequal(resumed.states(), undisturbed.states()), "")
        return resumed


@unittest.skipUnless(has_torch, without_torch)
class Whole(Resumes):
    def test_a_whole_copy_has_all_that_a_stage_loads_alone_also_its_tied_parameter(self):
        program = Program(gpt, {"layers": 3, "hidden": 16, "heads": 2, "sequence": 8})
        undisturbed, resumed = (Pipeline(program, (2,), rows=2, microbatches=2) for _ in range(2))
        for n in range(3):
            undisturbed.iteration(n)
        for number, (stage, other) in enumerate(zip(undisturbed.stages, resumed.stages)):
            folder = f"{self.folder}/state-{number}"
            found = stage.copy(3, whole=True).write(folder)
            self.assertEqual("layer-00000.safetensors" in found, True)
            other.load(folder)
        for n in range(3, 6):
            self.assertEqual(resumed.iteration(n), undisturbed.iteration(n))
        self.assertEqual(unequal(resumed.weights(), undisturbed.weights()), "")
        self.assertEqual(unequal(resumed.states(), undisturbed.states()), "")


@unittest.skipUnless(has_torch, without_torch)
class Resumed(Resumes):
    def of(self, optimizer, schedule=None, more=""):
        text = f"\ndef schedule(optimizer): return {schedule}" if schedule else ""
        return self.program(sgd, optimizer, head + more + text)

    def test_3_and_3_iterations_equal_6_for_optimizers_as_people_write_them(self):
        self.assertGreaterEqual(len(optimizers) + len(schedules), 30)
        for name, text in optimizers.items():
            program = self.of(text)
            for cuts in ((), (2,)):
                with self.subTest(name, cuts=cuts):
                    self.three_and_three(program, *cuts)

    def test_3_and_3_iterations_equal_6_for_schedules(self):
        for name, text in schedules.items():
            program = self.of(sgd, text)
            for cuts in ((), (2,)):
                with self.subTest(name, cuts=cuts):
                    self.three_and_three(program, *cuts)

    def test_64_bits_and_references_that_no_pickle_has_are_saved_or_made_again(self):
        """NAdam has a number of 32 bits beside states of 64; a cyclic schedule refers weakly to its own function."""
        cyclic = "L.CyclicLR(optimizer, 0.01, 0.1, 2, cycle_momentum=False%s)"
        for text, schedule in (("torch.optim.NAdam(parameters, betas=(0.9, 0.99), lr=0.01)", cyclic % ""),
                               (sgd, cyclic % ", mode='exp_range', gamma=0.9"),
                               (sgd, cyclic % ", scale_fn=lambda x: 0.5 ** x")):
            program = self.of(text, schedule, wide)
            with self.subTest(text, schedule=schedule):
                self.assertEqual(describe(program.path)["refusals"], [])
                resumed = self.three_and_three(program, 2, first=1, then=())
                self.assertEqual({t.dtype for t in resumed.weights().values()}, {torch.float64})

    def test_another_cut_goes_on_with_the_same_bits(self):
        for name in ("Lookahead", "Averaging", "Both", "Schedule-free", "Factored", "Late", "Noisy", "groups"):
            program = self.of(optimizers[name], schedules["Warm"])
            for cuts, then in (((), (2,)), ((2,), ()), ((1, 2), (1,))):
                with self.subTest(name, cuts=cuts, then=then):
                    self.three_and_three(program, *cuts, then=then)

    def test_groups_by_name_have_their_own_rates_in_any_cut(self):
        for schedule in ("StepLR", "CosineAnnealingLR", "OneCycleLR", "LambdaLR", "ExponentialLR"):
            program = self.of("torch.optim.SGD(by_name(parameters), lr=0.1)", schedules[schedule].replace("LR(optimizer, 0.1,", "LR(optimizer, max_lr=0.1,"))
            for cuts, then in (((2,), ()), ((), (2,))):
                with self.subTest(schedule, cuts=cuts, then=then):
                    self.three_and_three(program, *cuts, then=then)

    def test_a_value_of_one_stage_s_parameters_is_refused_by_another_cut(self):
        program = self.of(optimizers["Distance"])
        self.refused("were in one group of Distance".replace("were", "are"), lambda: self.three_and_three(program, 2, then=()))

    def test_all_of_them_are_accepted_by_describe(self):
        for name, text in [*optimizers.items()][::3]:
            with self.subTest(name):
                self.assertEqual(describe(self.of(text).path)["refusals"], [])
        for name, text in [*schedules.items()][::4]:
            with self.subTest(name):
                self.assertEqual(describe(self.of(sgd, text).path)["refusals"], [])


if __name__ == "__main__":
    unittest.main()
