"""The settings of PyTorch in a worker, for it and for what computes the same without a node."""

import ctypes
import os
import sys

from troupe.errors import Missing

_trim_threshold, _mmap_threshold = -1, -3  # of mallopt()


def configure_torch(threads, deterministic):
    """Precondition: torch is not imported yet, or was imported with these numbers of threads in the environment. A BLAS
    reads them when it is loaded, ignores torch.set_num_threads(), and rounds otherwise with more threads."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    keep_freed_memory()
    torch = import_torch()
    torch.set_num_threads(threads)
    if deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def import_torch():
    """The module. Raises Missing where this interpreter has none that can be loaded."""
    try:
        import torch
    except (ImportError, OSError) as error:  # the latter: of a library that it loads
        raise Missing(f"found no PyTorch for {sys.executable} ({error}), expected Debian's package python3-torch, or an "
                      "interpreter with PyTorch as --python, `python` of the job or TROUPE_PYTHON") from error
    return torch


def keep_freed_memory():
    """A micro-batch's tensors find the memory of the last one's. By default glibc gives freed megabytes back to the
    kernel, and each page of them costs a fault again. No effect with another C library."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option in _trim_threshold, _mmap_threshold:
            mallopt(option, 1 << 30)
