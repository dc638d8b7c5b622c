import contextlib
import math
import os
import unittest
import warnings
from types import SimpleNamespace
from unittest import mock

from programs import Programs
from support import has_torch, here, root, without_torch

if has_torch:
    import torch

    from stages import SEED, Loop, Pipeline, unequal
    from troupe import errors, order
    from troupe.worker import protocol
    from troupe.layers.model_file import Program
    from troupe.layers.stage import Stage
    from troupe.worker.__main__ import Worker, WorkerStage

    torch.set_num_threads(1)

mixed, gpt = os.path.join(here, "programs/mixed.py"), os.path.join(root, "examples/pytorch/gpt.py")
image = os.path.join(root, "examples/pytorch/image.py")
small_gpt = {"layers": 3, "hidden": 16, "heads": 2, "sequence": 8}
ITERATIONS = 6


def trained(program, *cuts, iterations=ITERATIONS, **more):
    pipeline = Pipeline(program, cuts, **more)
    losses = [pipeline.iteration(n) for n in range(iterations)]
    return losses, pipeline.weights(), pipeline.states()


@unittest.skipUnless(has_torch, without_torch)
class EqualBits(unittest.TestCase):
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

    def test_every_cut_of_a_tied_and_clipped_model_gives_the_same_bits(self):
        program = Program(gpt, small_gpt)
        self.product(program, trained(program), [(), (2,), (1, 4)])

    def test_a_tied_sum_may_come_after_the_norms(self):
        for on_host in (True, False):  # gradients are the hosts' memory, or have a copy there
            with self.subTest(on_host=on_host), mock.patch("troupe.layers.gradients._on_host", return_value=on_host):
                program = Program(gpt, small_gpt)
                self.assertEqual(unequal(trained(program, 2, late=True), trained(program, 2)), "")

    def test_a_tied_model_is_that_of_plain_pytorch(self):
        loop = Loop(gpt, tied=("weight", "weight"), clip=1.0, arguments=small_gpt)
        pipeline = Pipeline(Program(gpt, small_gpt), (2,))
        for n in range(ITERATIONS):
            expected = loop.iteration(n)
            self.assertLess(abs(pipeline.iteration(n) - expected) / expected, 1e-6)
        self.assertNotEqual(loop.norm, 0)
        found, weights = pipeline.weights(), loop.weights()
        self.assertEqual(set(found), set(weights))
        difference = sum(float((found[x] - weights[x]).double().square().sum()) for x in weights)
        self.assertLess(math.sqrt(difference / sum(float(w.double().square().sum()) for w in weights.values())), 1e-6)

    def test_a_convolutional_model_is_that_of_a_plain_loop(self):
        loop = Loop(image)
        losses = [loop.iteration(n) for n in range(2)]
        for cut, recompute in (((), "none"), ((2,), "stage"), ((3, 5), "layers")):
            found = trained(Program(image), *cut, iterations=2, recompute=recompute)
            self.assertEqual(unequal(found, (losses, loop.weights(), loop.states())), "")

    def test_a_parameter_s_gradient_has_its_layout(self):
        stage = Stage(Program(image), 3, 1)
        stage.layers[0].module.to(memory_format=torch.channels_last)
        stage.start()
        weight = stage.layers[0].module.body[0].weight
        self.assertEqual(weight.grad.stride(), weight.stride())
        for p in stage.layers[0].module.parameters():
            p.grad.copy_(p.detach())
        self.assertTrue(torch.equal(stage.gradients()[0], stage.weights()[0]))
        self.assertAlmostEqual(stage.squared_norms()[0], float(stage.weights()[0].double().square().sum()), places=6)

    def test_two_pipelines_draw_the_same_data_masks_and_weights(self):
        def both(cuts):
            pipelines = [Pipeline(program, cuts, microbatches=2, pipelines=2, pipeline=p) for p in (0, 1)]
            losses = []
            for n in range(3):
                losses.append(sum(sum(p.passes(n)) for p in pipelines) / 4)
                Pipeline.exchange(pipelines)
                self.assertEqual([p.update() for p in pipelines], [[True] * (1 + len(cuts))] * 2)
            return losses, pipelines[0].weights(), pipelines[1].weights()

        program = Program(gpt, small_gpt)
        one, two = both(()), both((1, 3))
        self.assertEqual(unequal(one, two), "")
        self.assertEqual(unequal(one[1], one[2]), "")
        alone = trained(program, iterations=3)[0]
        self.assertEqual(one[0][0], alone[0])
        self.assertLess(abs(one[0][2] - alone[2]) / alone[2], 1e-5)

    def test_pipelines_of_unequal_shares_are_one_pipeline_of_all_micro_batches(self):
        # A pipeline of three and one of one: ((m0 + m1) + m2) + m3 are the additions of one pipeline of four. (Those of a tied
        # parameter are not: each pipeline adds its two gradients before.)
        def parameters(weights):  # a pipeline's buffers are its own
            return {name: t for name, t in weights.items() if "running" not in name and "num_batches" not in name}

        def apart(program, cuts):
            pipelines = [Pipeline(program, cuts, microbatches=m, pipelines=2, pipeline=p, share=(first, 4))
                         for p, (first, m) in enumerate(((0, 3), (3, 1)))]
            losses = []
            for n in range(3):
                losses.append(sum(sum(p.passes(n)) for p in pipelines) / 4)
                Pipeline.exchange(pipelines)
                for p in pipelines:
                    p.update()
            return losses, pipelines[0].weights(), pipelines[1].weights()

        untied = Program(image)
        for cuts in ((), (2,)):
            losses, first, second = apart(untied, cuts)
            alone = trained(untied, iterations=3)
            self.assertEqual(unequal((losses, parameters(first)), (alone[0], parameters(alone[1]))), "")
            self.assertEqual(unequal(parameters(first), parameters(second)), "")
        tied = Program(gpt, small_gpt)
        self.assertEqual(apart(tied, ())[0][0], trained(tied, iterations=1)[0][0])

    def test_gradients_of_another_device_are_exchanged_by_the_host(self):
        program = Program(gpt, small_gpt)
        expected = trained(program, 2, iterations=3)
        with mock.patch("troupe.layers.gradients._on_host", lambda device: False):
            pipelines = [Pipeline(program, (2,)), Pipeline(program)]
            self.assertIsNot(pipelines[0].stages[0]._gradients.flats[0], pipelines[0].stages[0].gradients()[0])
            losses = [[p.iteration(n) for n in range(3)] for p in pipelines]
            self.assertEqual(losses, [expected[0]] * 2)
            alone = Pipeline(program)
            alone.passes(0)
            alone.update()  # without gradients()
        self.assertEqual(unequal(alone.weights(), trained(program, iterations=1)[1]), "")

    def test_bf16_gives_the_same_bits_for_every_cut(self):
        program = Program(gpt, small_gpt)
        one = trained(program, iterations=2, precision="bf16")
        self.assertNotEqual(one[0], trained(program, iterations=2)[0])
        for recompute in ("none", "stage", "layers"):
            self.assertEqual(unequal(trained(program, 1, 3, iterations=2, precision="bf16", recompute=recompute), one), "")


