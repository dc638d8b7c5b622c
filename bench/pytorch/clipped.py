"""The layers of tests/python/programs/mixed.py, with a limit that their gradients' norm exceeds."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "python", "programs"))

from mixed import dataset, loss, model, optimizer, schedule  # noqa: E402, F401

clip_norm = 0.25
