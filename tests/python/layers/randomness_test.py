"""Random numbers, and what a forward changes: the same in each run, for any cut, and when a layer is computed again."""

import subprocess
import sys
import unittest

from programs import Programs
from support import environment, has_torch, without_torch

if has_torch:
    import torch

    from stages import Pipeline, unequal
    from troupe.describe import describe

    torch.set_num_threads(1)

layers = """
import random, secrets, numpy
from random import random as drawn
generator = torch.Generator()
class Of(nn.Module):
    def __init__(self, draw): super().__init__(); self.draw, self.linear = draw, nn.Linear(8, 8)
    def forward(self, x): return x + self.linear(x) * self.draw(x)
class Held:
    def __init__(self): self.all = [torch.Generator().manual_seed(1), random.Random(1), numpy.random.default_rng(1), numpy.random.RandomState(1)]
class Own(nn.Module):
    def __init__(self): super().__init__(); self.held, self.linear = Held(), nn.Linear(8, 8)
    def forward(self, x):
        a, b, c, d = self.held.all
        return x + self.linear(x) * (torch.rand((), generator=a) + b.random() + c.random() + d.rand())
"""
draws = {"Python's": "random.random()", "imported by name": "drawn()", "numpy's": "numpy.random.rand()", "torch's": "torch.rand(())",
         "the file's": "torch.rand((), generator=generator)",
         "several": "random.gauss(0, 1) + float(numpy.random.permutation(5)[0]) + torch.rand(())"}


