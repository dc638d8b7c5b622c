"""Micro-batches: which samples of the program's data set, read and put together one micro-batch ahead."""

from concurrent.futures import ThreadPoolExecutor, wait

import torch

from troupe import order
from troupe.errors import Error, LayerError, ProgramError
from troupe.layers.randomness import Generators, Watch, mentions_draws
from troupe.seeds import seed_of


class Samples:
    """Where in the order of samples an iteration begins, and what a checkpoint says of the data."""

    def __init__(self, seed, global_batch):
        self._seed, self._global_batch, self.length = seed, global_batch, None
        self._iteration = self._position = 0

    def position(self, iteration):
        """Samples of the iterations before, since the training's first one."""
        return self._position + (iteration - self._iteration) * self._global_batch

    def about(self, iteration):
        """For a checkpoint. The length is known to the stages that read data."""
        return {"seed": self._seed, "global_batch": self._global_batch, "length": self.length,
                "samples": self.position(iteration)}

    def resume(self, checkpoint):
        """Goes on behind the samples that a checkpoint's training has read. Raises ProgramError if the order would be
        another one. A text if the global batch is."""
        found = {k: v for about in checkpoint.abouts(self.length) for k, v in (about.get("data") or {}).items()
                 if v is not None}
        where = checkpoint.directory
        if found.get("seed", self._seed) != self._seed:
            raise ProgramError(f"{where}: found a checkpoint of a training with seed {found['seed']}, expected {self._seed}: "
                               "samples would come in another order, and some of them twice")
        if self.length is not None and found.get("length", self.length) != self.length:
            raise ProgramError(f"{where}: found a checkpoint of a training with {found['length']} samples in its data set, "
                               f"expected {self.length}: they would come in another order, and some of them twice")
        self._iteration = checkpoint.iteration
        self._position = found.get("samples", self._iteration * self._global_batch)
        batch = found.get("global_batch", self._global_batch)
        if batch == self._global_batch:
            return []
        return [f"the global batch was {batch} samples, and is {self._global_batch}: it goes on at sample {self._position} of "
                "the order"]


class Batches:
    """Micro-batches, by their numbers over all pipelines. Sample k of iteration n is the same for any number of pipelines,
    micro-batches and rows (troupe.order). Held-out micro-batches are dealt to the pipelines in turn, in the order of the samples,
    each of which is in one of them: the last may be short. One thread reads ahead, in the order of one pipeline: a data set's __getitem__ is a
    function of the sample's number alone, and draws no numbers from torch's generator. If the file's functions draw others,
    or its collate() draws any, no thread reads: the generators are seeded for each micro-batch."""

    def __init__(self, program, *, seed, rows, microbatches, share=None, turn=(0, 1), split="train", samples=None,
                 generators=None):
        """share: (the pipeline's first micro-batch, that of all). turn: (the pipeline, number of pipelines)."""
        self._program, self._seed, self._rows = program, seed, rows
        self._microbatches, self._split, self._turn = microbatches, split, turn
        self._first, all_microbatches = share or (0, microbatches)
        self._global_batch = all_microbatches * rows
        self._samples = samples or Samples(seed, self._global_batch)
        self._generators = generators or Generators(own=program.own_generators)
        self._draws = None if program.collate is None or not mentions_draws(program.collate) else True
        self.dataset = program.dataset(split)
        if split == "train":
            self._samples.length = len(self.dataset)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="troupe-data")
        self._ahead = (None, None)

    def indices(self, iteration, number=None):
        """The samples of a micro-batch; of the global batch without one."""
        count = self._global_batch if number is None else self._rows
        first = 0 if number is None else number * self._rows
        length = len(self.dataset)
        if self._split == "train":
            return order.samples(self._samples.position(iteration) + first, count, length, self._seed)
        if first >= length:
            raise ValueError(f"found held-out micro-batch {number}, expected one of {length} samples")
        return list(range(first, min(first + self._rows, length)))

    def _following(self, iteration, number):
        if self._split == "train":
            own = number + 1 != self._first + self._microbatches
            return (iteration, number + 1) if own else (iteration + 1, self._first)
        pipeline, pipelines = self._turn
        after = number + pipelines
        return 0, after if after * self._rows < len(self.dataset) else pipeline

    def get(self, iteration, number):
        """(input, target) of a micro-batch, in the host's memory."""
        key = iteration if self._split == "train" else 0, number
        known, future = self._ahead
        if future is not None and known != key:
            wait([future])  # a data set may not be made for two threads at once
        if self._draws is not False:
            found = self._seeded(*key)
        else:
            found = future.result() if known == key else self._read(*key)
        if self._draws:
            return found
        following = self._following(*key)
        self._ahead = following, self._thread.submit(self._read, *following)
        return found

    def first_time(self):
        """The first micro-batch, as if no other had been read."""
        return self._seeded(0, self._first)

    # The first micro-batch shows whether anything draws.
    def _seeded(self, iteration, number):
        self._generators.seed(seed_of(self._seed, iteration, number, "collate"))
        watch = Watch(self._program.own_generators) if self._draws is None else None
        found = self._read(iteration, number)
        if watch is not None:
            self._draws = bool(watch.drawn())
        return found

    def _read(self, iteration, number):
        samples = [self._sample(i) for i in self.indices(iteration, number)]
        try:
            if self._program.collate is None:
                return tuple(collated(x) for x in zip(*samples))
            found = self._program.collate(samples)
        except Error:
            raise
        except Exception as error:
            raise LayerError(None, "dataset" if self._program.collate is None else "collate", error) from error
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ProgramError(f"{self._program.file}: collate() returned {type(found).__name__}, expected a pair (input, "
                               "target)")
        return tuple(found)

    def _sample(self, index):
        sample = sample_of(self.dataset, index)
        if self._program.collate is None and (not isinstance(sample, (tuple, list)) or len(sample) != 2):
            raise ProgramError(f"{self._program.file}: sample {index} of the data set is a {type(sample).__name__}, expected "
                               "a pair (input, target)")
        return sample


def sample_of(dataset, index):
    try:
        return dataset[index]
    except Error:
        raise
    except Exception as error:
        raise LayerError(None, f"dataset: sample {index}", error) from error


def check_pure(dataset, file):
    """Refuses data whose samples are no function of their numbers: the first and the last stage read each for itself."""
    before = torch.get_rng_state()
    one = sample_of(dataset, 0)
    if not torch.equal(before, torch.get_rng_state()):
        raise ProgramError(f"{file}: sample 0 draws from torch's generator, expected one of its own, as "
                           "torch.Generator().manual_seed(i)")
    if not equal(one, sample_of(dataset, 0)):
        raise ProgramError(f"{file}: sample 0 was another when it was read again, expected a function of its number")


def equal(a, b):
    """Whether two samples, or micro-batches, are the same as far as anybody can tell."""
    if isinstance(a, (tuple, list)):
        return isinstance(b, (tuple, list)) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if hasattr(a, "__array__"):
        return _equal_arrays(a, b)
    return a == b if isinstance(a, (bool, int, float, str, bytes)) else True


def _equal_arrays(a, b):
    import numpy

    a, b = numpy.asarray(a), numpy.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and (a.dtype.hasobject or a.tobytes() == b.tobytes())


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
