import os
import struct
import unittest

from troupe.worker import protocol
from troupe.worker.protocol import Place, ProtocolError


def region(size):
    """(Regions with a region 1, its memory)."""
    regions = protocol.Regions()
    file = os.memfd_create("test")
    os.ftruncate(file, size)
    return regions, regions.add(1, file, size)


class Places(unittest.TestCase):
    def test_a_place_is_a_number_and_back(self):
        largest = (1 << 28) * 64 - 64
        for place in (Place(0, 0, 0), Place(1, 64, 128), Place(255, largest, largest)):
            self.assertEqual(protocol.unpack_place(protocol.pack_place(place)), place)
        self.assertEqual(protocol.pack_place(Place(1, 64, 128)), 0x0100000010000002)


class Memory(unittest.TestCase):
    def test_a_memfd_of_another_size_is_refused_and_closed(self):
        file = os.memfd_create("test")
        os.ftruncate(file, 4096)
        with self.assertRaisesRegex(ProtocolError, "region 1: found 4096 bytes, expected 8192"):
            protocol.Regions().add(1, file, 8192)
        with self.assertRaises(OSError):
            os.fstat(file)

    def test_a_region_is_not_replaced(self):
        regions, _ = region(4096)
        file = os.memfd_create("test")
        os.ftruncate(file, 4096)
        with self.assertRaisesRegex(ProtocolError, "there already"):
            regions.add(1, file, 4096)

    def test_a_buffer_outside_of_its_region_is_refused(self):
        regions, memory = region(4096)
        self.assertIs(regions.check(Place(1, 4032, 64)), memory)
        for place in (Place(1, 4032, 128), Place(1, 8192, 0), Place(2, 0, 64)):
            with self.assertRaises(ProtocolError):
                regions.check(place)


class Descriptions(unittest.TestCase):
    tensors = [(0, True, (2, 3), (1, 2)), (4, False, (), ()), (3, True, (4, 0), (1, 1))]

    def setUp(self):
        self.memory = bytearray(1024)
        self.size, self.offsets = protocol.place_tensors(self.tensors)
        protocol.write_description(self.memory, 64, self.tensors, self.size)

    def read(self, **changed):
        return protocol.read_description(self.memory, Place(1, 64, changed.get("bytes", self.size)))

    def test_tensors_are_read_as_they_were_written(self):
        read = self.read()
        self.assertEqual([tuple(t[:4]) for t in read], self.tensors)
        self.assertEqual([t.offset for t in read], [64 + o for o in self.offsets])
        self.assertEqual([t.count for t in read], [6, 1, 0])
        self.assertTrue(all(t.offset % 64 == 0 for t in read))

    def test_a_buffer_that_ends_early_is_refused(self):
        for size in range(0, self.size, 8):
            with self.assertRaises(ProtocolError):
                self.read(bytes=size)

    def test_every_number_is_checked(self):
        for offset, kind, value in ((0, "<I", 300), (0, "<I", 2), (8, "<Q", 64), (8, "<Q", 1 << 60), (16, "<B", 10),
                                    (17, "<B", 2), (18, "<B", 17), (18, "<B", 3), (24, "<q", -2), (24, "<q", 1 << 62),
                                    (40, "<q", 5), (40, "<q", -1)):
            with self.subTest(offset=offset, value=value):
                self.setUp()
                struct.pack_into(kind, self.memory, 64 + offset, value)
                with self.assertRaises(ProtocolError):
                    self.read()

    def test_dense_strides_are_any_order_of_the_dimensions(self):
        for sizes, strides, dense in (((2, 3), (3, 1), True), ((2, 3), (1, 2), True), ((2, 3), (6, 2), False),
                                      ((2, 3), (0, 1), False), ((2, 1, 3), (3, 77, 1), True), ((), (), True),
                                      ((0, 3), (9, 9), True), ((2, 2), (1, 1), False)):
            self.assertEqual(protocol.is_dense(sizes, strides), dense, (sizes, strides))


class Bodies(unittest.TestCase):
    def test_only_objects_are_bodies(self):
        self.assertEqual(protocol.from_json(b'{"a": 1}'), {"a": 1})
        for text in (b"[]", b"{", b"\xff"):
            with self.assertRaises(ProtocolError):
                protocol.from_json(text)

    def test_an_error_has_16_kib_of_traceback_at_most(self):
        body = protocol.error_body("E", "m" * 100_000, traceback="x" * 100_000)
        self.assertLess(len(body), 21_000)
        self.assertNotIn(b"layer", body)


if __name__ == "__main__":
    unittest.main()
