#!/usr/bin/env bash
# A TCPStore client that caught one timeout reads every later answer one byte late, and its next
# wait for a key that nobody set succeeds.
#
# Packages: Debian 12's python3-torch and libtorch1.13 1.13.1+dfsg-4, libgloo0
# 0.0~git20220518.5b14351-3.
# Seen: get() of a missing key raises after the client's timeout. Calls before the key is set are
# right. Another process sets it; from then on add() returns its sum times 256, num_keys() likewise,
# while the values in the store are right. wait() for a key that does not exist returns at once. A
# new client reads the right numbers.
# Likely guess: the timeout ends with its exception, and the client can ask again (or is closed).
# Why it matters: the store is what torchrun's rendezvous, process groups and many launchers count
# arrivals with. A worker that polls ("is the leader ready?") with a short timeout, as one does to
# stay responsive, takes wrong counts for right ones, or passes a barrier before anyone has come.
# Date: 2026-11-29
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(python3-torch=1.13.1+dfsg-4 libtorch1.13=1.13.1+dfsg-4 libgloo0=0.0~git20220518.5b14351-3)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export PYTHONPATH=$work/root/usr/lib/python3/dist-packages GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu

cat >store.py <<'PYTHON'
import datetime
import torch.distributed as dist

SECOND = datetime.timedelta(seconds=1)
server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)


def connect():
    return dist.TCPStore("127.0.0.1", server.port, None, False, SECOND, wait_for_workers=False)


def show(name, got):
    print(f"{name}: {got}; in the store: n={int(server.get('n'))}, {server.num_keys()} keys")


client = connect()
show("add before", client.add("n", 1))
try:
    client.get("ready")
except RuntimeError as error:
    print("get of a missing key:", error)
show("add before the key is set", client.add("n", 1))
server.set("ready", "yes")
show("add after it is set", client.add("n", 1))
show("num_keys after it is set", client.num_keys())
try:
    client.wait(["never set"])
    print("wait for a key that nobody sets: returned")
except RuntimeError as error:
    print("wait for a key that nobody sets:", error)
show("add by a new client", connect().add("n", 1))
PYTHON

echo "${pinned[*]}"
/usr/bin/python3 -c 'import torch; print("torch", torch.__version__, torch.__file__)'
/usr/bin/python3 store.py | tee seen
cat >expected <<'TEXT'
add before: 1; in the store: n=1, 1 keys
get of a missing key: Socket Timeout
add before the key is set: 2; in the store: n=2, 1 keys
add after it is set: 768; in the store: n=3, 2 keys
num_keys after it is set: 512; in the store: n=3, 2 keys
wait for a key that nobody sets: returned
add by a new client: 4; in the store: n=4, 2 keys
TEXT
diff expected seen || { echo "changed: other answers after a timeout" >&2; exit 1; }
echo "as seen on 2026-11-29"
