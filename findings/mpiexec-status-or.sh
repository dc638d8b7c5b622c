#!/usr/bin/env bash
# MPICH's mpiexec exits with the bitwise OR of its ranks' exit codes, or of the numbers of the
# signals that ended them, so that its status is often one that no rank had and that means
# something else.
#
# Packages: Debian 12's mpich and libmpich12 4.0.2-3+b1.
# Seen: two ranks that exit with 1 and 2, in either order, give 3; 64 and 11 give 75. A rank killed
# by SIGKILL gives 9, not 137, and 66 of another rank does not count beside it. A rank that aborts
# (SIGABRT, 6) while another one runs gives 6 or, about every second time, 15, which reads as
# SIGTERM: mpiexec ends the other rank by SIGKILL (9), and 6 | 9 is 15.
# Likely guess: the status of one rank, the first to fail, the lowest or the largest (OpenMPI's and
# Slurm's launchers say so in their manuals), and 128 + the number for a signal, as a shell has it.
# Why it matters: schedulers and launchers decide by this number whether to start a training again
# (75, "try again later"), to ask for more memory (137) or to count it as stopped by themselves
# (15, 143). A failed assertion passes for a stop, a kill for want of memory for the program's own
# "9", and two different faults for a third.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(mpich=4.0.2-3+b1 libmpich12=4.0.2-3+b1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu PATH=$work/root/usr/bin:$PATH

# Runs the first command on rank 0 and the second on rank 1, and shows mpiexec's status.
try() {
  local status=0
  cat >rank.sh <<<"if [ \"\$PMI_RANK\" = 0 ]; then $1; else $2; fi"
  timeout 60 mpiexec.mpich -n 2 sh rank.sh >launcher.log 2>&1 || status=$?
  echo "$3: $status"
}

mpichversion | head -n 1
{
  try "exit 0" "exit 75" "0 and 75"
  try "exit 1" "sleep 1; exit 2" "1, then 2"
  try "sleep 1; exit 1" "exit 2" "2, then 1"
  try "exit 64" "exit 11" "64 and 11"
  try "exit 66" "sleep 1; kill -s KILL \$\$" "66, then SIGKILL"
  for _ in {1..20}; do
    try "sleep 0.5; kill -s ABRT \$\$" "exec sleep 30" "SIGABRT while the other runs"
  done | sort -u
} | tee seen
cat >expected <<'TEXT'
0 and 75: 75
1, then 2: 3
2, then 1: 3
64 and 11: 75
66, then SIGKILL: 9
SIGABRT while the other runs: 15
SIGABRT while the other runs: 6
TEXT
diff expected seen || { echo "changed: mpiexec has another status" >&2; exit 1; }
echo "as seen on 2026-12-01"
