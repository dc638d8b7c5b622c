#!/usr/bin/env bash
# One ZeroMQ sender, one receiver: after a broken connection new messages overtake old ones if the
# receiver is the side that binds, and do not if it is the side that connects.
#
# Packages: Debian 12's libzmq5 4.3.4-6, python3-zmq 24.0.1-4+b1.
# Seen: a PUSH sends a1, a2, a3 to a PULL whose program does not read yet. The connection breaks and
# is made again by ZeroMQ itself; the PUSH sends b1, b2, b3. The PULL then reads a1 b1 a2 b2 a3 b3,
# without an error and without a loss. With bind and connect exchanged, the order is kept. DEALER to
# DEALER is the same.
# Likely guess: TCP and ZeroMQ keep the order of one sender; a break may lose messages, not mix
# them. And which side binds is a matter of addresses only.
# Why it matters: "done" can arrive before the progress that came before it, "stop" before "start",
# the gradient of step 8 before that of step 7. Tests on a network that does not break never show
# it.
# Date: 2026-11-29
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(python3-zmq=24.0.1-4+b1 libzmq5=4.3.4-6)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export PYTHONPATH=$work/root/usr/lib/python3/dist-packages
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu

cat >sockets.py <<'PYTHON'
import socket
import threading
import time
import zmq


class Wire:
    """Forwards a port of its own to another one, until it is cut; then it takes new connections."""

    def __init__(self, to):
        self.to, self.ends = to, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near = self.listener.accept()[0]
            far = socket.create_connection(("127.0.0.1", self.to))
            self.ends += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=pair, daemon=True).start()

    def forward(self, source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        shut([source, target])

    def cut(self):
        shut(self.ends)
        self.ends.clear()


def shut(ends):
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def received(s):
    while s.poll(500):
        yield s.recv_multipart()


def run(source_type, target_type, target_binds):
    context = zmq.Context()
    source, target = context.socket(source_type), context.socket(target_type)
    source.linger = target.linger = 0
    binds, connects = (target, source) if target_binds else (source, target)
    wire = Wire(binds.bind_to_random_port("tcp://127.0.0.1"))
    connects.connect(f"tcp://127.0.0.1:{wire.port}")
    time.sleep(0.5)
    for text in (b"a1", b"a2", b"a3"):
        source.send(text)
    time.sleep(0.5)
    wire.cut()  # ZeroMQ connects again after 0.1 to 0.2 s
    time.sleep(1)
    for text in (b"b1", b"b2", b"b3"):
        source.send(text)
    time.sleep(0.5)
    return " ".join(b"".join(frames).decode() for frames in received(target))


print("pyzmq", zmq.__version__, "libzmq", zmq.zmq_version(), zmq.__file__)
for names in (("PUSH", "PULL"), ("DEALER", "DEALER")):
    types = [getattr(zmq, name) for name in names]
    for target_binds in (True, False):
        who = "the receiver binds" if target_binds else "the receiver connects"
        print(" to ".join(names), who + ":", run(*types, target_binds), flush=True)
PYTHON
timeout 60 /usr/bin/python3 sockets.py | tee output
tail -n +2 output >seen
cat >expected <<'TEXT'
PUSH to PULL the receiver binds: a1 b1 a2 b2 a3 b3
PUSH to PULL the receiver connects: a1 a2 a3 b1 b2 b3
DEALER to DEALER the receiver binds: a1 b1 a2 b2 a3 b3
DEALER to DEALER the receiver connects: a1 a2 a3 b1 b2 b3
TEXT
diff expected seen || { echo "changed: another order" >&2; exit 1; }
echo "as seen on 2026-11-29"
