import collections
import subprocess
import sys
import unittest

from programs import Programs
from support import environment, has_torch, without_torch
from troupe.seeds import seed_of

if has_torch:
    import torch
    from torch import nn

    import troupe
    from troupe import errors
    from troupe.layers.layer import Model, Parameters
    from troupe.layers.model_file import Program
    from troupe.layers.stage import Stage


class Seeds(unittest.TestCase):
    # Trainings go on with these: another version must give the same.
    def test_seeds_are_those_of_every_version(self):
        self.assertEqual(seed_of(1, "init", 0), 10211609190452959983)
        self.assertEqual(seed_of(1, 2, 3, 4), 2319475572399523498)


class Import(unittest.TestCase):
    def test_importing_the_package_imports_no_torch(self):
        code = "import sys, troupe, troupe.seeds, troupe.errors; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode, 0)


LayerSpec = collections.namedtuple("LayerSpec", "typename module_args module_kwargs")


class TiedLayerSpec:
    def __init__(self, key, typename, *args, forward_fn=None, tied_weight_attr="weight", **kwargs):
        self.typename, self.module_args, self.module_kwargs = typename, args, kwargs
        self.key, self.forward_fn, self.tied_weight_attr = key, forward_fn, tied_weight_attr


if has_torch:
    class Named(nn.Module):
        def __init__(self, size, name="weight"):
            super().__init__()
            self.inner = nn.Module()
            self.inner.register_parameter(name, nn.Parameter(torch.randn(size)))

        def forward(self, x):
            return x


