"""Layers' states that a checkpoint has: buffers of any form, extra states, parameters of any type; and what is refused."""

import os
import unittest

from layers.state_test import Resumes
from support import has_torch, without_torch

if has_torch:
    import torch

    import troupe
    from stages import Pipeline
    from troupe import safetensors
    from troupe.describe import describe
    from troupe.layers.model_file import Program

    torch.set_num_threads(1)

buffers = """
class Buffers(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("once", torch.linspace(0.5, 1.5, width).expand(4, -1))
        self.register_buffer("overlaps", torch.arange(10.).unfold(0, 4, 2))
        self.register_buffer("base", torch.ones(6))
        self.register_buffer("view", self.base[2:4])
        self.register_buffer("grows", torch.zeros(0))
        self.register_buffer("none", None)
        self.register_buffer("goes", torch.ones(2))
        self.register_buffer("complex", torch.ones(2, dtype=torch.cfloat))
        self.register_buffer("wide", torch.ones(2, dtype=torch.float64))
        self.calls = 0
    def forward(self, x):
        n = int(self.grows.numel())
        self.grows = torch.cat([self.grows, torch.ones(1)])
        self.none = torch.full((n + 1,), 2.0, dtype=torch.float64) if n else None
        if n == 3: self.goes = None
        if n == 2: self.register_buffer("late", torch.full((2, 2), 3.0))
        self.base.mul_(1.01); self.complex = self.complex * (1 + 0.1j); self.wide = self.wide + 1e-12
        scale = self.once[0] + self.overlaps.mean() + self.view.sum() + n + self.complex.real.sum() + self.wide.sum().float()
        scale = scale + sum(t.sum().float() for t in (self.none, self.goes, getattr(self, "late", None)) if t is not None)
        return torch.tanh(self.linear(x) * scale / 50)
"""

extra = """
class Extra(nn.Module):
    def __init__(self, parameters=True):
        super().__init__()
        self.linear, self.state = nn.Linear(8, 8) if parameters else nn.Identity(), {"calls": 0, "seen": None}
    def get_extra_state(self): return self.state
    def set_extra_state(self, state): self.state = state
    def forward(self, x):
        self.state = {"calls": self.state["calls"] + 1, "seen": x.detach().mean(0)}
        return torch.tanh(self.linear(x)) * (1 + 0.1 * self.state["calls"])
"""


