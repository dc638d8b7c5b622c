"""A worker: the process that computes a stage of a program's layers for a node.

    python3 -m troupe.worker        with TROUPE_WORKER_SOCKET and TROUPE_WORKER_TOKEN in its environment

It connects to the node, says hello, makes its layers and then carries out one operation after another until the node
closes the connection (docs/worker_protocol.md). Exceptions are sent to the node and printed; the worker goes on.
"""

import os
import platform
import struct
import sys
import time
import traceback

from troupe import __version__
from troupe.worker import protocol
from troupe.errors import Missing
from troupe.torch_settings import configure_torch, import_torch


# -- the environment

def blas_name():
    """The file of the BLAS that this process has loaded: results depend on it to the bit."""
    names = ("openblas", "mkl", "blis", "libblas", "accelerate")
    found = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                name = os.path.basename(line.rstrip("\n").rpartition(" ")[2])
                if ".so" in name and any(n in name for n in names):
                    found.add(name)
    except OSError:
        pass
    return " ".join(sorted(found)) or "built in"


def hello(token):
    torch = import_torch()
    return protocol.to_json({"protocol": protocol.VERSION, "token": token, "package": __version__,
                             "python": platform.python_version(), "torch": torch.__version__,
                             "cuda": torch.version.cuda or "", "blas": blas_name(), "pid": os.getpid()})


def register(memory):
    """Lets a GPU copy from and to shared memory directly; without that it goes through a buffer of the driver's."""
    import torch

    at = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    try:
        failed = int(torch.cuda.cudart().cudaHostRegister(at, len(memory), 0))
    except Exception as e:  # of any version of PyTorch
        failed = e
    if failed:
        print(f"{len(memory)} bytes of shared memory are not registered with the GPU, copies are slower: {failed}",
              file=sys.stderr, flush=True)


def error_body(error):
    """The body of an error reply: an exception's type, sentence, layer, place and traceback."""
    from troupe.errors import Error, LayerError

    found = error if isinstance(error, LayerError) else LayerError(None, None, error)
    # The package's own errors are sentences.
    name = "" if isinstance(error, Error) and found is not error else found.type
    cause = "out_of_memory" if found.out_of_memory else "exception"
    return protocol.error_body(name, found.message, cause, found.layer, found.layer_name, found.file, found.line,
                               found.traceback)


# -- operations

class WorkerStage:
    """A stage, and what its operations need beside it."""

    def __init__(self, stage):
        self.stage = stage
        self.lease = 0
        self.memory = None    # of its gradients
        self.outgoing = None  # an output that found no room in its buffer

    def ready(self):
        s = self.stage
        return {"layers": [{"name": str(name), "parameter_bytes": int(p), "buffer_bytes": int(b)}
                           for name, p, b in zip(s.names, s.parameter_bytes, s.buffer_bytes)],
                "own_parameters": int(s.own_parameters), "tied_parameters": int(s.tied_parameters),
                "optimizer_state_bytes": int(s.optimizer_state_bytes), "needs_norm": bool(s.needs_norm)}

    def flat_gradients(self):
        from troupe.worker.tensors import flat

        if self.memory is None:
            return None, None
        own, tied = self.stage.own_parameters, self.stage.tied_parameters
        return flat(self.memory, 0, own), flat(self.memory, protocol.aligned(4 * own), tied)