@unittest.skipUnless(has_torch, without_torch)
class Operations(Programs):
    def test_an_in_place_first_layer_does_not_change_the_stage_s_input(self):
        program = self.program(self.model, "def model(): return [nn.Linear(4, 8), nn.Identity(), nn.ReLU(inplace=True), nn.Linear(8, 3)]")
        for recompute in ("none", "stage", "layers"):
            for first in (1, 2):  # behind a layer that returns its input, too
                stage = Stage(program, first, recompute=recompute, rows=4)
                stage.start()
                given = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
                before = given.detach().clone()
                for n in range(2):
                    stage.forward(n, 0, (given,), keep=False)
                    found = stage.backward(n, 0)
                    self.assertTrue(torch.equal(given, before))
                    self.assertTrue(torch.equal(found[0] != 0, before > 0))

    def test_a_layer_that_is_in_place_in_training_alone_may_be_evaluated_before(self):
        program = self.program(self.model, "def model(): return [nn.Linear(4, 8), nn.Dropout(0.5, inplace=True), nn.Linear(8, 3)]")
        stage = Stage(program, 1, rows=4)
        stage.start()
        given = torch.ones(4, 8).requires_grad_()
        stage.forward(0, 0, (given,), evaluate=True)
        stage.forward(0, 0, (given,))
        self.assertEqual(set(stage.backward(0, 0)[0].sign().flatten().tolist()) - {0.0, 1.0, -1.0}, set())
        self.assertTrue(torch.equal(given, torch.ones(4, 8)))

    def test_a_layer_that_begins_to_change_its_input_is_named(self):
        program = self.program(self.model, """
class Late(nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return x.detach().mul_(2) if self.calls > 1 else x * 2
def model(): return [nn.Linear(4, 8), Late(), nn.Linear(8, 3)]""")
        stage = Stage(program, 1, rows=4, microbatches=2)
        stage.start()
        given = torch.ones(4, 8).requires_grad_()
        stage.forward(0, 0, (given,))
        self.refused("layer 1 (Late) has changed its input in place", lambda: stage.forward(0, 1, (given,)))

    def test_a_stage_without_gradients_says_so_and_answers_with_nothing(self):
        program = self.program(self.model, """
def model():
    first = nn.Linear(4, 8)
    first.requires_grad_(False)
    return [first, nn.Tanh(), nn.Linear(8, 3)]""")
        one, two = Pipeline(program, (2,)), Pipeline(program)
        first = one.stages[0]
        self.assertFalse(first.has_gradients)
        self.assertEqual(first.own_parameters, 0)
        self.assertFalse(first.forward(0, 0).tensors[0].requires_grad)
        self.assertEqual(first.backward(0, 0, ()), ())
        before = one.weights()
        for n in range(3):
            self.assertEqual(one.iteration(n), two.iteration(n))
        self.assertEqual(unequal(one.weights(), two.weights()), "")
        self.assertTrue(torch.equal(before["0.weight"], one.weights()["0.weight"]))
        self.assertFalse(torch.equal(before["2.weight"], one.weights()["2.weight"]))

    def test_an_evaluation_changes_nothing(self):
        text = """
class Rolling(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("factors", torch.tensor([1.0, 2.0]))
    def forward(self, x):
        if not self.training: return x.clone()
        self.factors = self.factors.roll(1)
        return x * self.factors[0]
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
    def forward(self, x):
        self.calls += 1
        return x
def model(): return [nn.Linear(4, 8), nn.BatchNorm1d(8), Counting(), Rolling(), nn.Dropout(0.5), nn.Linear(8, 3)]"""
        program = self.program(self.model, text)
        plain, evaluated = Pipeline(program, (2,)), Pipeline(program, (2,))
        for n in range(3):
            expected = plain.iteration(n)
            out = None
            for stage in evaluated.stages:
                modes = [m.training for x in stage.layers for m in x.module.modules()]
                out = stage.forward(n, 0, out and out.tensors, evaluate=True)
                self.assertEqual(modes, [m.training for x in stage.layers for m in x.module.modules()])
            self.assertEqual(evaluated.iteration(n), expected)
        self.assertEqual(unequal(plain.weights(), evaluated.weights()), "")

        first = evaluated.stages[0].forward(0, 0, evaluate=True)
        found = evaluated.stages[1].forward(0, 0, first.tensors, evaluate=True).loss
        whole = torch.nn.Sequential(*(x.module for stage in evaluated.stages for x in stage.layers)).eval()
        data = program.dataset()
        x, y = (torch.stack([torch.as_tensor(data[i][k]) for i in range(3)]) for k in (0, 1))
        self.assertEqual(found, float(torch.nn.functional.cross_entropy(whole(x), y)))

    def test_a_stage_forgets_an_iteration_under_way(self):
        program = self.program(self.model, """
def model(): return [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)]""")
        plain, reset = (Pipeline(program, (2,), pipelines=2) for _ in range(2))
        for n in range(3):
            expected = plain.iteration(n)
            first, last = reset.stages
            for m in range(2):  # of the second no backward
                out = first.forward(n, m)
                last.forward(n, m, out.tensors)
                if m == 0:
                    first.backward(n, m, last.backward(n, m))
            self.assertTrue(first.moved_buffers())
            self.assertNotEqual(float(first.gradients()[0].abs().sum()), 0)
            for stage in reset.stages:
                stage.reset()
            self.assertEqual(reset.iteration(n), expected)
        self.assertEqual(unequal(plain.weights(), reset.weights()), "")
        self.assertEqual(unequal(plain.states(), reset.states()), "")

    def test_a_stage_computes_another_pipeline_s_micro_batches(self):
        program = self.program(self.model, "def model(): return [nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)]")
        first, second = (Pipeline(program, microbatches=2, pipelines=2, pipeline=p) for p in (0, 1))
        expected = [[*p.passes(0), p.stages[0].gradients()[0].clone()] for p in (first, second)]
        stage = Pipeline(program, microbatches=2, pipelines=2).stages[0]
        found = []
        for numbers in ((0, 1), (2, 3)):
            losses = []
            for number in numbers:
                losses.append(stage.forward(0, number, number=number).loss)
                stage.backward(0, number)
            found.append([*losses, stage.gradients()[0].clone()])
            stage.zero_gradients()
        self.assertEqual(unequal(found, expected), "")
        self.assertNotEqual(expected[0][0], expected[1][0])

    def test_an_evaluation_before_a_recompute_changes_nothing(self):
        program = self.program(self.model, """
class Evaluated(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("times", torch.zeros(()))
    def forward(self, x):
        if not self.training: self.times += 1
        return x * (1 + self.times)
def model(): return [nn.Linear(4, 8), Evaluated(), nn.Linear(8, 3)]""")
        found = []
        for evaluates in (False, True):
            stage = Stage(program, recompute="stage", rows=3)
            stage.start()
            stage.forward(0, 0, keep=False)
            if evaluates:
                stage.forward(0, 0, evaluate=True)
            stage.recompute(0, 0)
            stage.backward(0, 0)
            found.append(stage.gradients()[0].clone())
        self.assertTrue(torch.equal(*found))

    def test_weights_make_the_mean_over_the_global_batch(self):
        more = """
def loss(output, target):
    each = nn.functional.cross_entropy(output, target, reduction="none") * (target + 1)
    return each.sum(), {"hits": ((output.argmax(1) == target).sum(), len(target))}
def weights(indices): return [i % 3 + 1 for i in indices]"""
        program = self.program(more=more)
        one, two = Pipeline(program, (1,), rows=3, microbatches=4), Pipeline(program, rows=12, microbatches=1)
        plain = torch.nn.Sequential(*(x.module for x in two.stages[0].layers))
        out = two.stages[0].forward(0, 0)
        two.stages[0].backward(0, 0)
        own, data, numbers = two.stages[0].gradients()[0], program.dataset(), order.samples(0, 12, 40, SEED)
        x, y = (torch.stack([torch.as_tensor(data[i][k]) for i in numbers]) for k in (0, 1))
        each = torch.nn.functional.cross_entropy(plain(x), y, reduction="none")
        mean = (each * (y + 1)).sum() / (y + 1).sum()
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(mean, list(plain.parameters()))])
        self.assertAlmostEqual(out.loss, mean.item(), places=6)
        self.assertTrue(torch.allclose(own, expected, rtol=1e-5, atol=1e-7))
        self.assertEqual(out.values["hits"][1], 12)
        self.assertLessEqual(out.values["hits"][0], 12)
        two.stages[0].update()
        self.assertAlmostEqual(one.iteration(0), out.loss, places=6)
        for name, w in one.weights().items():
            self.assertTrue(torch.allclose(w, two.weights()[name], rtol=1e-5, atol=1e-7), name)

    def test_parameters_of_16_bits_have_gradients_of_32(self):
        program = self.program(self.model, """
def model(): return [nn.Linear(4, 8).to(torch.bfloat16), nn.Linear(8, 3)]
def collate(samples):
    return torch.stack([x for x, _ in samples]).bfloat16(), torch.tensor([y for _, y in samples])""")
        program_text = self.path("its.py")
        with open(program_text) as file:
            text = file.read()
        with open(program_text, "w") as file:
            file.write(text.replace("nn.Linear(8, 3)]", "Widen(), nn.Linear(8, 3)]") + """
class Widen(nn.Module):
    def forward(self, x): return x.float()""")
        program = Program(program_text)
        one, two = trained(program, iterations=3), trained(program, 1, iterations=3)
        self.assertEqual(unequal(one, two), "")
        stage = Stage(program)
        stage.start()
        stage.forward(0, 0)
        stage.backward(0, 0)
        own, _ = stage.gradients()
        self.assertEqual(own.dtype, torch.float32)
        self.assertGreater(float(own[:32].abs().sum()), 0)
        before = stage.layers[0].module.weight.clone()
        stage.update(scale=1000)
        self.assertFalse(torch.equal(before, stage.layers[0].module.weight))

    def test_fp16_scales_the_loss_and_skips_what_is_not_finite(self):
        program = self.program()
        with mock.patch("troupe.layers.stage.autocast", lambda precision, device: contextlib.nullcontext):
            scaled = [Pipeline(program, cut, precision="fp16") for cut in ((), (2,))]
        plain = Pipeline(program)
        for n in range(3):
            expected = plain.iteration(n)
            for p in scaled:
                self.assertAlmostEqual(p.iteration(n), expected, places=6)
        p = scaled[1]
        before = p.weights()
        p.passes(3)
        p.stages[0].gradients()[0][0] = math.inf
        self.assertEqual(p.update(), [False, False])
        self.assertEqual(unequal(before, p.weights()), "")
        self.assertEqual(float(p.stages[0].gradients()[0].abs().sum()), 0)
        for stage in p.stages:
            self.assertEqual(stage._scale.value, 32768)
            self.assertTrue(stage.needs_norm)
        if not cpu_has_fp16():
            self.refused("precision: found fp16", lambda: Stage(program, precision="fp16"))

    def test_the_norm_that_a_worker_reports_has_no_scale_of_the_loss_and_is_0_if_it_skips(self):
        def reported(precision, factor=1.0):
            with mock.patch("troupe.layers.stage.autocast", lambda precision, device: contextlib.nullcontext):
                stage = Stage(self.program(), microbatches=2, precision=precision)
            stage.start()
            worker = Worker(None, None)
            worker._stages = [WorkerStage(stage)]
            for m in range(2):
                stage.forward(0, m)
                stage.backward(0, m)
            stage.gradients()[0].mul_(factor)
            norm = sum(stage.squared_norms())
            return worker._update(SimpleNamespace(stage=0, flags=protocol.WITH_NORM, squared_norm=norm), b"")

        plain, scaled = reported("fp32"), reported("fp16")
        self.assertGreater(plain["squared_norm"], 0)
        self.assertAlmostEqual(scaled["squared_norm"] / plain["squared_norm"], 1, places=5)
        self.assertEqual((plain["flags"], scaled["flags"]), (0, 0))
        skipped = reported("fp16", math.inf)
        self.assertEqual((skipped["squared_norm"], skipped["flags"]), (0.0, protocol.SKIPPED))

    def test_values_have_names_that_are_columns(self):
        for name in ("a,b", "loss", "", "new\nline", "n" * 65):
            text = f"\ndef loss(output, target): return output.sum(), {{{name!r}: (1, 1)}}"
            stage = Stage(self.program(more=text))
            stage.start()
            self.refused("a value named", lambda: stage.forward(0, 0))
        text = "\ndef loss(output, target): return output.sum(), {'top 1/held-out_x.y': (1, 1)}"
        stage = Stage(self.program(more=text))
        stage.start()
        self.assertEqual(stage.forward(0, 0).values, {"top 1/held-out_x.y": (1.0, 1.0)})

    def test_clipping_is_that_of_plain_pytorch_and_equal_for_every_cut(self):
        program = self.program(more="\nclip_norm = 0.3")
        loop, whole = Loop(program.path, clip=0.3), Pipeline(program)
        for n in range(ITERATIONS):
            self.assertAlmostEqual(whole.iteration(n), loop.iteration(n), places=6)
            self.assertGreater(loop.norm, 0.3)
        for name, w in whole.weights().items():
            self.assertTrue(torch.allclose(w, loop.weights()[name], rtol=1e-6, atol=1e-7), name)
        for cut in ((1,), (2,), (1, 2)):
            self.assertEqual(unequal(trained(program, *cut)[1], whole.weights()), "")

    def test_gradients_are_dense_at_every_boundary(self):
        program = self.program(more="""
class Probe(torch.autograd.Function):
    found = []
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g):
        Probe.found.append(g.is_contiguous())
        return g
class Probed(nn.Module):
    def forward(self, x): return Probe.apply(x)
class Sum(nn.Module):
    def forward(self, x): return x.sum(1)
def model(): return [nn.Linear(4, 8), Probed(), Sum()]
def loss(output, target): return output.square().mean()""")
        whole, cut = Stage(program, rows=3), Stage(program, 2, rows=3)
        for stage, given in ((whole, None), (cut, (torch.ones(3, 8).requires_grad_(),))):
            stage.start()
            stage.forward(0, 0, given)
        whole.backward(0, 0)
        (gradient,) = cut.backward(0, 0)
        self.assertTrue(gradient.is_contiguous())
        self.assertEqual(whole.layers[1].module.forward.__globals__["Probe"].found, [True])

    def test_a_loss_that_is_not_finite_ends_the_training(self):
        program = self.program(more="""
def loss(output, target): return output.sum() * float("nan")""")
        stage = Stage(program)
        stage.start()
        self.refused("iteration 7: the loss of micro-batch 0 is nan", lambda: stage.forward(7, 0), errors.NotFinite)

    def test_a_replaced_gradient_is_found(self):
        stage = Stage(self.program())
        stage.start()
        stage.layers[0].module.weight.grad = None
        self.refused("the gradient of '0.weight' was replaced", stage.gradients)

    def test_a_backward_without_a_forward_is_refused(self):
        stage = Stage(self.program())
        stage.start()
        stage.forward(0, 0)
        stage.backward(0, 0)
        self.refused("found no forward of iteration 0, micro-batch 0", lambda: stage.backward(0, 0), ValueError)

    def test_a_parameter_that_a_layer_returns_is_trained_and_keeps_no_hooks(self):
        program = self.program(self.model, """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(4, 8))
    def forward(self, x): return x, self.shift
class Sum(nn.Module):
    def forward(self, given): return given[0] * given[1]
def model(): return [nn.Linear(4, 8), Both(), Sum(), nn.Linear(8, 3)]""")
        whole, cut = (Pipeline(program, cuts, rows=4) for cuts in ((), (2,)))
        self.assertEqual([whole.iteration(n) for n in range(3)], [cut.iteration(n) for n in range(3)])
        shift = cut.stages[0].layers[1].module.shift
        self.assertFalse(torch.equal(shift, torch.ones(4, 8)))
        self.assertFalse(shift._backward_hooks)

    def test_a_norm_too_large_for_32_bits_is_finite(self):
        stage = Stage(self.program())
        buffer = bytearray(4 * stage.own_parameters)
        stage.start(torch.frombuffer(buffer, dtype=torch.float32))
        stage.gradients()
        buffer[:] = torch.full((stage.own_parameters,), 1e25).numpy().tobytes()
        self.assertAlmostEqual(stage.squared_norm() / (stage.own_parameters * 1e50), 1, places=6)

    def test_a_sum_from_outside_is_what_is_applied(self):
        stage = Stage(self.program())
        buffer = bytearray(4 * stage.own_parameters)
        stage.start(torch.frombuffer(buffer, dtype=torch.float32))
        stage.forward(0, 0)
        stage.backward(0, 0)
        self.assertNotEqual(bytes(buffer), bytes(len(buffer)))
        stage.gradients()
        buffer[:] = torch.ones(stage.own_parameters).numpy().tobytes()
        before, _ = stage.weights()
        self.assertEqual(stage.squared_norms(), [40, 0, 27])
        self.assertEqual(stage.squared_norm(), 67)
        stage.update(scale=1)
        self.assertTrue(torch.allclose(before - 0.1, stage.weights()[0], atol=1e-6))
        self.assertEqual(bytes(buffer), bytes(len(buffer)))


