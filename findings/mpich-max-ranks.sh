#!/usr/bin/env bash
# MPICH's MPI_Allreduce with MPI_MAX over one NaN gives the ranks of one call different results, up
# to three of them among four ranks.
#
# Packages: Debian 12's mpich, libmpich12 and libmpich-dev 4.0.2-3+b1; compiled with the gcc that
# is there.
# Seen: each rank gives one double, its own number, and one rank gives NaN instead. Two ranks: both
# have what the other one gave. Four ranks, NaN at the last: they get NaN, 2, 1 and 2, so that one
# has less than the largest number of the others. Three ranks: alike if rank 1 has the NaN, two
# different answers otherwise. No call returns an error. With MPI_SUM all ranks have NaN.
# Likely guess: NaN may be kept or lost, but every rank has the same answer; that is what
# MPI_Allreduce is for.
# Why it matters: "was there an overflow", "is the loss still finite", "which scale do we take" are
# asked by an allreduce of a maximum so that all ranks decide alike. Here some ranks skip the step
# or stop, the others go on: the next collective waits for ranks that never come, or the replicas
# part without a word.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v gcc >/dev/null || { echo "needs gcc" >&2; exit 2; }
# The pinned packages, and of what the first two need only what this machine lacks.
pinned=(mpich=4.0.2-3+b1 libmpich12=4.0.2-3+b1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" libmpich-dev=4.0.2-3+b1 $lacking ||
  exit 2
for package in *.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$lib PATH=$work/root/usr/bin:$PATH

cat >ranks.c <<'C'
#include <math.h>
#include <mpi.h>
#include <stdio.h>

static void show(MPI_Op op, const char* name, int ill, int rank, int ranks) {
    double mine = rank == ill ? NAN : rank;
    double result = 0;
    double all[16];
    if (MPI_Allreduce(&mine, &result, 1, MPI_DOUBLE, op, MPI_COMM_WORLD) != MPI_SUCCESS)
        printf("an error on rank %d\n", rank);
    MPI_Gather(&result, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return;
    printf("%d ranks, NaN at rank %d, %s:", ranks, ill, name);
    for (int i = 0; i < ranks; ++i)
        isnan(all[i]) ? printf(" NaN") : printf(" %g", all[i]);
    printf("\n");
}

int main(int argc, char** argv) {
    int rank = 0;
    int ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int ill = 0; ill < ranks; ++ill)
        show(MPI_MAX, "max", ill, rank, ranks);
    show(MPI_SUM, "sum", 0, rank, ranks);
    MPI_Finalize();
}
C
gcc -O1 -I"$lib/mpich/include" ranks.c "$lib/libmpich.so.12" -Wl,--allow-shlib-undefined -o ranks

mpichversion | head -n 1
for ranks in 2 3 4; do timeout 100 mpiexec.mpich -n "$ranks" ./ranks; done | tee seen
cat >expected <<'TEXT'
2 ranks, NaN at rank 0, max: 1 NaN
2 ranks, NaN at rank 1, max: NaN 0
2 ranks, NaN at rank 0, sum: NaN NaN
3 ranks, NaN at rank 0, max: 2 2 NaN
3 ranks, NaN at rank 1, max: 2 2 2
3 ranks, NaN at rank 2, max: NaN NaN 1
3 ranks, NaN at rank 0, sum: NaN NaN NaN
4 ranks, NaN at rank 0, max: 3 3 3 NaN
4 ranks, NaN at rank 1, max: 3 3 NaN 3
4 ranks, NaN at rank 2, max: 3 NaN 3 1
4 ranks, NaN at rank 3, max: NaN 2 1 2
4 ranks, NaN at rank 0, sum: NaN NaN NaN NaN
TEXT
diff expected seen || { echo "changed: the ranks have other results" >&2; exit 1; }
echo "as seen on 2026-12-01"
