"""One answer of all ranks, without waiting for the slowest at each step."""

import sys


def distributed():
    """torch.distributed, if the program has made a group of several ranks with it; torch is never imported here."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return None
    return dist


def _gloo(dist):
    asked = getattr(dist, "is_gloo_available", None)
    return asked() if asked else getattr(dist.distributed_c10d, "_GLOO_AVAILABLE", True)


class Agreement:
    """The maximum of a flag over all ranks: what was set in one call is every rank's answer in the next.

    A group of its own keeps these sums out of the order, and of the stream, of the program's.
    """

    def __init__(self, dist):
        import torch

        self.world = dist.group.WORLD
        self._dist = dist
        self._group = dist.new_group(backend="gloo") if _gloo(dist) else dist.group.WORLD
        device = "cpu" if _gloo(dist) else torch.device("cuda", torch.cuda.current_device())
        self._flag = torch.zeros(1, dtype=torch.int32, device=device)
        self._sum = None

    def next(self, mine):
        if self.last():
            return True
        self._flag.fill_(int(mine))
        self._sum = self._dist.all_reduce(self._flag, self._dist.ReduceOp.MAX, group=self._group, async_op=True)
        return False

    def last(self):
        """Waits for the sum under way, if there is one, so that no process exits in it."""
        if self._sum is None:
            return False
        self._sum.wait()
        self._sum = None
        return int(self._flag) > 0