def cpu_has_fp16():
    try:
        with warnings.catch_warnings(record=True), torch.autocast("cpu", dtype=torch.float16):
            return torch.mm(torch.ones(1, 1), torch.ones(1, 1)).dtype == torch.float16
    except RuntimeError:
        return False


@unittest.skipUnless(has_torch, without_torch)
class Blame(Programs):
    def test_an_exception_in_a_layer_has_its_number_name_file_and_line(self):
        program = self.program("nn.Tanh()", "Bad()", more="""
class Bad(nn.Module):
    def forward(self, x):
        return x @ x""")
        line = len(self.text.splitlines()) + 4
        stage = Stage(program, rows=3)
        stage.start()
        error = self.refused("layer 1 (Bad): RuntimeError: ", lambda: stage.forward(0, 0), errors.LayerError)
        self.assertTrue(str(error).endswith(f" (its.py:{line})"), str(error))
        self.assertEqual((error.layer, error.layer_name, error.type, error.line), (1, "Bad", "RuntimeError", line))
        self.assertIn("Traceback", error.traceback)
        self.assertLessEqual(len(error.traceback), 16 << 10)
        self.assertFalse(error.out_of_memory)

    def test_an_exception_in_a_backward_is_that_of_its_layer(self):
        program = self.program("nn.Tanh()", "Bad(), nn.Tanh()", more="""
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): raise KeyError("gone")
class Bad(nn.Module):
    def forward(self, x): return Function.apply(x)""")
        for recompute in ("none", "layers"):
            stage = Stage(program, rows=3, recompute=recompute)
            stage.start()
            stage.forward(0, 0)
            self.refused("layer 1 (Bad): KeyError: 'gone' (its.py:", lambda: stage.backward(0, 0), errors.LayerError)

    def test_exceptions_of_the_other_functions_have_their_names(self):
        for more, words in (("def loss(output, target): return output @ target", "loss: RuntimeError"),
                            ("def optimizer(parameters): return 1 / 0", "optimizer: ZeroDivisionError"),
                            ("def dataset(): raise OSError('no file')", "dataset: OSError: no file (its.py:"),
                            ("import json\ndef dataset(): return json.loads('{')", "(its.py:12)"),
                            ("def model(): return [troupe.Layer(nn.Linear, 4)]", "layer 0 (Linear): TypeError"),
                            ("Data.__getitem__ = lambda self, i: 1 / 0", "dataset: sample 12: ZeroDivisionError"),
                            ("def collate(samples): return 1 / 0", "collate: ZeroDivisionError")):
            def run():
                stage = Stage(self.program(more=more), rows=3)
                stage.start()
                stage.forward(0, 0)

            with self.subTest(words):
                self.refused(words, run, errors.LayerError)

    def test_memory_that_is_not_there_is_known(self):
        program = self.program("nn.Tanh()", "Bad()", more="""
class Bad(nn.Module):
    def forward(self, x): return torch.empty(1 << 60)""")
        stage = Stage(program)
        stage.start()
        error = self.refused("layer 1 (Bad)", lambda: stage.forward(0, 0), errors.LayerError)
        self.assertTrue(error.out_of_memory, error.message)


if __name__ == "__main__":
    unittest.main()
