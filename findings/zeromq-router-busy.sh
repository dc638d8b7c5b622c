#!/usr/bin/env bash
# A ZeroMQ ROUTER that is busy while a connection breaks shuts its peer out for good; with
# ROUTER_HANDOVER it gives what the peer had sent before a random name.
#
# Packages: Debian 12's libzmq5 4.3.4-6, python3-zmq 24.0.1-4+b1.
# Seen: a DEALER with a routing id of its own sends a1 and a2. Before the ROUTER's program reads
# them, the connection breaks and the DEALER connects again by itself, and sends b1 and b2. The
# ROUTER delivers a1 and a2, and nothing more of this DEALER, although it is connected, its sends
# succeed and the old messages were read, 20 s before in one try; the way back is "Host
# unreachable". With ROUTER_HANDOVER the new connection works, but a1 and a2, sent by the same peer
# under the same routing id, arrive under a zero and four random bytes, in turns with b1 and b2.
# Likely guess: the same routing id is the same peer. Its messages arrive under that id, in order;
# at worst those after the break are late, until the old ones have been read.
# Why it matters: a controller that pauses for a second (garbage, a disk, a solver) while a network
# hiccups loses a worker that believes to be connected; with handover it must expect requests from
# peers that it never greeted, and answers to them go nowhere.
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


def run(handover):
    context = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.linger = dealer.linger = 0
    router.router_handover, router.router_mandatory = handover, True
    dealer.routing_id = b"worker-7"
    wire = Wire(router.bind_to_random_port("tcp://127.0.0.1"))
    dealer.connect(f"tcp://127.0.0.1:{wire.port}")
    time.sleep(0.5)
    for text in (b"a1", b"a2"):
        dealer.send(text)
    time.sleep(0.5)
    wire.cut()  # ZeroMQ connects again after 0.1 to 0.2 s
    time.sleep(1)
    for text in (b"b1", b"b2"):
        dealer.send(text)
    time.sleep(0.5)
    print("handover" if handover else "no handover")
    show(router)
    for text in (b"c", b"d"):
        dealer.send(text)
        show(router)
    try:
        router.send_multipart([b"worker-7", b"reply"])
        print("  reply:", *(b"".join(frames).decode() for frames in received(dealer)))
    except zmq.ZMQError as error:
        print("  reply:", error)


def show(router):
    got = [(name_of(name), text.decode()) for name, text in received(router)]
    print("  received:", *(f"{text} from {name}" for name, text in got), sep="\n    ")


def name_of(routing_id):
    return routing_id.decode() if routing_id[0] else f"0 and {len(routing_id) - 1} random bytes"


print("pyzmq", zmq.__version__, "libzmq", zmq.zmq_version(), zmq.__file__)
run(False)
run(True)
PYTHON
timeout 60 /usr/bin/python3 sockets.py | tee output
tail -n +2 output >seen
cat >expected <<'TEXT'
no handover
  received:
    a1 from worker-7
    a2 from worker-7
  received:
  received:
  reply: Host unreachable
handover
  received:
    a1 from 0 and 4 random bytes
    b1 from worker-7
    a2 from 0 and 4 random bytes
    b2 from worker-7
  received:
    c from worker-7
  received:
    d from worker-7
  reply: reply
TEXT
diff expected seen || { echo "changed: a ROUTER treats the peer otherwise" >&2; exit 1; }
echo "as seen on 2026-11-29"
