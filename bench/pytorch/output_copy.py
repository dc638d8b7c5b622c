"""Prints how fast a worker's outputs are copied into buffers, over memcpy between buffers that are used again.

    output_copy.py MIB ROUNDS
"""

import ctypes
import mmap
import statistics
import sys
import time

import torch
from troupe.worker.tensors import Outgoing


def seconds(what):
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def main(mib, rounds):
    torch.set_num_threads(1)
    size = mib << 20
    tensor = torch.ones(size // 4)
    buffer = mmap.mmap(-1, size + 4096)
    here, there = (ctypes.create_string_buffer(size) for _ in range(2))
    ways = (lambda: Outgoing([tensor]).write(buffer, 0), lambda: ctypes.memmove(there, here, size))
    for way in ways:
        way()  # the pages
    print(statistics.median(seconds(ways[1]) / seconds(ways[0]) for _ in range(rounds)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
