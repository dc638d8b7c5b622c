"""A worker in Python's standard library, for tests of the node's side: a layer is y = a x.

TROUPE_FAKE: OPERATION:MANNER, what it does at the first such operation: die (SIGKILL), exit, close, hang, raise.
"""

import array
import json
import os
import signal
import struct
import sys
import time

from troupe.worker import protocol

NAMES = {name: getattr(protocol, name.upper()) for name in (
    "setup", "start", "region", "forward", "recompute", "backward", "gradients", "norms", "update", "save", "load",
    "weights", "peak")}
F32 = protocol.TYPE_NUMBERS["float32"]


class Layers:
    """a[i] x, one after another; the loss is the mean of the last one's output."""

    def __init__(self, member):
        self.rows, self.microbatches = member["rows"], member["microbatches"]
        self.first, self.last = member["stage"] == 0, member["stage"] + 1 == member["stages"]
        self.a = array.array("f", [1 + 0.5 * (member["first_layer"] + i) for i in range(member["layers"])])
        self.inputs = {}
        self.gradients = None  # a memory of floats

    def data(self, iteration, microbatch):
        return [float(iteration + microbatch + row) for row in range(self.rows)]

    def forward(self, iteration, microbatch, x):
        x = self.data(iteration, microbatch) if self.first else x
        self.inputs[microbatch] = x
        for a in self.a:
            x = [a * v for v in x]
        return x

    def backward(self, microbatch, dy):
        xs = [self.inputs.pop(microbatch)]
        for a in self.a:
            xs.append([a * v for v in xs[-1]])
        if self.last:
            dy = [1 / self.rows] * self.rows
        for i in reversed(range(len(self.a))):
            self.gradients[i] += sum(x * d for x, d in zip(xs[i], dy))
            dy = [self.a[i] * d for d in dy]
        return dy

    def update(self, scale):
        for i in range(len(self.a)):
            self.a[i] -= 0.01 * scale * self.gradients[i]
            self.gradients[i] = 0


class FakeWorker:
    def __init__(self):
        self.connection = protocol.Connection(os.environ["TROUPE_WORKER_SOCKET"])
        self.connection.send(protocol.HELLO, body=protocol.to_json({
            "protocol": protocol.VERSION, "token": os.environ["TROUPE_WORKER_TOKEN"], "package": "0.1.0",
            "python": "3", "torch": "none", "cuda": "", "blas": "none", "pid": os.getpid()}))
        self.regions = protocol.Regions()
        self.pending = None
        operation, _, self.manner = os.environ.get("TROUPE_FAKE", "").partition(":")
        self.fault = NAMES.get(operation)

    def run(self):
        while True:
            request, body, file = self.connection.receive()
            if request.kind == protocol.STOP:
                return
            if request.kind == self.fault:
                self.fail()
            try:
                reply = self.execute(request, body, file)
            except Exception as e:
                cause = "out_of_memory" if isinstance(e, MemoryError) else "exception"
                body = protocol.error_body(type(e).__name__, str(e), cause, 1, "Scale", __file__,
                                           e.__traceback__.tb_lineno)
                self.connection.send(protocol.ERROR, request.sequence, body=body)
                continue
            now = time.monotonic_ns()
            self.connection.send(protocol.DONE, request.sequence, begin_ns=now, end_ns=now, **reply)

    def fail(self):
        if self.manner == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.manner == "exit":
            os._exit(3)
        if self.manner == "close":
            self.connection._socket.close()
        if self.manner in ("close", "hang"):
            signal.pause()

    def execute(self, request, body, file):
        if request.kind == self.fault:
            self.fault = None
            raise MemoryError("no more") if self.manner == "memory" else ValueError("wrong shapes")
        if request.kind == protocol.SETUP:
            member, = json.loads(body)["members"]
            self.layers = Layers(member)
            return {"body": protocol.to_json({"members": [{
                "layers": [{"name": "Scale", "parameter_bytes": 4, "buffer_bytes": 0} for _ in self.layers.a],
                "own_parameters": len(self.layers.a), "tied_parameters": 0, "optimizer_state_bytes": 0,
                "needs_norm": False}]})}
        if request.kind == protocol.REGION:
            return self.region(request, file)
        if request.kind == protocol.START:
            return {}
        if request.kind in (protocol.FORWARD, protocol.BACKWARD):
            return self.compute(request)
        if request.kind == protocol.OUTPUT:
            return self.deliver(request, self.pending)
        if request.kind == protocol.NORMS:
            return {"body": struct.pack(f"<{len(self.layers.a)}d", *(g * g for g in self.layers.gradients))}
        if request.kind == protocol.UPDATE:
            squared = sum(g * g for g in self.layers.gradients) * request.scale ** 2
            self.layers.update(request.scale)
            return {"squared_norm": squared, "peak_bytes": 4096}
        if request.kind in (protocol.SAVE, protocol.LOAD):
            return self.file(request, json.loads(body)["path"])
        if request.kind == protocol.WEIGHTS:
            return self.deliver(request, [list(self.layers.a), []])
        return {}

    def region(self, request, file):
        if request.flags & protocol.GRADIENT_MEMORY:
            memory = protocol.Regions().add(0, file, request.value)
            self.layers.gradients = memoryview(memory).cast("f")[:len(self.layers.a)]
        else:
            self.regions.add(protocol.unpack_place(request.input).region, file, request.value)
        return {}

    def read(self, request):
        place = protocol.unpack_place(request.input)
        if place.bytes == 0:
            return []
        memory = self.regions.check(place)
        tensor, = protocol.read_description(memory, place)
        return list(struct.unpack_from(f"<{tensor.count}f", memory, tensor.offset))

    def compute(self, request):
        x = self.read(request)
        if request.kind == protocol.BACKWARD:
            y = self.layers.backward(request.microbatch, x)
        else:
            y = self.layers.forward(request.iteration, request.microbatch, x)
        if request.output == 0:
            return {"loss": sum(y) / len(y)} if request.kind == protocol.FORWARD else {}
        return self.deliver(request, [y])

    def deliver(self, request, tensors):
        described = [(F32, True, (len(t),), (1,)) for t in tensors]
        size, offsets = protocol.place_tensors(described)
        place = protocol.unpack_place(request.output)
        memory = self.regions.check(place)
        if size > place.bytes:
            self.pending = tensors
            return {"flags": protocol.LARGER, "output": protocol.pack_place(protocol.Place(0, 0, size))}
        protocol.write_description(memory, place.offset, described, size)
        for t, offset in zip(tensors, offsets):
            struct.pack_into(f"<{len(t)}f", memory, place.offset + offset, *t)
        return {"output": protocol.pack_place(place._replace(bytes=size))}

    def file(self, request, path):
        if request.kind == protocol.LOAD:
            with open(path) as f:
                self.layers.a = array.array("f", json.load(f))
            return {}
        self.connection.send(protocol.DONE, request.sequence, flags=protocol.MORE)
        with open(path, "w") as f:
            json.dump(list(self.layers.a), f)
        return {"body": protocol.to_json({"files": [path]})}


if __name__ == "__main__":
    try:
        FakeWorker().run()
    except protocol.Gone:
        pass
    sys.stdout.flush()
    os._exit(0)
