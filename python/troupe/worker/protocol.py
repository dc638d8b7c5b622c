"""The messages between a node and a worker, a process that computes a stage of a program's layers.

A message is a datagram of a Unix socket (SOCK_SEQPACKET): a header of 64 bytes and a body. docs/worker_protocol.md has
the table of both. Tensors lie in memory that the two processes share: a region is a memfd, a buffer a piece of one.

This module needs the standard library alone.
"""

import collections
import json
import mmap
import os
import socket
import struct

VERSION = 2
MAX_MESSAGE = 128 * 1024

# Messages of a worker.
HELLO, DONE, ERROR = 1, 2, 3
# Messages of a node.
SETUP, START, REGION = 16, 17, 18
FORWARD, RECOMPUTE, BACKWARD, GRADIENTS, NORMS, UPDATE, SAVE, LOAD = range(32, 40)
GROUP, JOIN, SUM, WEIGHTS, PEAK, OUTPUT, RESET, ZERO = range(40, 48)
STOP = 63

# Flags of a request.
KEEP, EVALUATE, COPY_INPUT, LAST_BACKWARD, WITH_NORM, WITH_TIED, GRADIENT_MEMORY, NUMBERED = (1 << i for i in range(8))
# Flags of a reply.
MORE, LARGER, SKIPPED, MOVED = 1, 2, 4, 8

_request = struct.Struct("<IBBHQIIQQQdd")
_reply = struct.Struct("<IBBHIIQQQddQ")
HEADER = _request.size
assert HEADER == _reply.size == 64

Request = collections.namedtuple(
    "Request", "sequence kind flags stage iteration microbatch body_bytes input output value scale squared_norm")


class ProtocolError(Exception):
    """The other side broke the protocol."""


class Gone(Exception):
    """The node has closed the connection."""


# -- buffers

_unit = 64
_units = (1 << 28) - 1

Place = collections.namedtuple("Place", "region offset bytes")


def unpack_place(n):
    return Place(n >> 56, (n >> 28 & _units) * _unit, (n & _units) * _unit)


def pack_place(place):
    return place.region << 56 | place.offset // _unit << 28 | place.bytes // _unit


