"""A node's side of a worker, for tests: it starts `python3 -m troupe.worker` and asks it for one thing after another."""

import array
import collections
import json
import mmap
import os
import secrets
import socket
import struct
import subprocess
import sys

from troupe.worker import protocol

Answer = collections.namedtuple("Answer", "kind sequence flags stage cpu_us output begin_ns end_ns loss squared_norm "
                                          "peak_bytes body")
_request = struct.Struct("<IBBHQIIQQQdd")
_reply = struct.Struct("<IBBHIIQQQddQ")


class WorkerError(Exception):
    def __init__(self, body):
        super().__init__(f"{body['type']}: {body['message']}\n{body.get('traceback', '')}")
        self.body = body


class Node:
    """One worker, with a region of memory for buffers: buffer i has `buffer_bytes` at i * buffer_bytes."""

    def __init__(self, folder, environment, buffers=8, buffer_bytes=1 << 20):
        path = os.path.join(folder, "worker")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(path)
        listener.listen(1)
        listener.settimeout(60)
        self.token = secrets.token_hex(8)
        self.log = open(os.path.join(folder, "log"), "w+")
        self.process = subprocess.Popen([sys.executable, "-m", "troupe.worker"], stdout=self.log, stderr=self.log,
                                        env=dict(environment, TROUPE_WORKER_SOCKET=path, TROUPE_WORKER_TOKEN=self.token,
                                                 OMP_NUM_THREADS="1"))
        self.socket, _ = listener.accept()
        self.socket.settimeout(60)
        listener.close()
        os.unlink(path)
        self.sequence, self.buffer_bytes, self.buffers, self.memory = 0, buffer_bytes, buffers, None
        self.hello = json.loads(self._receive().body)

    def close(self):
        """The worker's exit status."""
        self.socket.close()
        status = self.process.wait(60)
        self.log.close()
        return status

    def ask(self, kind, body=b"", file=None, **more):
        """The last reply; WorkerError for an error."""
        self.send(kind, body, file, **more)
        return self.answer()

    def answer(self):
        """The last reply to what was sent."""
        answer = self._receive()
        while answer.flags & protocol.MORE:
            answer = self._receive()
        assert answer.sequence == self.sequence, (answer, self.sequence)
        if answer.kind == protocol.ERROR:
            raise WorkerError(json.loads(answer.body))
        return answer

    def send(self, kind, body=b"", file=None, flags=0, stage=0, iteration=0, microbatch=0, input=0, output=0, value=0,
             scale=1.0, squared_norm=0.0):
        self.sequence += 1
        header = _request.pack(self.sequence, kind, flags, stage, iteration, microbatch, len(body), input, output, value,
                               scale, squared_norm)
        rights = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
        self.socket.sendmsg([header, body], rights)

    def _receive(self):
        message = self.socket.recv(protocol.MAX_MESSAGE)
        if not message:
            raise EOFError("the worker has closed the connection")
        sequence, kind, flags, stage, _, cpu_us, output, begin, end, loss, norm, peak = _reply.unpack_from(message)
        return Answer(kind, sequence, flags, stage, cpu_us, output, begin, end, loss, norm, peak, message[64:])

    # -- memory

    def share(self, number, size, flags=0, claimed=None):
        file = os.memfd_create("test")
        try:
            os.ftruncate(file, size)
            memory = mmap.mmap(file, size)
            place = protocol.pack_place(protocol.Place(number, 0, 0))
            self.ask(protocol.REGION, file=file, flags=flags, input=place, value=size if claimed is None else claimed)
        finally:
            os.close(file)
        return memory

    def buffer(self, i, size=None):
        return protocol.pack_place(protocol.Place(1, i * self.buffer_bytes, size or self.buffer_bytes))

    # -- operations

    def set_up(self, program, member, lease=0, **more):
        """Up to the start; returns what the worker says of its member."""
        setup = dict({"file": program, "sha256": "", "arguments": {}, "device": "cpu", "threads": 1, "deterministic": True},
                     **more)
        one = dict({"first_layer": 0, "stage": 0, "stages": 1, "pipeline": 0, "pipelines": 1, "rows": 1, "microbatches": 1,
                    "seed": 0, "recompute": "none"}, **member)
        answer = self.ask(protocol.SETUP, protocol.to_json(dict(setup, members=[one])))
        ready, = json.loads(answer.body)["members"]
        own, tied = ready["own_parameters"], ready["tied_parameters"]
        size = protocol.aligned(4 * own) + protocol.aligned(4 * tied)
        self.gradients = self.share(0, size, protocol.GRADIENT_MEMORY) if size else None
        self.own, self.tied = own, tied
        self.memory = self.share(1, self.buffers * self.buffer_bytes)
        self.ask(protocol.START, protocol.to_json({"lease": lease}))
        return ready

    def write(self, i, tensors):
        """PyTorch's tensors into a buffer; returns its place."""
        from troupe.worker.tensors import Outgoing

        out = Outgoing(tensors)
        out.write(self.memory, i * self.buffer_bytes)
        return self.buffer(i, out.bytes)

    def read(self, output):
        """Copies of the tensors in a buffer."""
        from troupe.worker.tensors import read

        return read(self.memory, protocol.unpack_place(output), copy=True)

    def forward(self, iteration, microbatch, input=0, output=0, keep=True, **more):
        flags = (protocol.KEEP if keep else 0) | more.pop("flags", 0)
        return self.ask(protocol.FORWARD, iteration=iteration, microbatch=microbatch, input=input, output=output, flags=flags,
                        **more)

    def backward(self, iteration, microbatch, input=0, output=0):
        return self.ask(protocol.BACKWARD, iteration=iteration, microbatch=microbatch, input=input, output=output)

    def flat_gradients(self):
        from troupe.worker.tensors import flat

        self.ask(protocol.GRADIENTS)
        return flat(self.gradients, 0, self.own), flat(self.gradients, protocol.aligned(4 * self.own), self.tied)
