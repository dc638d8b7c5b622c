import subprocess
import sys
import unittest

from support import has_torch, without_torch

FAULTS = """
from troupe.torch_settings import configure_torch
configure_torch(1, False)
import resource
import torch

layers = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range(100)])
given = torch.ones(64, 512, requires_grad=True)

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        layers(given).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(20)
print(faults(40))
"""


@unittest.skipUnless(has_torch, without_torch)
class FreedMemory(unittest.TestCase):
    # Without the settings most processes have thousands; where their memory lies decides.
    def test_a_micro_batch_finds_the_memory_of_the_last_one_without_page_faults(self):
        program = [sys.executable, "-B", "-c", FAULTS]
        faults = [int(subprocess.run(program, check=True, stdout=subprocess.PIPE).stdout) for _ in range(2)]
        self.assertLess(max(faults), 500)
