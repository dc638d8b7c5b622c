"""Micro-batches: which samples of the program's data set, read and put together one micro-batch ahead."""

from concurrent.futures import ThreadPoolExecutor

import torch

from troupe import order
from troupe.errors import Error, LayerError, ProgramError


class Batches:
    """Micro-batches of one pipeline. Sample k of iteration n is the same for any number of pipelines, micro-batches and
    rows (troupe.order); held-out samples are read in their order. One thread reads ahead: a data set's __getitem__ is a
    function of the sample's number alone, and draws no numbers from torch's generator."""

    def __init__(self, program, *, seed, rows, microbatches, pipelines=1, pipeline=0, split="train"):
        self._program, self._seed, self._rows = program, seed, rows
        self._microbatches, self._split = microbatches, split
        self._first = pipeline * microbatches
        self._global_batch = pipelines * microbatches * rows
        self.dataset = program.dataset(split)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="troupe-data")
        self._ahead = (None, None)

    def indices(self, iteration, microbatch=None):
        """The samples of a micro-batch; of the global batch without one."""
        count = self._global_batch if microbatch is None else self._rows
        first = 0 if microbatch is None else (self._first + microbatch) * self._rows
        position, length = iteration * self._global_batch + first, len(self.dataset)
        if self._split == "train":
            return order.samples(position, count, length, self._seed)
        return [p % length for p in range(position, position + count)]

    def get(self, iteration, microbatch):
        """(input, target) of a micro-batch, in the host's memory."""
        key = iteration, microbatch
        known, future = self._ahead
        found = future.result() if known == key else self._read(*key)
        following = (iteration, microbatch + 1) if microbatch + 1 < self._microbatches else (iteration + 1, 0)
        self._ahead = following, self._thread.submit(self._read, *following)
        return found

    def _read(self, iteration, microbatch):
        try:
            samples = [self._sample(i) for i in self.indices(iteration, microbatch)]
            if self._program.collate is None:
                return tuple(collated(x) for x in zip(*samples))
            found = self._program.collate(samples)
        except Error:
            raise
        except Exception as error:
            raise LayerError(None, "dataset", error) from error
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ProgramError(f"{self._program.file}: collate() returned {type(found).__name__}, expected a pair (input, "
                               "target)")
        return tuple(found)

    def _sample(self, index):
        sample = self.dataset[index]
        if self._program.collate is None and (not isinstance(sample, (tuple, list)) or len(sample) != 2):
            raise ProgramError(f"{self._program.file}: sample {index} of the data set is a {type(sample).__name__}, expected "
                               "a pair (input, target)")
        return sample


def check_pure(dataset, file):
    """Refuses data whose samples are no function of their numbers: the first and the last stage read each for itself."""
    before = torch.get_rng_state()
    one = dataset[0]
    if not torch.equal(before, torch.get_rng_state()):
        raise ProgramError(f"{file}: sample 0 draws from torch's generator, expected one of its own, as "
                           "torch.Generator().manual_seed(i)")
    if not _equal(one, dataset[0]):
        raise ProgramError(f"{file}: sample 0 was another when it was read again, expected a function of its number")


def _equal(a, b):
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, torch.Tensor) or hasattr(a, "__array__"):
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    return a == b if isinstance(a, (bool, int, float, str, bytes)) else True


def collated(values):
    """Tensors stacked, numbers as a tensor, tuples element by element."""
    one = values[0]
    if isinstance(one, torch.Tensor):
        return torch.stack(tuple(values))
    if isinstance(one, (bool, int, float)):
        return torch.tensor(values)
    if isinstance(one, (tuple, list)):
        return tuple(collated(x) for x in zip(*values))
    if hasattr(one, "__array__"):
        return torch.stack([torch.as_tensor(x) for x in values])
    raise ProgramError(f"the data set has a {type(one).__name__}, expected tensors, numbers, arrays or tuples of them: "
                       "give a function collate(samples)")
