import os
import unittest

from support import has_torch, here, root, without_torch

if has_torch:
    import torch

    from stages import Loop, Pipeline, unequal
    from troupe.model_file import Program

mixed, gpt = os.path.join(here, "programs/mixed.py"), os.path.join(root, "examples/pytorch/gpt.py")
small_gpt = {"layers": 3, "hidden": 16, "heads": 2, "sequence": 8}
ITERATIONS = 6


def trained(program, *cuts, **more):
    pipeline = Pipeline(program, cuts, **more)
    losses = [pipeline.iteration(n) for n in range(ITERATIONS)]
    return losses, pipeline.weights(), pipeline.states()


@unittest.skipUnless(has_torch, without_torch)
class Equal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)

    def product(self, program, expected, cuts):
        for cut in cuts:
            for recompute in ("none", "stage", "layers"):
                for schedule in ("gpipe", "1f1b"):
                    with self.subTest(cut=cut, recompute=recompute, schedule=schedule):
                        found = trained(program, *cut, recompute=recompute, schedule=schedule)
                        self.assertEqual(unequal(found, expected), "")

    def test_every_cut_recompute_and_order_gives_the_bits_of_a_plain_loop(self):
        loop = Loop(mixed)
        losses = [loop.iteration(n) for n in range(ITERATIONS)]
        self.product(Program(mixed), (losses, loop.weights(), loop.states()), [(), (1,), (2,), (3,), (4,), (5,), (2, 4)])
