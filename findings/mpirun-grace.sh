#!/usr/bin/env bash
# A scheduler's SIGTERM to mpirun: OpenMPI gives its ranks about a second and exits with 1; MPICH
# waits for them without a limit and exits with theirs.
#
# Packages: Debian 12's openmpi-bin and libopenmpi3 4.1.4-3+b1, openmpi-common 4.1.4-3, mpich and
# libmpich12 4.0.2-3+b1.
# Seen: each of two ranks answers SIGTERM by saving for 5 s and ends with 0. Under OpenMPI both get
# the signal and are killed some 1 s later, with nothing saved; mpirun exits with 1, not 143.
# --mca odls_base_sigkill_timeout 10 lets them save, but mpirun exits with 1 then, too, although
# both ended with 0. Under MPICH's mpiexec they save, and it exits with 0, as a job does at its end.
# Likely guess: both forward the signal and wait for the ranks or for 5 to 10 s, and exit with 143.
# Why it matters: a scheduler that stops a job with SIGTERM, and promises 30 s for a checkpoint,
# promises in vain as soon as the command begins with mpirun; and neither exit status tells it that
# the job was stopped: "failed" for one, "finished" for the other.
# Date: 2026-11-29
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(openmpi-bin=4.1.4-3+b1 libopenmpi3=4.1.4-3+b1 openmpi-common=4.1.4-3
  mpich=4.0.2-3+b1 libmpich12=4.0.2-3+b1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib/x86_64-linux-gnu
export PATH=$work/root/usr/bin:$PATH LD_LIBRARY_PATH=$lib:$lib/openmpi/lib:$lib/pmix2/lib
export OPAL_PREFIX=$work/root/usr OPAL_LIBDIR=$lib/openmpi/lib
export OPAL_PKGLIBDIR=$lib/openmpi/lib/openmpi3
export OPAL_PKGDATADIR=$work/root/usr/share/openmpi OPAL_SYSCONFDIR=$work/root/etc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 TMPDIR=$work

# Says when it is ready; after SIGTERM, "saves" for 5 s, with a mark each tenth.
cat >rank.py <<'PYTHON'
import os
import pathlib
import signal
import sys
import time

rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
stopped = False


def stop(*_):
    global stopped
    stopped = True


signal.signal(signal.SIGTERM, stop)
pathlib.Path("ready" + rank).touch()
while not stopped:
    time.sleep(0.05)
with open("marks" + rank, "w") as marks:
    for _ in range(50):
        print(".", end="", file=marks, flush=True)
        time.sleep(0.1)
pathlib.Path("saved" + rank).touch()
PYTHON

try() {
  local name=$1 status=0 launcher rank grace=() saved=()
  shift
  rm -f ready* marks* saved*
  "$@" -n 2 /usr/bin/python3 rank.py >launcher.log 2>&1 &
  launcher=$!
  for _ in {1..100}; do [ -e ready0 ] && [ -e ready1 ] && break; sleep 0.2; done
  kill -TERM "$launcher"
  wait "$launcher" || status=$?
  sleep 1
  for rank in 0 1; do
    grace+=("$(awk '{n = length($0) / 10} END {print n + 0}' "marks$rank")")
    [ -e "saved$rank" ] && saved+=(yes) || saved+=(no)
  done
  echo "$name: exit status $status, saved ${saved[*]}; the ranks had ${grace[*]} s"
  # Scheduling moves the second of grace a little.
  printf '%s\n' "${grace[@]}" | awk -v start="$name: exit status $status, saved ${saved[*]}" \
    '$1 < 2.5 {short++} END {print start (short ? " in less than 2.5 s" : "")}' >>seen
}

orterun --version | head -n 1
mpiexec.hydra --version | sed -n 's/ *Version: */MPICH hydra /p'
try "OpenMPI" orterun
try "OpenMPI, odls_base_sigkill_timeout 10" orterun --mca odls_base_sigkill_timeout 10
try "MPICH" mpiexec.hydra
cat >expected <<'TEXT'
OpenMPI: exit status 1, saved no no in less than 2.5 s
OpenMPI, odls_base_sigkill_timeout 10: exit status 1, saved yes yes
MPICH: exit status 0, saved yes yes
TEXT
diff expected seen || { echo "changed: another grace period or exit status" >&2; exit 1; }
echo "as seen on 2026-11-29"
