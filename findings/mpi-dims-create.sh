#!/usr/bin/env bash
# Open MPI's MPI_Dims_create lays 72 ranks out as 12 x 6, 675 as 45 x 15 and 1800 as 10 x 6 x 6 x 5;
# the most even grids are 9 x 8, 27 x 25 and 9 x 8 x 5 x 5.
#
# Packages: Debian 12's openmpi-bin, libopenmpi3 and libopenmpi-dev 4.1.4-3+b1, mpich, libmpich12
# and libmpich-dev 4.0.2-3+b1; compiled with the gcc that is there.
# Seen: of the numbers of ranks up to 2000, 44 get a grid of two dimensions that is not the most
# even one, by the difference of its largest and its smallest dimension, 14 one of three dimensions,
# and 1800 one of four. The prime factors are dealt out from the largest to the smallest, each to
# the dimension that is the least so far: 72 gets 3 | 3, 6 | 3, 6 | 6, 12 | 6. Powers of two are
# right, and so is everything up to 71. MPICH's are all the most even.
# Likely guess: as even as can be; "as close to each other as possible", MPI's standard says.
# Why it matters: a grid of data, tensor and pipeline ranks, or of a halo exchange, is laid out by
# this call. A rank in 45 x 15 has rings of 45 ranks in place of 27, and its tensors are cut by 45,
# which they may not be divisible by. The layout differs between two builds of one program.
# Date: 2026-12-02
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v gcc >/dev/null || { echo "needs gcc" >&2; exit 2; }
# The pinned packages, and of what the first four need only what this machine lacks.
pinned=(openmpi-bin=4.1.4-3+b1 libopenmpi3=4.1.4-3+b1 mpich=4.0.2-3+b1 libmpich12=4.0.2-3+b1)
headers=(libopenmpi-dev=4.1.4-3+b1 libmpich-dev=4.0.2-3+b1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" "${headers[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib/x86_64-linux-gnu
export PATH=$work/root/usr/bin:$PATH LD_LIBRARY_PATH=$lib:$lib/openmpi/lib:$lib/pmix2/lib
export OPAL_PREFIX=$work/root/usr OPAL_LIBDIR=$lib/openmpi/lib
export OPAL_PKGLIBDIR=$lib/openmpi/lib/openmpi3
export OPAL_PKGDATADIR=$work/root/usr/share/openmpi OPAL_SYSCONFDIR=$work/root/etc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work

cat >grids.c <<'C'
#include <mpi.h>
#include <stdio.h>

static int best[4], grid[4];
static int difference;

/* All grids whose dimensions fall from left to right; the first of the most even ones is kept. */
static void search(int left, int dimensions, int at) {
    const int most = at == 0 ? left : grid[at - 1];
    if (at == dimensions - 1) {
        grid[at] = left;
        if (left <= most && (difference < 0 || grid[0] - left < difference)) {
            difference = grid[0] - left;
            for (int i = 0; i < dimensions; ++i)
                best[i] = grid[i];
        }
        return;
    }
    for (int factor = 1; factor <= most && factor <= left; ++factor)
        if (left % factor == 0) {
            grid[at] = factor;
            search(left / factor, dimensions, at + 1);
        }
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    for (int dimensions = 2; dimensions <= 4; ++dimensions) {
        int other = 0;
        for (int ranks = 1; ranks <= 2000; ++ranks) {
            int given[4] = {0, 0, 0, 0};
            MPI_Dims_create(ranks, dimensions, given);
            difference = -1;
            search(ranks, dimensions, 0);
            if (given[0] - given[dimensions - 1] == difference)
                continue;
            if (++other > 4 && ranks != 675)
                continue;
            printf("  %d ranks:", ranks);
            for (int i = 0; i < dimensions; ++i)
                printf(" %d", given[i]);
            printf(", most even");
            for (int i = 0; i < dimensions; ++i)
                printf(" %d", best[i]);
            printf("\n");
        }
        printf("%d dimensions: %d of 2000 not the most even\n", dimensions, other);
    }
    MPI_Finalize();
}
C
gcc -O2 -I"$lib/openmpi/include" grids.c -o grids.openmpi "$lib/openmpi/lib/libmpi.so" \
  -Wl,--allow-shlib-undefined || exit 2
gcc -O2 -I"$lib/mpich/include" -I"$work/root/usr/include/x86_64-linux-gnu/mpich" grids.c \
  -o grids.mpich "$lib/libmpich.so.12" -Wl,--allow-shlib-undefined || exit 2

echo "${pinned[*]}, $(gcc --version | head -n 1)"
{
  echo "Open MPI"
  timeout 100 mpirun.openmpi --oversubscribe -np 1 ./grids.openmpi 2>log
  echo "MPICH"
  timeout 100 mpiexec.hydra -launcher fork -n 1 ./grids.mpich 2>log
} | tee seen
cat >expected <<'TEXT'
Open MPI
  72 ranks: 12 6, most even 9 8
  180 ranks: 18 10, most even 15 12
  240 ranks: 20 12, most even 16 15
  288 ranks: 24 12, most even 18 16
  675 ranks: 45 15, most even 27 25
2 dimensions: 44 of 2000 not the most even
  432 ranks: 12 6 6, most even 9 8 6
  504 ranks: 12 7 6, most even 9 8 7
  576 ranks: 12 8 6, most even 9 8 8
  648 ranks: 12 9 6, most even 9 9 8
3 dimensions: 14 of 2000 not the most even
  1800 ranks: 10 6 6 5, most even 9 8 5 5
4 dimensions: 1 of 2000 not the most even
MPICH
2 dimensions: 0 of 2000 not the most even
3 dimensions: 0 of 2000 not the most even
4 dimensions: 0 of 2000 not the most even
TEXT
diff expected seen || { tail -n 5 log; echo "changed: other grids" >&2; exit 1; }
echo "as seen on 2026-12-02"
