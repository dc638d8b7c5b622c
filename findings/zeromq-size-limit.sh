#!/usr/bin/env bash
# One ZeroMQ message above the receiver's ZMQ_MAXMSGSIZE takes its small neighbours with it; and if
# the receiver is the side that connects, the two never talk again.
#
# Packages: Debian 12's libzmq5 4.3.4-6, python3-zmq 24.0.1-4+b1.
# Seen: a PULL that takes up to 1,000 bytes; a PUSH sends five messages of 10 bytes, one of 2,000,
# five of 10, and three more a second later. If the PULL binds, it gets the first five and the last
# three: ZeroMQ connects again, but the five that followed the large one are lost. If the PULL
# connects, it gets the first five only: its ZeroMQ does not try to connect again, as it does after
# every other break, and the PUSH finds nobody to send to. Neither side's calls return an error.
# Likely guess: only the large message is lost; the manual says that the peer is disconnected, and
# a broken connection is made again by the side that connects.
# Why it matters: the limit is set against a wrong or hostile peer. One report or tensor that grew
# too large silently takes other work out of its sender's queue, or parts a worker from its
# scheduler until one of them is started again; which of both depends on who binds.
# Date: 2026-12-01
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

cat >limit.py <<'PYTHON'
import time
import zmq

early = [(f"a{i}", 10) for i in range(5)] + [("large", 2000)] + [(f"b{i}", 10) for i in range(5)]
late = [(f"c{i}", 10) for i in range(3)]


def send(source, messages):
    """Each is its name, filled up to its size; returns how many ZeroMQ took."""
    taken = 0
    for name, size in messages:
        try:
            source.send(name.encode().ljust(size), zmq.NOBLOCK)
            taken += 1
        except zmq.Again:  # nobody is connected
            pass
    return taken


def read(target):
    while target.poll(1500):
        yield target.recv().decode().strip()


def run(target_binds):
    context = zmq.Context()
    source, target = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    source.linger = target.linger = 0
    target.maxmsgsize = 1000
    binds, connects = (target, source) if target_binds else (source, target)
    monitor = connects.get_monitor_socket(zmq.EVENT_CONNECTED)
    connects.connect(f"tcp://127.0.0.1:{binds.bind_to_random_port('tcp://127.0.0.1')}")
    if not target_binds:
        time.sleep(0.5)  # a PUSH that binds has no queue before somebody connects
    send(source, early)
    received = list(read(target))
    taken = send(source, late)
    received += read(target)
    connections = 0
    while monitor.poll(0):
        monitor.recv_multipart()
        connections += 1
    print(f"  received: {' '.join(received)}; taken a second later: {taken};",
          f"connections: {connections}")


print("pyzmq", zmq.__version__, "libzmq", zmq.zmq_version())
for target_binds in (True, False):
    print("the receiver", "binds" if target_binds else "connects")
    run(target_binds)
PYTHON
timeout 60 /usr/bin/python3 limit.py | tee output
tail -n +2 output >seen
cat >expected <<'TEXT'
the receiver binds
  received: a0 a1 a2 a3 a4 c0 c1 c2; taken a second later: 3; connections: 2
the receiver connects
  received: a0 a1 a2 a3 a4; taken a second later: 0; connections: 1
TEXT
diff expected seen || { echo "changed: other messages arrive" >&2; exit 1; }
echo "as seen on 2026-12-01"