class Worker:
    """Each operation returns the arguments of its reply, for Connection.send()."""

    def __init__(self, connection, make_stages):
        self._connection = connection
        self._make_stages = make_stages
        self._regions = protocol.Regions()
        self._stages = []
        self._group = None
        self._device = "cpu"
        self._operations = {
            protocol.SETUP: self._setup, protocol.START: self._start, protocol.FORWARD: self._forward,
            protocol.RECOMPUTE: self._recompute, protocol.BACKWARD: self._backward,
            protocol.GRADIENTS: self._gradients, protocol.NORMS: self._norms, protocol.UPDATE: self._update,
            protocol.SAVE: self._save, protocol.LOAD: self._load, protocol.GROUP: self._make_group,
            protocol.JOIN: self._join, protocol.SUM: self._sum, protocol.WEIGHTS: self._weights,
            protocol.PEAK: self._peak, protocol.OUTPUT: self._output, protocol.RESET: self._reset,
            protocol.ZERO: self._zero,
        }

    def run(self):
        """Until the node says stop, or is gone."""
        while True:
            request, body, file = self._connection.receive()
            if request.kind == protocol.STOP:
                return
            began, cpu = time.monotonic_ns(), time.process_time_ns()
            try:
                reply = self._execute(request, body, file)
            except protocol.Gone:
                raise
            except Exception as e:  # of the program's code, or of PyTorch
                self._fail(request, e)
                continue
            self._connection.send(protocol.DONE, request.sequence, request.stage, begin_ns=began,
                                  end_ns=time.monotonic_ns(), cpu_us=(time.process_time_ns() - cpu) // 1000, **reply)

    def _execute(self, request, body, file):
        if request.kind == protocol.REGION:
            return self._region(request, file)
        if file is not None:
            os.close(file)
        operation = self._operations.get(request.kind)
        if operation is None:
            raise protocol.ProtocolError(f"found a message of kind {request.kind}")
        return operation(request, body)

    def _fail(self, request, error):
        traceback.print_exception(type(error), error, error.__traceback__)
        sys.stderr.flush()
        self._connection.send(protocol.ERROR, request.sequence, request.stage, body=error_body(error))

    def _stage_of(self, request):
        if request.stage >= len(self._stages):
            raise protocol.ProtocolError(f"found stage {request.stage}, expected one of {len(self._stages)}")
        return self._stages[request.stage]

    # -- setting up

    def _setup(self, request, body):
        if self._stages:
            raise protocol.ProtocolError("found a second setup")
        setup = protocol.from_json(body)
        self._device = setup["device"]
        configure_torch(setup["threads"], setup["deterministic"])
        self._stages = [WorkerStage(s) for s in self._make_stages(setup)]
        return dict(body=protocol.to_json({"members": [m.ready() for m in self._stages]}))

    def _region(self, request, file):
        if file is None:
            raise protocol.ProtocolError("found a region without its memory")
        if not request.flags & protocol.GRADIENT_MEMORY:
            self._registered(self._regions.add(protocol.unpack_place(request.input).region, file, request.value))
            return dict()
        at = self._stage_of(request)
        own, tied = at.stage.own_parameters, at.stage.tied_parameters
        wanted = protocol.aligned(4 * own) + protocol.aligned(4 * tied)
        memory = protocol.Regions().add(0, file, request.value)
        if len(memory) != wanted:
            raise protocol.ProtocolError(f"found {len(memory)} bytes for gradients, expected {wanted}")
        at.memory = self._registered(memory)
        return dict()

    def _registered(self, memory):
        if self._device != "cpu":
            register(memory)
        return memory

    def _start(self, request, body):
        lease = protocol.from_json(body)["lease"]
        for at in self._stages:
            at.lease = lease
            at.stage.start(*at.flat_gradients())
        return dict(peak_bytes=self._stages[0].stage.peak_bytes())

    # -- passes

    def _inputs(self, request):
        from troupe.worker.tensors import read

        place = protocol.unpack_place(request.input)
        if place.bytes == 0:
            return None
        tensors = read(self._regions.check(place), place, bool(request.flags & protocol.COPY_INPUT))
        if self._device == "cpu":
            return tensors
        return tuple(t.detach().to(self._device).requires_grad_(t.requires_grad) for t in tensors)

    def _deliver(self, at, request, tensors):
        """Writes an output into the request's buffer, or, if it is too small, says which would do."""
        from troupe.worker.tensors import Outgoing

        at.outgoing = Outgoing(tensors)
        return self._output(request, None)

    def _output(self, request, _):
        at = self._stage_of(request)
        outgoing, place = at.outgoing, protocol.unpack_place(request.output)
        if outgoing is None:
            raise protocol.ProtocolError("found a request for an output, and there is none")
        memory = self._regions.check(place)
        if outgoing.bytes > place.bytes:
            return dict(flags=protocol.LARGER, output=protocol.pack_place(protocol.Place(0, 0, outgoing.bytes)))
        outgoing.write(memory, place.offset)
        at.outgoing = None
        return dict(output=protocol.pack_place(place._replace(bytes=outgoing.bytes)))

    def _forward(self, request, _):
        at = self._stage_of(request)
        made = at.stage.forward(request.iteration, request.microbatch, self._inputs(request),
                                keep=bool(request.flags & protocol.KEEP),
                                evaluate=bool(request.flags & protocol.EVALUATE),
                                number=request.value if request.flags & protocol.NUMBERED else None)
        if request.output == 0:
            values = [[name, _number(s), _number(w)] for name, (s, w) in (made.values or {}).items()]
            body = protocol.to_json({"values": values}) if values else b""
            return dict(loss=float(made.loss or 0.0), body=body)
        return self._deliver(at, request, made.tensors)

    def _recompute(self, request, _):
        self._stage_of(request).stage.recompute(request.iteration, request.microbatch)
        return dict()

    def _backward(self, request, _):
        at = self._stage_of(request)
        made = at.stage.backward(request.iteration, request.microbatch, self._inputs(request) or ())
        return self._deliver(at, request, made) if request.output else dict()

    def _reset(self, request, _):
        self._stage_of(request).stage.reset()
        return dict()

    # -- gradients

    def _zero(self, request, _):
        stage = self._stage_of(request).stage
        stage.zero_gradients()
        return dict(flags=protocol.MOVED if stage.moved_buffers() else 0)

    def _gradients(self, request, _):
        self._stage_of(request).stage.gradients()  # they are in the shared memory, complete from now on
        return dict()

    def _norms(self, request, _):
        norms = self._stage_of(request).stage.squared_norms()
        return dict(body=struct.pack(f"<{len(norms)}d", *norms))

    def _update(self, request, _):
        at = self._stage_of(request)
        squared = at.stage.squared_norm() * at.stage.scale ** 2
        norm = request.squared_norm if request.flags & protocol.WITH_NORM else None
        updated = at.stage.update(squared_norm=norm)
        return dict(squared_norm=squared if updated else 0.0, flags=0 if updated else protocol.SKIPPED,
                     peak_bytes=at.stage.peak_bytes())

    def _make_group(self, request, _):
        from troupe.worker.groups import Group

        self._group = Group(self._device)
        return dict(body=self._group.make(request.value >> 32, request.value & 0xFFFFFFFF))

    def _join(self, request, body):
        from troupe.worker.groups import Group

        if self._group is None:
            self._group = Group(self._device)
        self._group.join(body, request.value >> 32, request.value & 0xFFFFFFFF)
        return dict()

    def _sum(self, request, _):
        if self._group is None:
            raise protocol.ProtocolError("found a sum before its group was joined")
        at = self._stage_of(request)
        own, tied = at.stage.gradients()
        self._group.sum(own)
        if request.flags & protocol.WITH_TIED:
            self._group.sum(tied)
        return dict()

    # -- files

    def _save(self, request, body):
        at = self._stage_of(request)
        wanted = protocol.from_json(body)
        copy = at.stage.copy(request.iteration, whole=wanted.get("whole", False))
        self._connection.send(protocol.DONE, request.sequence, request.stage, flags=protocol.MORE)
        files = copy.write(wanted["path"], lease=at.lease)
        return dict(body=protocol.to_json({"files": list(files)}))

    def _load(self, request, body):
        stage = self._stage_of(request).stage
        stage.load(protocol.from_json(body)["path"])
        for note in stage.notes:
            print(note, file=sys.stderr, flush=True)
        return dict()

    def _weights(self, request, _):
        at = self._stage_of(request)
        return self._deliver(at, request, [t.detach().float() for t in at.stage.weights()])

    def _peak(self, request, _):
        return dict(peak_bytes=self._stage_of(request).stage.peak_bytes())


def _number(value):
    """As in JSON, which has no number that is not finite."""
    value = float(value)
    return value if value - value == 0 else None


def make_stages(setup):
    """The stages of a program that the worker computes."""
    from troupe.layers.model_file import Program
    from troupe.layers.stage import Stage

    program = Program(setup["file"], setup["arguments"], setup["sha256"] or None)
    return [Stage(program, m["first_layer"], m["layers"], seed=m["seed"], rows=m["rows"],
                  microbatches=m["microbatches"], pipelines=m["pipelines"], pipeline=m["pipeline"],
                  share=m.get("share"), recompute=m["recompute"], device=setup["device"])
            for m in setup["members"]]


def main():
    connection = protocol.Connection(os.environ["TROUPE_WORKER_SOCKET"])
    try:
        greeting = hello(os.environ["TROUPE_WORKER_TOKEN"])
    except Missing as error:
        connection.send(protocol.ERROR, body=error_body(error))
        raise
    connection.send(protocol.HELLO, body=greeting)
    Worker(connection, make_stages).run()


if __name__ == "__main__":
    status = 0
    try:
        main()
    except protocol.Gone:
        pass
    except BaseException:
        traceback.print_exc()
        status = 1
    # Without Python's and PyTorch's own endings, which may wait for other processes of a group.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
