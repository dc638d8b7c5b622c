"""The blocks of docs/pytorch.md: the file of one with padding trains, and a layer reads pretrained weights."""

import os
import re
import unittest

from support import Scratch, has_torch, root, without_torch

if has_torch:
    import torch

    from stages import Pipeline
    from troupe import safetensors
    from troupe.describe import describe
    from troupe.layers.model_file import Program

    torch.set_num_threads(1)


@unittest.skipUnless(has_torch, without_torch)
class Page(Scratch):
    def setUp(self):
        super().setUp()
        with open(os.path.join(root, "docs", "pytorch.md")) as file:
            self.blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(self.blocks), 3)

    def test_the_file_with_padding_weighs_each_token_equally(self):
        path = self.write("padded.py", self.blocks[1])
        self.assertEqual((describe(path)["refusals"], describe(path)["warnings"]), ([], []))
        program = Program(path)
        whole, cut, once = Pipeline(program), Pipeline(program, (2,)), Pipeline(program, rows=12, microbatches=1)
        for n in range(3):
            loss = whole.iteration(n)
            self.assertEqual(loss, cut.iteration(n))
            self.assertAlmostEqual(loss, once.iteration(n), places=5)

    def test_a_layer_reads_pretrained_weights(self):
        values = {"a.weight": torch.randn(3, 2), "a.bias": torch.randn(3)}
        safetensors.write(self.path("given.safetensors"), values, {})
        names = {"torch": torch}
        exec(self.blocks[2], names)
        layer = names["Pretrained"](self.path("given.safetensors"), "a", 2, 3)
        self.assertTrue(torch.equal(layer.weight, values["a.weight"]) and torch.equal(layer.bias, values["a.bias"]))


if __name__ == "__main__":
    unittest.main()
