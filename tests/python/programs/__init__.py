"""Programs of the tests: files, and one of a few lines."""

from support import Scratch


class Programs(Scratch):
    """Each test's program is these lines, with some of them replaced."""

    text = """
import torch, troupe
from torch import nn
def model(): return [troupe.Layer(nn.Linear, 4, 8), nn.Tanh(), troupe.Layer(nn.Linear, 8, 3)]
def loss(output, target): return nn.functional.cross_entropy(output, target)
class Data:
    def __len__(self): return 40
    def __getitem__(self, i): return torch.tensor([i % 5, i % 3, i % 7, 1.0]), i % 3
def dataset(split="train"): return Data()
def optimizer(parameters): return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
"""

    def program(self, replaced="", by="", more="", **arguments):
        self.assertIn(replaced, self.text)
        from troupe.layers.model_file import Program

        return Program(self.write("its.py", self.text.replace(replaced, by) + more), arguments)

    model = "def model(): return [troupe.Layer(nn.Linear, 4, 8), nn.Tanh(), troupe.Layer(nn.Linear, 8, 3)]"

    def refused(self, words, call, kind=None):
        from troupe import errors

        with self.assertRaises(kind or errors.ProgramError) as caught:
            call()
        self.assertIn(words, str(caught.exception))
        return caught.exception