@unittest.skipUnless(has_torch, without_torch)
class Repeated(Programs):
    def same(self, program, iterations=2, kinds=("none", "stage", "layers")):
        """Losses and weights, which are those of any cut, each kind of recomputation, and another run."""
        found = []
        every = (((), "none"), ((), "none"), ((), "stage"), ((2,), "layers"), ((1, 3), "none"), ((1, 3), "stage"))
        for cuts, recompute in (x for x in every if x[1] in kinds):
            p = Pipeline(program, cuts, recompute, rows=2, microbatches=3)
            found.append(([p.iteration(n) for n in range(iterations)], p.weights()))
        for other in found[1:]:
            self.assertEqual(unequal(other, found[0]), "")
        return found[0][0]

    def of(self, draw=None, more=""):
        text = f"troupe.Layer(Of, lambda x: {draw})" if draw else "troupe.Layer(Own)"
        return self.program("nn.Tanh(),", f"nn.Tanh(), {text}, {text}, ", layers + more)

    def test_each_generator_gives_the_same_numbers_again(self):
        for name, draw in draws.items():
            with self.subTest(name):
                program = self.of(draw)
                losses = self.same(program)
                self.assertNotEqual(losses, self.same(self.of(0.5)))
                self.assertEqual(describe(program.path)["refusals"], [])

    def test_generators_that_a_layer_holds_are_seeded_too(self):
        self.same(self.of())
        self.assertEqual(describe(self.of().path)["refusals"], [])

    def test_two_layers_micro_batches_and_iterations_draw_different_numbers(self):
        program = self.of("seen.append(random.random()) or seen[-1]", "seen = []")
        p = Pipeline(program, rows=2, microbatches=2)
        p.iteration(0), p.iteration(1)
        seen = p.stages[0].layers[0].module.forward.__globals__
        self.assertEqual(len(set(program._module.seen)), 8, seen is None)

    def test_loss_weights_and_collate_draw_the_same_numbers_again(self):
        self.same(self.of("1", """
def loss(output, target): return nn.functional.cross_entropy(output, target) * (1 + random.random() + numpy.random.rand())"""))
        self.same(self.of("1", """
def loss(output, target): return nn.functional.cross_entropy(output, target, reduction="sum")
def weights(indices): return [1 + random.random() for _ in indices]"""))
        two = [Pipeline(self.program("nn.Tanh()", "nn.Dropout(0.1)", """
import random
def weights(indices): return [1 + random.random() for _ in indices]"""), rows=2, microbatches=1, pipelines=2, pipeline=i) for i in (0, 1)]
        for p in two:
            p.passes(0)
        self.assertEqual(*(p.stages[0]._loss._total for p in two))
        found = self.same(self.of("1", """
def collate(samples):
    x = torch.stack([x for x, _ in samples])
    return x + torch.randn_like(x) * random.random(), torch.tensor([y for _, y in samples])"""))
        self.assertNotEqual(found, self.same(self.of("1")))

    def test_a_collate_that_draws_does_not_disturb_a_layer(self):
        collate = """
import time
def shaken(x):
    time.sleep(0.001)
    return x + {}
def collate(samples):
    return shaken(torch.stack([x for x, _ in samples])), torch.tensor([y for _, y in samples])"""
        self.same(self.of("random.random()", collate.format("0 * random.random()")))
        self.assertEqual(self.same(self.of("random.random()", collate.format("0 * random.random()"))),
                         self.same(self.of("random.random()", collate.format("0"))))

    def test_an_optimizer_that_draws_is_the_same_for_any_cut_and_a_tied_parameter(self):
        noisy = """
class Noisy(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for g in self.param_groups:
            for p in g["params"]: p.add_(torch.randn_like(p), alpha=1e-3)
def optimizer(parameters): return Noisy(parameters, lr=0.05)
class Head(nn.Module):
    def __init__(self): super().__init__(); self.weight = nn.Parameter(torch.empty(8, 4))
    def forward(self, x): return (x @ self.weight)[:, :3]
def model(): return [troupe.Layer(nn.Linear, 4, 8, tied="t"), nn.Tanh(), troupe.Layer(nn.Linear, 8, 8), nn.Tanh(), troupe.Layer(Head, tied="t")]"""
        self.same(self.program(more=noisy))

    def test_numbers_that_nothing_can_repeat_are_refused_by_name(self):
        for draw in ("secrets.randbelow(1000)", "random.SystemRandom().random()", "numpy.random.default_rng().random()"):
            with self.subTest(draw):
                found = describe(self.of(draw).path)["refusals"]
                self.assertIn("layer 2 (Of): its output is another one when it is computed again", found[0])
        found = describe(self.of("1", "\ndef loss(output, target): return output.sum() * secrets.randbelow(1000)").path)["refusals"]
        self.assertIn("loss() gave another value when it was called again", found[0])
        found = describe(self.of("1", """
calls = []
def collate(samples):
    calls.append(1)
    return torch.stack([x for x, _ in samples]) * len(calls), torch.tensor([y for _, y in samples])""").path)["refusals"]
        self.assertIn("collate() gave another micro-batch", found[0])

    def test_a_backward_that_draws_is_refused_by_name(self):
        found = describe(self.program("nn.Tanh()", "Noise()", """
class Draws(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g + torch.randn_like(g)
class Noise(nn.Module):
    def forward(self, x): return Draws.apply(x)""").path)["refusals"]
        self.assertIn("layer 1 (Noise): its backward draws from torch's generator", found[0])

    def test_a_tied_parameter_that_a_forward_changes_is_refused_and_another_trains(self):
        table = """
class Data:
    def __len__(self): return 40
    def __getitem__(self, i): return torch.tensor([i % 5, i % 3]), torch.tensor([i % 3, i % 2])
class Head(nn.Module):
    def __init__(self): super().__init__(); self.weight = nn.Parameter(torch.randn(8, 4))
    def forward(self, x): return x @ self.weight.T
def loss(output, target): return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
class Clamped(nn.Linear):
    def forward(self, x):
        self.weight.data.clamp_(-0.1, 0.1)
        return super().forward(x)
def model(): return [troupe.Layer(nn.Embedding, 8, 4, max_norm=1.0{0}), troupe.Layer(nn.Linear, 4, 4), troupe.Layer(Clamped, 4, 4), troupe.Layer(Head{0})]"""
        tied = self.program(more=table.replace("{0}", ', tied="t"'))
        words = "layer 0 (Embedding): its forward ha"
        self.assertIn("layer 0 (Embedding): its forward changes '0.weight', of which another layer has a copy", describe(tied.path)["refusals"][0])
        for cuts in ((), (2,)):
            self.refused(words, lambda: Pipeline(tied, cuts).iteration(0))
        within = self.program(more=table.replace("{0}", "").replace("troupe.Layer(nn.Embedding, 8, 4, max_norm=1.0)",
            'troupe.Layer(nn.Embedding, 8, 4, tied="t")').replace("troupe.Layer(Head)", 'troupe.Layer(Pulled, tied="t")') + """
class Pulled(Head):
    def forward(self, x):
        self.weight.data.clamp_(-1000, 1000)  # not yet
        return super().forward(x)""")
        self.assertIn("layer 3 (Pulled): its forward changes '3.weight', of which another layer has a copy", describe(within.path)["refusals"][0])
        untied = self.program(more=table.replace("{0}", ""))
        found = describe(untied.path)
        self.assertEqual(found["refusals"], [])
        self.assertIn("layer 0 (Embedding): its forward changes weight: PyTorch refuses that in `recompute: false`", found["warnings"][0])
        self.same(untied, kinds=("stage", "layers"))

    def test_a_forward_that_changes_its_weights_each_time_is_refused(self):
        found = describe(self.program("nn.Tanh()", "Walks(8, 8)", """
class Walks(nn.Linear):
    def forward(self, x):
        with torch.no_grad(): self.weight.mul_(0.99)
        return super().forward(x)""").path)["refusals"]
        self.assertIn("layer 1 (Walks): its forward changes '1.weight' each time it is computed", found[0])

    def test_programs_that_draw_from_torch_alone_draw_what_they_drew(self):
        program = self.program("nn.Tanh()", "nn.Dropout(0.5)")
        p = Pipeline(program, rows=3, microbatches=2)
        for n, recorded in enumerate(RECORDED):  # another mask changes the second digit; another processor's sums the seventh
            self.assertAlmostEqual(p.iteration(n), recorded, places=5)

    def test_a_stage_seeds_python_s_and_numpy_s_generators_only_for_programs_that_know_them(self):
        for made, known in ((self.program, False), (lambda: self.of("random.random()"), True)):
            program = made()
            code = (f"from troupe.layers.model_file import Program; from troupe.layers.stage import Stage; s = Stage(Program({program.path!r}));"
                    "print(s._generators._python, s._generators._numpy)")
            done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.split(), [str(known)] * 2)


RECORDED = [1.6499687433242798, 1.6543649435043335, 1.465402901172638]  # before other generators were seeded

if __name__ == "__main__":
    unittest.main()