@unittest.skipUnless(has_torch, without_torch)
class Lists(Programs):
    def refuses(self, words, layers, first=0, count=None):
        def build():
            model = Model(layers, "its.py")
            model.build(first, len(model) - first if count is None else count, 1)

        self.refused(words, build)

    def test_initial_weights_do_not_depend_on_the_cut(self):
        layers = [troupe.Layer(nn.Linear, 3, 3) for _ in range(4)]
        whole, second = Model(layers, "").build(0, 4, 7), Model(layers, "").build(1, 2, 7)
        for a, b in zip(whole[1:], second):
            self.assertTrue(torch.equal(a.module.weight, b.module.weight))
        self.assertFalse(torch.equal(whole[0].module.weight, whole[1].module.weight))
        self.assertFalse(torch.equal(whole[0].module.weight, Model(layers, "").build(0, 1, 8)[0].module.weight))

    def test_a_sequential_gives_its_layers_and_a_list_keeps_sequentials(self):
        self.assertEqual(len(Model(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "")), 2)
        self.assertEqual(len(Model([nn.Sequential(nn.Linear(2, 2), nn.ReLU())], "")), 1)

    def test_a_tied_parameter_has_one_value_and_two_gradients(self):
        layers = [troupe.Layer(nn.Embedding, 5, 3, tied="t"), nn.Tanh(), troupe.Layer(nn.Linear, 3, 5, bias=False, tied="t")]
        model = Model(layers, "")
        self.assertEqual((model.tied, model.glued), (("weight", "weight"), []))
        first, _, last = (x.module for x in model.build(0, 3, 1))
        self.assertIsNot(first.weight, last.weight)
        self.assertEqual(first.weight.data_ptr(), last.weight.data_ptr())
        (alone,) = model.build(2, 1, 1)
        self.assertTrue(torch.equal(alone.module.weight, first.weight))

    def test_deepspeed_s_layers_are_taken_as_they_are(self):
        layers = [TiedLayerSpec("t", nn.Embedding, 5, embedding_dim=3), LayerSpec(nn.Linear, (3, 3), {"bias": False}),
                  TiedLayerSpec("t", nn.Embedding, 5, 3, forward_fn=lambda m, x: x @ m.weight.T)]
        model = Model(layers, "")
        self.assertEqual([x.name for x in model.layers], ["Embedding", "Linear", "Embedding"])
        self.assertEqual(model.tied, ("weight", "weight"))
        built = model.build(0, 3, 1)
        self.assertIsNone(built[1].module.bias)
        self.assertEqual(built[2](torch.ones(2, 3)).shape, (2, 5))

    def test_layers_of_other_groups_are_glued(self):
        pair = ("g", "inner.weight")
        layers = [nn.Tanh(), troupe.Layer(Named, 2, tied=pair), nn.Tanh(), troupe.Layer(Named, 2, tied=pair), nn.Tanh()]
        model = Model(layers, "its.py")
        self.assertEqual((model.tied, model.glued), (None, [(1, 3, "g")]))
        self.assertEqual([model.can_cut(i) for i in range(5)], [True, True, False, False, True])
        built = model.build(1, 3, 1)
        self.assertIs(built[0].module.inner.weight, built[2].module.inner.weight)
        self.refuses("found a cut before layer 2, expected none among layers 1 to 3, which share 'g'", layers, 2)
        self.refuses("found a cut before layer 3", layers, 0, 3)

    def test_a_parameter_that_the_file_has_shared_itself_is_found(self):
        first, last = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        last.weight = first.weight
        self.assertEqual(Model([first, last], "").tied, ("weight", "weight"))
        self.assertEqual(Model([first, last, nn.Tanh()], "").glued, [(0, 1, "0.weight")])

    def test_glued_layers_train_as_one(self):
        from stages import Pipeline, unequal

        program = self.program(self.model, """
def model():
    one = nn.Linear(4, 4)
    return [one, nn.Tanh(), one, nn.Linear(4, 3)]""")
        whole = Pipeline(program)
        losses = [whole.iteration(n) for n in range(3)]
        for cuts, recompute in (((), "layers"), ((3,), "stage"), ((3,), "layers")):
            pipeline = Pipeline(program, cuts, recompute)
            self.assertEqual([pipeline.iteration(n) for n in range(3)], losses)
            self.assertEqual(unequal(pipeline.weights(), whole.weights()), "")

    def test_lists_that_cannot_be_built_are_refused(self):
        linear = troupe.Layer(nn.Linear, 2, 2)
        self.refuses("its.py: model() returned NoneType None, expected a list of layers", None)
        self.refuses("model() returned list [], expected", [])
        self.refuses("layer 1: found int 3, expected a troupe.Layer", [linear, 3])
        self.refuses("layer 1 (dict): found dict {}, expected an nn.Module", [linear, troupe.Layer(dict)])
        self.refuses("found layers 1 to 2, expected some of 0 to 1", [linear, linear], 1, 2)
        self.refuses("layer 1 (Linear) is tied, but has no parameter 'proj'",
                     [troupe.Layer(nn.Linear, 2, 2, tied="t"), troupe.Layer(nn.Linear, 2, 2, tied=("t", "proj"))])
        self.refuses("layer 1: found 'weight' of [3, 2] torch.float32, expected [2, 2] torch.float32",
                     [troupe.Layer(nn.Linear, 2, 2, tied="t"), troupe.Layer(nn.Linear, 2, 3, tied="t")])
        self.refuses("layer 0 ties ['a', 'b'], expected one parameter", [TiedLayerSpec("k", nn.Linear, tied_weight_attr=["a", "b"])])
        self.refused("found Linear", lambda: troupe.Layer(nn.Linear(2, 2)))
        self.refused("found tied=3, expected a text or a pair", lambda: troupe.Layer(nn.Linear, 2, 2, tied=3))

    def test_vectors_do_not_decay(self):
        layer = nn.Linear(2, 2)
        decays, others = troupe.no_decay(Parameters(layer.named_parameters()), 0.3)
        self.assertEqual((decays["weight_decay"], others["weight_decay"]), (0.3, 0.0))
        self.assertIs(decays["params"][0], layer.weight)
        self.assertIs(others["params"][0], layer.bias)


