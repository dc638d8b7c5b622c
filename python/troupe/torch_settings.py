"""The settings of PyTorch in a worker, for it and for what computes the same without a node."""

import os


def configure_torch(threads, deterministic):
    """Precondition: torch is not imported yet, or was imported with these numbers of threads in the environment. A BLAS
    reads them when it is loaded, ignores torch.set_num_threads(), and rounds otherwise with more threads."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    import torch

    torch.set_num_threads(threads)
    if deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