def aligned(size):
    return -(-size // _unit) * _unit


class Regions:
    """Memory that the node has shared. Nothing is ever unmapped: a tensor may still use it, and would fault."""

    def __init__(self):
        self._all = {}

    def add(self, number, file, size):
        """Maps a memfd and closes it."""
        try:
            found = os.fstat(file).st_size
            if number in self._all:
                raise ProtocolError(f"region {number} is there already")
            if found != size or size <= 0:
                raise ProtocolError(f"region {number}: found {found} bytes, expected {size}")
            populate = getattr(mmap, "MAP_POPULATE", 0)
            self._all[number] = mmap.mmap(file, size, mmap.MAP_SHARED | populate)
        finally:
            os.close(file)
        return self._all[number]

    def check(self, place):
        """The region's memory, in which the place lies."""
        memory = self._all.get(place.region)
        if memory is None or place.offset + place.bytes > len(memory):
            raise ProtocolError(f"found a buffer of {place.bytes} bytes at {place.offset} of region {place.region}, "
                                f"expected one of a region of {len(memory) if memory is not None else 0} bytes")
        return memory


# -- tensors in a buffer

_start = struct.Struct("<IIQ")
_tensor = struct.Struct("<BBBBI")
MAX_TENSORS, MAX_DIMENSIONS = 256, 16

# In the order of their numbers; the names are PyTorch's.
TYPES = (("float32", 4), ("float64", 8), ("float16", 2), ("bfloat16", 2), ("int64", 8), ("int32", 4), ("int16", 2),
         ("int8", 1), ("uint8", 1), ("bool", 1))
TYPE_NUMBERS = {name: i for i, (name, _) in enumerate(TYPES)}

# `strides` count numbers; `offset` is in the region.
Tensor = collections.namedtuple("Tensor", "type wants_gradient sizes strides offset count")


def numbers(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


def is_dense(sizes, strides):
    """Is each number at a place of its own, without gaps?"""
    if 0 in sizes:
        return True
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, sizes) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def place_tensors(tensors):
    """(bytes of all, offset of each one's data) for [(type, wants_gradient, sizes, strides)]."""
    at = aligned(_start.size + sum(_tensor.size + 16 * len(sizes) for _, _, sizes, _ in tensors))
    offsets = []
    for kind, _, sizes, _ in tensors:
        offsets.append(at)
        at += aligned(numbers(sizes) * TYPES[kind][1])
    return at, offsets


def write_description(memory, offset, tensors, size):
    """The start of a buffer; the data follows at place_tensors()'s offsets."""
    _start.pack_into(memory, offset, len(tensors), 0, size)
    at = offset + _start.size
    for kind, wants_gradient, sizes, strides in tensors:
        _tensor.pack_into(memory, at, kind, bool(wants_gradient), len(sizes), 0, 0)
        struct.pack_into(f"<{2 * len(sizes)}q", memory, at + _tensor.size, *sizes, *strides)
        at += _tensor.size + 16 * len(sizes)


def read_description(memory, place):
    """The tensors in a buffer, whose sizes are checked."""
    end = place.offset + place.bytes
    if place.bytes < _start.size:
        raise ProtocolError(f"tensors: found {place.bytes} bytes, expected {_start.size} at least")
    count, _, size = _start.unpack_from(memory, place.offset)
    if size > place.bytes or count > MAX_TENSORS:
        raise ProtocolError(f"tensors: found {count} of {size} bytes, expected {MAX_TENSORS} of {place.bytes} at most")
    at = place.offset + _start.size
    described = []
    for i in range(count):
        if at + _tensor.size > end:
            raise ProtocolError(f"tensor {i}: the buffer ends within its description")
        kind, flags, dimensions, _, _ = _tensor.unpack_from(memory, at)
        at += _tensor.size
        if kind >= len(TYPES) or flags > 1 or dimensions > MAX_DIMENSIONS or at + 16 * dimensions > end:
            raise ProtocolError(f"tensor {i}: found type {kind}, flags {flags} and {dimensions} dimensions")
        both = struct.unpack_from(f"<{2 * dimensions}q", memory, at)
        at += 16 * dimensions
        sizes, strides = both[:dimensions], both[dimensions:]
        if min(both, default=0) < 0 or not is_dense(sizes, strides):
            raise ProtocolError(f"tensor {i}: found sizes {sizes} and strides {strides}, expected dense data")
        described.append((kind, flags == 1, sizes, strides))
    whole, offsets = place_tensors(described)
    if whole != size:
        raise ProtocolError(f"tensors: found {size} bytes, expected {whole}")
    return [Tensor(kind, wants, sizes, strides, place.offset + offset, numbers(sizes))
            for (kind, wants, sizes, strides), offset in zip(described, offsets)]


# -- the connection

class Connection:
    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(path)

    def receive(self):
        """(Request, body, file): file is a descriptor that came along, or None. Raises Gone."""
        try:
            message, control, flags, _ = self._socket.recvmsg(MAX_MESSAGE + 1, socket.CMSG_SPACE(4))
        except OSError as e:
            raise Gone(str(e)) from e
        file = None
        for level, kind, data in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                file, = struct.unpack("i", data)
        if not message:
            raise Gone("the node has closed the connection")
        if len(message) < HEADER or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ProtocolError(f"found a message of {len(message)} bytes, expected {HEADER} to {MAX_MESSAGE}")
        request = Request(*_request.unpack_from(message))
        if request.body_bytes != len(message) - HEADER:
            raise ProtocolError(f"found a body of {len(message) - HEADER} bytes, expected {request.body_bytes}")
        return request, message[HEADER:], file

    def send(self, kind, sequence=0, stage=0, flags=0, body=b"", cpu_us=0, output=0, begin_ns=0, end_ns=0, loss=0.0,
             squared_norm=0.0, peak_bytes=0):
        header = _reply.pack(sequence, kind, flags, stage, len(body), min(cpu_us, 0xFFFFFFFF), output, begin_ns,
                             end_ns, loss, squared_norm, peak_bytes)
        try:
            self._socket.sendmsg([header, body])
        except OSError as e:
            raise Gone(str(e)) from e


def to_json(value):
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def from_json(body):
    try:
        value = json.loads(body)
    except ValueError as e:
        raise ProtocolError(f"found a body that is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise ProtocolError("found a body that is no JSON object")
    return value


def error_body(type, message, cause="exception", layer=None, layer_name=None, file=None, line=None, traceback=""):
    """cause: exception or out_of_memory. `file` and `line`: the innermost of the program's own."""
    body = {"type": type, "message": message[:4000], "cause": cause, "layer": layer, "layer_name": layer_name, "file": file,
            "line": line, "traceback": traceback[-(16 << 10):]}
    return to_json({name: value for name, value in body.items() if value is not None})
