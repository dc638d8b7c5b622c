"""The safetensors format: the length of the header in eight bytes, little-endian; the header, JSON with the names and
offsets of tensors; the data. In the order of their offsets, tensors lie one behind the other, to the file's end.

Reading executes nothing that a file says, and every number of the header is checked before it is used."""

import ctypes
import json
import mmap
import os
import struct

import torch

from troupe.errors import ProgramError

_max_header_bytes = 100_000_000
_types = {"C128": torch.complex128, "C64": torch.complex64, "F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
          "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
          "U8": torch.uint8, "BOOL": torch.bool}
_names = {dtype: name for name, dtype in _types.items()}
_parts = {"C128": torch.float64, "C64": torch.float32}
types = tuple(_names)  # that a file can have
_sizes = {name: torch.empty(0, dtype=dtype).element_size() for name, dtype in _types.items()}


class SafeTensors:
    """A file that is open. names: of its tensors; metadata: texts by name. Raises ProgramError."""

    def __init__(self, path):
        self.path = str(path)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                # A private map: PyTorch warns of memory that it cannot write. It is never closed under a tensor.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size >= 8 else b""
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror}, expected a safetensors file") from None
        header = struct.unpack("<Q", self._map[:8])[0] if size >= 8 else size
        if not 2 <= header <= min(_max_header_bytes, size - 8):
            self._refuse(f"found a header of {header} bytes in {size}")
        try:
            found = json.loads(self._map[8:8 + header].decode())
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._refuse("found a header that is no JSON object")
        self.metadata = found.pop("__metadata__", {})
        if not isinstance(self.metadata, dict) or not all(isinstance(x, str) for x in self.metadata.values()):
            self._refuse("found metadata that are no texts")
        self._data = 8 + header
        self._tensors = {name: self._checked(name, entry) for name, entry in found.items()}
        end = 0
        for begin, after, name in sorted((b, e, name) for name, (_, _, b, e) in self._tensors.items()):
            if begin != end:
                self._refuse(f"found '{name}' at {begin}, expected {end}")
            end = after
        if self._data + end != size:
            self._refuse(f"found {size} bytes, expected {self._data + end}")

    @property
    def names(self):
        return self._tensors.keys()

    def shape(self, name):
        return self._tensors[name][1]

    def dtype(self, name):
        return _types[self._tensors[name][0]]

    def tensor(self, name):
        """A view of the file's pages: writing to it changes this process' copy alone. Complex ones are copies: what computes
        with them relies on an alignment that a file need not have."""
        kind, shape, begin, end = self._tensors[name]
        if begin == end:
            return torch.empty(shape, dtype=_types[kind])
        if kind in _parts:
            count = (end - begin) // _sizes[kind] * 2
            parts = torch.frombuffer(self._map, dtype=_parts[kind], count=count, offset=self._data + begin)
            return torch.view_as_complex(parts.clone().view(*shape, 2))
        count = (end - begin) // _sizes[kind]
        return torch.frombuffer(self._map, dtype=_types[kind], count=count, offset=self._data + begin).view(shape)

    def drop(self, name):
        """Gives a tensor's pages back, which were copied and are not needed again. Views of them read the file again, without
        what was written to them. The pages at both ends stay: others have a part of them."""
        _, _, begin, end = self._tensors[name]
        first = -(-(self._data + begin) // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (self._data + end) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _checked(self, name, entry):
        kind, shape, offsets = (entry.get(k) for k in ("dtype", "shape", "data_offsets")) if isinstance(entry, dict) else (0,) * 3
        if not isinstance(kind, str) or kind not in _types:
            self._refuse(f"'{name}' has dtype {kind!r}, expected one of {', '.join(_types)}")
        if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
            self._refuse(f"'{name}' has shape {shape!r} and offsets {offsets!r}, expected lists of numbers")
        expected = _sizes[kind]
        for size in shape:
            expected *= size
        if offsets[1] - offsets[0] != expected:
            self._refuse(f"'{name}' has {offsets[1] - offsets[0]} bytes, expected {expected}")
        return kind, shape, offsets[0], offsets[1]

    def _refuse(self, text):
        raise ProgramError(f"{self.path}: {text}: the file is damaged, or not in the safetensors format")


def _naturals(found):
    return isinstance(found, list) and all(type(x) is int and 0 <= x < 1 << 62 for x in found)


def write(path, tensors, metadata):
    """Replaces the file: complete and durable, or not at all. tensors: {name: tensor in the host's memory}."""
    header, begin, parts = {"__metadata__": metadata}, 0, []
    # Larger elements first: then every tensor is aligned.
    for name, t in sorted(tensors.items(), key=lambda x: (-x[1].element_size(), x[0])):
        t = t.detach().contiguous().resolve_conj().resolve_neg()
        end = begin + t.numel() * t.element_size()
        header[name] = {"dtype": _names[t.dtype], "shape": list(t.shape), "data_offsets": [begin, end]}
        parts.append(t)
        begin = end
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.{os.getpid()}.part"
    try:
        with open(temporary, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for t in parts:
                if t.numel():
                    file.write((ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    sync_folder(os.path.dirname(path) or ".")


def sync_folder(folder):
    """Makes renames in it durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
