"""Sums of gradients among the workers of several pipelines, by torch.distributed."""

import datetime
import os
import secrets

import torch
import torch.distributed as distributed

_limit = datetime.timedelta(seconds=60)
_piece = 25 * (1 << 20) // 4  # numbers: later pieces are on their way while earlier ones are added


class Group:
    """One member of a group. Failures are exceptions, after which nobody has joined."""

    def __init__(self, device):
        self._device = torch.device(device)
        self._store = None

    def make(self, rank, size):
        """The group's id, which the first member makes; other members' are empty."""
        if not distributed.is_available():
            raise RuntimeError("this PyTorch has no torch.distributed")
        if rank != 0:
            return b""
        host = os.environ.get("TROUPE_WORKER_ADDRESS", "127.0.0.1")
        self._store = distributed.TCPStore(host, 0, size, True, _limit, wait_for_workers=False)
        return f"{host}:{self._store.port}:{secrets.token_hex(8)}".encode()

    def join(self, name, rank, size):
        host, port, token = name.decode().rsplit(":", 2)
        store = self._store
        if rank != 0:
            store = distributed.TCPStore(host, int(port), size, False, _limit, wait_for_workers=False)
        self._store = store
        backend = "nccl" if self._device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, store=distributed.PrefixStore(token, store), rank=rank, world_size=size,
                                       timeout=_limit)

    def sum(self, flat):
        """Adds the others' numbers to a flat tensor of the host."""
        sums = []
        for piece in flat.split(_piece):
            there = piece.to(self._device)
            sums.append((piece, there, distributed.all_reduce(there, async_op=True)))
        for piece, there, work in sums:
            work.wait()
            if there.data_ptr() != piece.data_ptr():
                piece.copy_(there)