@unittest.skipUnless(has_torch, without_torch)
class Layers(Resumes):
    def with_layer(self, text, more):
        return self.program("nn.Tanh()", f"nn.Tanh(), {text}", more)

    def test_buffers_of_any_form_that_change_shape_come_and_go(self):
        program = self.with_layer("troupe.Layer(Buffers)", buffers)
        for cuts, recompute, then in (((), "none", None), ((2,), "stage", ()), ((1, 3), "layers", (2,))):
            with self.subTest(cuts=cuts):
                resumed = self.three_and_three(program, *cuts, then=then, recompute=recompute)
        layer = next(x for stage in resumed.stages for x in stage.layers if x.name == "Buffers").module
        self.assertIsNone(layer.goes)
        self.assertEqual((layer.once.stride(), len(layer.grows)), ((0, 1), 12))
        self.assertEqual(layer.view.data_ptr(), layer.base[2:].data_ptr())
        self.assertEqual(describe(program.path)["refusals"], [])

    def test_extra_states_are_saved_and_repeated_by_recomputation(self):
        for parameters in (True, False):
            program = self.with_layer(f"troupe.Layer(Extra, {parameters})", extra)
            losses = []
            for cuts, recompute, then in (((), "none", None), ((2,), "stage", ()), ((2, 3), "layers", (1,))):
                with self.subTest(parameters=parameters, cuts=cuts, recompute=recompute):
                    p = self.three_and_three(program, *cuts, then=then, recompute=recompute)
                    losses.append(p.iteration(6))
            self.assertEqual(len(set(losses)), 1)
            self.assertEqual(describe(program.path)["refusals"], [])

    def test_plain_pytorch_loads_an_extra_state(self):
        program = self.with_layer("troupe.Layer(Extra)", extra)
        pipeline = Pipeline(program, rows=2, microbatches=2)
        pipeline.iteration(0)
        module = torch.nn.Sequential(*(x.module if x.module is not None else x.make(*x.args) for x in program.layers(1).layers))
        troupe.load(module, self.saved(pipeline, 1))
        self.assertEqual(module[2].state["calls"], 2)
        self.assertTrue(torch.equal(module[2].state["seen"], pipeline.stages[0].layers[2].module.state["seen"]))

    def test_complex_and_64_bit_parameters_train_as_in_plain_pytorch(self):
        text = """
class Spectral(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.odd, self.weight = nn.Parameter(torch.ones(3)), nn.Parameter(torch.randn(5, dtype=dtype) / 2)
    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8).to(x.dtype) * self.odd.mean()
def optimizer(parameters): return torch.optim.Adam(parameters, lr=0.01)"""
        for dtype in ("cfloat", "cdouble"):
            program = self.with_layer(f"troupe.Layer(Spectral, torch.{dtype})", text)
            self.against_plain(program, 1e-6)
            self.three_and_three(program, 2, then=())
            self.assertEqual(describe(program.path)["refusals"], [])

    def test_64_bit_gradients_stay_64_bits(self):
        program = self.program(self.model, """
def model(): return [troupe.Layer(nn.Linear, 4, 8, dtype=torch.float64), nn.Tanh(), troupe.Layer(nn.Linear, 8, 3, dtype=torch.float64)]
def collate(samples): return torch.stack([x for x, _ in samples]).double(), torch.tensor([y for _, y in samples])""")
        self.against_plain(program, 1e-14)
        for cuts, recompute in (((), "layers"), ((1,), "stage")):
            self.three_and_three(program, *cuts, recompute=recompute)
        self.assertEqual(self.losses(program), self.losses(program, 2))

    def test_64_bit_gradients_are_clipped_and_of_a_tied_parameter_added(self):
        tied = """
class Head(nn.Module):
    def __init__(self): super().__init__(); self.weight = nn.Parameter(torch.empty(8, 4, dtype=torch.float64))
    def forward(self, x): return (x @ self.weight)[:, :3]
clip_norm = 0.1
def model(): return [troupe.Layer(nn.Linear, 4, 8, dtype=torch.float64, tied="t"), nn.Tanh(), troupe.Layer(Head, tied="t")]
def collate(samples): return torch.stack([x for x, _ in samples]).double(), torch.tensor([y for _, y in samples])"""
        program = self.program(more=tied)
        one, two = self.losses(program), self.losses(program, 1)
        self.assertNotEqual(one, self.losses(Program(self.write("its.py", self.text + tied.replace("0.1", "10")))))
        for a, b in zip(one, two):
            self.assertLess(abs(a - b) / a, 1e-6)

    def losses(self, program, *cuts, iterations=4):
        p = Pipeline(program, cuts, rows=2, microbatches=2)
        return [p.iteration(n) for n in range(iterations)]

    def against_plain(self, program, limit):
        from stages import Loop

        loop = Loop(program.path, rows=2, microbatches=2)
        if program.collate is not None:
            loop.dataset = [(x.double(), y) for x, y in (loop.dataset[i] for i in range(40))]
        for n, found in enumerate(self.losses(program, 2)):
            expected = loop.iteration(n)
            self.assertLess(abs(found - expected) / expected, limit)

    def test_what_no_checkpoint_can_have_is_refused_by_name(self):
        for text, words in (
                ('self.register_buffer("b", torch.eye(8).to_sparse())', "its buffer 'b' has layout torch.sparse_coo, expected a dense one"),
                ('self.b = nn.Parameter(torch.eye(8).to_sparse())', "its parameter 'b' has layout torch.sparse_coo"),
                ('self.b = nn.LazyLinear(8)', "its parameter 'b.weight' has no shape before a forward, expected a layer that is not lazy"),
                ('self.register_buffer("b", torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.quint8))', "its buffer 'b' is of torch.quint8"),
                ('self.n = 0', "layer 1 (Bad): its output depends on its attribute 'n', which a forward changes and no checkpoint has"),
                ('self.register_buffer("b", torch.zeros(()), persistent=False)', "layer 1 (Bad): its output is another one when"),
                ('self.get = lambda: 3', "layer 1 (Bad): get_extra_state() has a function, expected tensors and plain values")):
            with self.subTest(text):
                found = describe(self.program("nn.Tanh()", "Bad()", f"""
class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = None
        {text}
    {"get_extra_state = lambda self: self.get" if "get" in text else ""}
    {"set_extra_state = lambda self, state: None" if "get" in text else ""}
    def forward(self, x):
        if self.n is not None: self.n += 1; x = x * self.n
        if "b" in self._buffers: self.b += 1; x = x * self.b
        return x""").path)["refusals"]
                self.assertIn(words, found[0])

    def test_a_counter_that_changes_nothing_deserves_a_warning(self):
        found = describe(self.program("nn.Tanh()", "Counts()", """
class Counts(nn.Module):
    def __init__(self): super().__init__(); self.n, self.last = 0, None
    def forward(self, x):
        self.n += 1
        self.last = x.detach()
        return x * 1""").path)
        self.assertEqual(found["refusals"], [])
        self.assertIn("layer 1 (Counts): its attribute 'n' changes in a forward and is in no checkpoint", found["warnings"][0])

    def test_a_buffer_of_another_shape_than_the_file_s_own_is_still_refused(self):
        program = self.with_layer("troupe.Layer(Buffers)", buffers)
        pipeline = Pipeline(program, rows=2, microbatches=2)
        pipeline.iteration(0)
        folder = self.saved(pipeline, 1)
        other = Program(self.write("other.py", self.text.replace("nn.Tanh()", "nn.Tanh(), troupe.Layer(Buffers)") +
                                   buffers.replace("torch.ones(6)", "torch.ones(7)")))
        self.refused("found 'buffer/2.base' of [6] float32, expected [7] float32", lambda: Pipeline(other).stages[0].load(folder))
        other = Program(self.write("other.py", self.text.replace("nn.Tanh()", "nn.Tanh(), troupe.Layer(Buffers)") +
                                   buffers.replace('"grows", torch.zeros(0)', '"grows", torch.zeros(1)')))
        self.refused("'buffer/2.grows' was [[0], 'float32'] when it was made, expected [[1], 'float32']",
                     lambda: Pipeline(other).stages[0].load(folder))

    def test_two_public_names_that_are_one_are_refused(self):
        found = describe(self.program(more="\ndef names(layer, name): return name").path)["refusals"]
        self.assertIn("its.py: names() calls '0.weight' and '2.weight' both 'weight', expected a name of its own for each", found[0])

    def test_complex_tensors_are_in_the_files_as_the_format_has_them(self):
        path = self.path("x.safetensors")
        tensors = {"a": torch.tensor([1 + 2j]).conj(), "b": torch.tensor([1 - 2j], dtype=torch.cdouble), "c": torch.ones(1).expand(3)}
        safetensors.write(path, tensors, {})
        file = safetensors.SafeTensors(path)
        self.assertEqual([str(file.dtype(x)) for x in "abc"], ["torch.complex64", "torch.complex128", "torch.float32"])
        for name, t in tensors.items():
            self.assertTrue(torch.equal(file.tensor(name), t.resolve_conj()))
        self.assertEqual(os.path.getsize(path) % 4, 0)


if __name__ == "__main__":
    unittest.main()
