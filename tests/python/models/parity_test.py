"""The package's own layers of a model folder against the inference engine, which other tests compare with plain PyTorch
(tests/gpu/inference/reference.py). $TROUPE_PROGRAM is the program; without it or PyTorch nothing is tested."""

import tempfile
import unittest
from unittest import mock

from support import has_torch, without_torch

if has_torch:
    import torch
    from troupe import safetensors
    from troupe.errors import ProgramError
    from troupe.models import attention, blocks, rope
    from troupe.models.folder import read_folder
    from models.folders import configs, engine_logits, program, write_folder

    tokens = torch.randint(96, (1, 90), generator=torch.Generator().manual_seed(5))
    places = torch.arange(90, dtype=torch.int32)[None]


def logits_of(layers, tokens, positions):
    with torch.no_grad():
        value = tokens, positions
        for layer in layers:
            value = layer(value)
    return value


def relative(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


@unittest.skipUnless(has_torch, without_torch)
class Parity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if program is None:
            raise unittest.SkipTest("needs TROUPE_PROGRAM")
        cls.folders, cls.expected = {}, {}
        for name in configs:
            folder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(folder.cleanup)
            cls.folders[name] = write_folder(folder.name, name)
            cls.expected[name] = engine_logits(folder.name, tokens[0].tolist())

    def difference(self, name):
        model, layers = read_folder(self.folders[name])
        return relative(logits_of(layers, tokens, places)[0], self.expected[name])

    def test_logits_are_those_of_the_inference_engine(self):
        worst = {name: self.difference(name) for name in configs}
        self.assertGreaterEqual(len(worst), 18)
        self.assertLess(max(worst.values()), 1e-4, worst)

    def test_norms_of_heads_that_are_left_out_are_found(self):
        def without(norm, x):
            return x if norm.weight.numel() == 24 else kept(norm, x)

        kept = blocks.RmsNorm.forward
        with mock.patch.object(blocks.RmsNorm, "forward", without):
            self.assertGreater(self.difference("qwen3"), 1e-2)

    def test_halves_of_heads_that_are_swapped_are_found(self):
        def swapped(x, cosines, sines):
            return turned(x, cosines, -sines)

        def neighbours(x, cosines, sines):
            pair = turned(torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1), cosines, sines).chunk(2, dim=-1)
            return torch.stack(pair, dim=-1).flatten(-2)

        turned = rope.rotate
        for wrong in (swapped, neighbours):
            with mock.patch.object(rope, "rotate", wrong):
                for name in ("llama", "mistral", "qwen2", "qwen3"):
                    self.assertGreater(self.difference(name), 1e-2, (wrong.__name__, name))


@unittest.skipUnless(has_torch, without_torch)
class Segments(unittest.TestCase):
    """Rows with several segments: each is computed as if it were alone."""

    def alone_and_packed(self, name, positions=None):
        with tempfile.TemporaryDirectory() as folder:
            _, layers = read_folder(write_folder(folder, name))
        lengths = (30, 7, 1, 40, 12)
        apart = [torch.arange(n, dtype=torch.int32) for n in lengths]
        packed = logits_of(layers, tokens, torch.cat(apart)[None] if positions is None else positions)
        parts = zip(tokens.split(lengths, dim=1), apart)
        alone = torch.cat([logits_of(layers, t, p[None]) for t, p in parts], dim=1)
        return relative(packed, alone)

    def test_a_segment_of_a_row_has_the_logits_that_it_has_alone(self):
        for name in ("gpt2", "mistral-window", "qwen3"):
            self.assertLess(self.alone_and_packed(name), 1e-6, name)

    def test_segments_that_see_each_other_are_found(self):
        for name in ("gpt2", "mistral-window", "qwen3"):
            with mock.patch.object(blocks, "attend", lambda q, k, v, _, window=0: attention.attend(q, k, v, places, window)):
                self.assertGreater(self.alone_and_packed(name), 1e-2, name)

    def test_learned_positions_that_go_on_are_found(self):
        with mock.patch.object(blocks, "attend", lambda q, k, v, _, window=0: attention.attend(q, k, v, cut, window)):
            cut = torch.cat([torch.arange(n) for n in (30, 7, 1, 40, 12)])[None]
            self.assertGreater(self.alone_and_packed("gpt2", places), 1e-3)


@unittest.skipUnless(has_torch, without_torch)
class Folders(unittest.TestCase):
    def test_tensors_that_are_missing_left_over_or_of_another_shape_are_refused(self):
        for change, text in (
                (lambda t: t.pop("model.norm.weight"), "has no tensor 'model.norm.weight'"),
                (lambda t: t.update(more=torch.zeros(3)), "has a tensor 'more', which a model with this config.json does not have"),
                (lambda t: t.update({"model.norm.weight": torch.ones(63)}), "found shape [63], expected [64]"),
                (lambda t: t.update({"model.norm.weight": torch.ones(64, dtype=torch.int32)}), "values of type int32")):
            with tempfile.TemporaryDirectory() as folder:
                file = write_folder(folder, "qwen3") + "/model.safetensors"
                found = safetensors.SafeTensors(file)
                tensors = {name: found.tensor(name).clone() for name in found.names}
                change(tensors)
                safetensors.write(file, tensors, {})
                with self.assertRaises(ProgramError) as caught:
                    read_folder(folder)
                self.assertIn(text, str(caught.exception))

    def test_names_of_parameters_are_the_folder_s(self):
        for name in ("gpt2", "gpt2-untied", "qwen3", "qwen3-untied", "llama-linear"):
            with tempfile.TemporaryDirectory() as folder:
                model, layers = read_folder(write_folder(folder, name))
                found = {blocks.name_of(model, i, n) for i, x in enumerate(layers) for n, _ in x.named_parameters()}
                stored = safetensors.SafeTensors(folder + "/model.safetensors").names
                self.assertEqual(found, {n[len("transformer."):] if n.startswith("transformer.") else n for n in stored})