@unittest.skipUnless(has_torch, without_torch)
class Files(Programs):
    def test_each_function_gets_the_arguments_that_it_names(self):
        program = self.program("def optimizer(parameters):", "def optimizer(parameters, rate=1):", """
def model(width): return [nn.Linear(4, width)]
def schedule(optimizer, **more): assert more == {"rate": 0.5, "width": 3}, more""", width=3, rate=0.5)
        self.assertEqual(program.layers(1).layers[0].module.weight.shape, (3, 4))
        self.assertIsNone(program.schedule(None))

    def test_files_that_cannot_be_used_are_refused(self):
        for replaced, by, words in (
                ("def loss", "def lost", "its.py: found no function 'loss', expected loss(output, target)"),
                ("def optimizer(", "optimizer = 3\ndef other(", "found a int for 'optimizer', expected optimizer(parameters)"),
                ("import torch,", "precision = 'fp8'\nimport torch,", "precision: found 'fp8', expected fp32, bf16, fp16"),
                ("import torch,", "clip_norm = -1\nimport torch,", "clip_norm: found -1, expected a number above 0, or None"),
                ("def dataset(split=\"train\"): return Data()", "def dataset(): return iter([])",
                 "dataset() returned list_iterator, expected an object with __len__"),
                ("return 40", "return 0", "dataset('train') has length 0")):
            with self.subTest(words):
                self.refused(words, lambda: self.program(replaced, by).dataset())
        self.refused("found dataset() without split", lambda: self.program(more="\ndef dataset(): return Data()").dataset("held_out"))
        self.refused("found argument 'depth', expected one of model(): width",
                     lambda: self.program(self.model, "def model(width=1): return []", depth=3))
        self.refused("argument 'width': found list, expected a number, a text or a boolean", lambda: self.program(width=[1]))
        self.refused("nothing.py: No such file or directory", lambda: Program("nothing.py"))
        path = self.program().path
        self.refused("expected abc: the file has changed", lambda: Program(path, sha256="abc"))
        self.assertEqual(Program(path, sha256=Program(path).sha256).file, "its.py")
        self.refused("its.py: ZeroDivisionError: division by zero (its.py:12)", lambda: self.program(more="\n1 / 0"), errors.LayerError)
        self.refused("SyntaxError", lambda: self.program(more="\n1 +"), errors.LayerError)

    def test_optimizers_whose_state_cannot_be_saved_by_parameter_are_refused(self):
        for line, words in (
                ("torch.optim.LBFGS(parameters)", "LBFGS.step() needs a closure"),
                ("None", "optimizer() returned NoneType, expected a torch.optim.Optimizer"),
                ("torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1)", "SGD has a parameter that optimizer() was not given"),
                ("Calls(parameters, lr=1)", "Calls keeps a function as 'last' of '0.weight', expected tensors and plain values")):
            def run():
                stage = Stage(self.program("torch.optim.SGD(parameters, lr=0.1, momentum=0.9)", line, """
class Calls(torch.optim.SGD):
    def step(self):
        for g in self.param_groups:
            for p in g["params"]: self.state[p]["last"] = lambda: p"""))
                stage.start()
                stage.update()
                return stage.copy(1)

            with self.subTest(line):
                self.refused(words, run)
        self.refused("ReduceLROnPlateau.step() needs a metric", lambda: Stage(self.program(more="""
def schedule(optimizer): return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)""")).start())

    def test_data_that_cannot_be_put_together_are_refused(self):
        for more, words in (("Data.__getitem__ = lambda self, i: 3", "of the data set is a int, expected a pair (input, target)"),
                            ("Data.__getitem__ = lambda self, i: ({'a': 1}, 2)", "the data set has a dict, expected tensors"),
                            ("def collate(samples): return 1", "collate() returned int, expected a pair")):
            def run():
                stage = Stage(self.program(more="\n" + more))
                stage.start()
                stage.forward(0, 0)

            with self.subTest(words):
                self.refused(words, run)

    def test_losses_that_are_no_scalars_are_refused(self):
        for line, words in (("None", "loss() returned NoneType, expected a floating scalar"),
                            ("output", "loss() returned a tensor of [1, 3] torch.float32"),
                            ("output.argmax()", "loss() returned a tensor of [] torch.int64"),
                            ("(output.sum(), {'a': 3})", "loss() returned values {'a': 3}, expected {name: (sum, weight)}"),
                            ("(output.sum(), {i: (1, 1) for i in range(257)})", "257 values, expected at most 256")):
            def run():
                stage = Stage(self.program(more=f"\ndef loss(output, target): return {line}"))
                stage.start()
                stage.forward(0, 0)

            with self.subTest(line):
                self.refused(words, run)

    def test_held_out_samples_are_read_once_in_their_order_dealt_to_the_pipelines_in_turn(self):
        from troupe.layers.data import Batches

        one = Batches(self.program(), seed=1, rows=3, microbatches=2, split="held_out")
        # Of 40 samples, in each evaluation; the last micro-batch is short.
        self.assertEqual([one.indices(0, 1), one.indices(6, 1), one.indices(0, 13)], [[3, 4, 5], [3, 4, 5], [39]])
        with self.assertRaisesRegex(ValueError, "found held-out micro-batch 14, expected one of 40 samples"):
            one.indices(0, 14)
        from troupe.layers.stage import Stage

        read, two = [], Stage(self.program(), rows=3, microbatches=2, pipelines=2, pipeline=1)
        two.start()
        held_out = two._data("held_out")
        held_out._sample = lambda index, sample=held_out._sample: read.append(index) or sample(index)
        for microbatch in range(2):
            two.forward(0, microbatch, evaluate=True)
        self.assertEqual(read[:6], [3, 4, 5, 9, 10, 11])

    def test_names_of_parameters_may_be_the_file_s(self):
        self.assertEqual(self.program().name_of(3, "w.x"), "3.w.x")
        self.assertEqual(self.program(more="\ndef names(layer, name): return f'h.{layer}.{name}'").name_of(3, "w"), "h.3.w")
