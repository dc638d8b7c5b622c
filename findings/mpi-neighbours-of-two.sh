#!/usr/bin/env bash
# In a ring of two ranks, MPI's neighbour exchanges disagree about left and right, and Open MPI and
# MPICH about which of them.
#
# Packages: Debian 12's openmpi-bin, libopenmpi3 and libopenmpi-dev 4.1.4-3+b1, mpich, libmpich12
# and libmpich-dev 4.0.2-3+b1; compiled with the gcc that is there.
# Seen: a periodic dimension of two ranks, where the left neighbour is the right one too. Each rank
# sends one number to the left and another to the right. With MPI_Cart_shift and MPI_Sendrecv the
# number from the left is what the left one sent to its right. So it is with MPI_Neighbor_alltoall
# and, in Open MPI, with MPI_Neighbor_alltoallv; Open MPI's MPI_Ineighbor_alltoall and
# MPI_Ineighbor_alltoallv have the two the other way round. In MPICH MPI_Ineighbor_alltoall is as
# MPI_Neighbor_alltoall is, and both forms with a v are the other way round. One rank, which is its
# own neighbour, shows the same; with three ranks all agree. No call returns an error.
# Likely guess: that a call, its nonblocking form and its form with counts give the same data.
# Why it matters: halos, rings of attention and stages of a pipeline are written for any number of
# ranks and tested with two. With two, the halves of a halo are swapped once the exchange is made to
# overlap with computing, or gets counts, or the program is built with another MPI; with three or
# more it is right again.
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

cat >ring.c <<'C'
#include <mpi.h>
#include <stdio.h>

static int rank, ranks, left, right;

/* What each rank has received from its left and its right, and what it should be. */
static void show(const char* name, const int got[2]) {
    int all[16];
    MPI_Gather(got, 2, MPI_INT, all, 2, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return;
    int crossed = 0, as_sent = 0;
    for (int i = 0; i < ranks; ++i) {
        const int from_left = 10 * ((i + ranks - 1) % ranks) + 2;
        const int from_right = 10 * ((i + 1) % ranks) + 1;
        as_sent += all[2 * i] == from_left && all[2 * i + 1] == from_right;
        crossed += all[2 * i] == from_right && all[2 * i + 1] == from_left;
    }
    printf("%d ranks, %s: rank 0 has %d from the left, %d from the right: %s\n", ranks, name,
           all[0], all[1], as_sent == ranks ? "right" : crossed == ranks ? "SWAPPED" : "neither");
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int periodic = 1, counts[2] = {1, 1}, places[2] = {0, 1};
    MPI_Comm ring;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
    MPI_Cart_shift(ring, 0, 1, &left, &right);
    const int sent[2] = {10 * rank + 1, 10 * rank + 2}; /* to the left, to the right */
    MPI_Request request;

    int a[2] = {-1, -1};
    MPI_Status status;
    MPI_Sendrecv(&sent[1], 1, MPI_INT, right, 0, &a[0], 1, MPI_INT, left, 0, ring, &status);
    MPI_Sendrecv(&sent[0], 1, MPI_INT, left, 1, &a[1], 1, MPI_INT, right, 1, ring, &status);
    show("MPI_Sendrecv", a);
    int b[2] = {-1, -1};
    MPI_Neighbor_alltoall(sent, 1, MPI_INT, b, 1, MPI_INT, ring);
    show("MPI_Neighbor_alltoall", b);
    int c[2] = {-1, -1};
    MPI_Ineighbor_alltoall(sent, 1, MPI_INT, c, 1, MPI_INT, ring, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    show("MPI_Ineighbor_alltoall", c);
    int d[2] = {-1, -1};
    MPI_Neighbor_alltoallv(sent, counts, places, MPI_INT, d, counts, places, MPI_INT, ring);
    show("MPI_Neighbor_alltoallv", d);
    int e[2] = {-1, -1};
    MPI_Ineighbor_alltoallv(sent, counts, places, MPI_INT, e, counts, places, MPI_INT, ring,
                            &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    show("MPI_Ineighbor_alltoallv", e);
    MPI_Finalize();
}
C
gcc -O1 -I"$lib/openmpi/include" ring.c -o ring.openmpi "$lib/openmpi/lib/libmpi.so" \
  -Wl,--allow-shlib-undefined || exit 2
gcc -O1 -I"$lib/mpich/include" -I"$work/root/usr/include/x86_64-linux-gnu/mpich" ring.c \
  -o ring.mpich "$lib/libmpich.so.12" -Wl,--allow-shlib-undefined || exit 2

echo "${pinned[*]}, $(gcc --version | head -n 1)"
for n in 1 2 3; do
  echo "Open MPI"
  timeout 60 mpirun.openmpi --oversubscribe -np $n ./ring.openmpi 2>log
  echo "MPICH"
  timeout 60 mpiexec.hydra -launcher fork -n $n ./ring.mpich 2>log
done | tee seen
cat >expected <<'TEXT'
Open MPI
1 ranks, MPI_Sendrecv: rank 0 has 2 from the left, 1 from the right: right
1 ranks, MPI_Neighbor_alltoall: rank 0 has 2 from the left, 1 from the right: right
1 ranks, MPI_Ineighbor_alltoall: rank 0 has 1 from the left, 2 from the right: SWAPPED
1 ranks, MPI_Neighbor_alltoallv: rank 0 has 2 from the left, 1 from the right: right
1 ranks, MPI_Ineighbor_alltoallv: rank 0 has 1 from the left, 2 from the right: SWAPPED
MPICH
1 ranks, MPI_Sendrecv: rank 0 has 2 from the left, 1 from the right: right
1 ranks, MPI_Neighbor_alltoall: rank 0 has 2 from the left, 1 from the right: right
1 ranks, MPI_Ineighbor_alltoall: rank 0 has 2 from the left, 1 from the right: right
1 ranks, MPI_Neighbor_alltoallv: rank 0 has 1 from the left, 2 from the right: SWAPPED
1 ranks, MPI_Ineighbor_alltoallv: rank 0 has 1 from the left, 2 from the right: SWAPPED
Open MPI
2 ranks, MPI_Sendrecv: rank 0 has 12 from the left, 11 from the right: right
2 ranks, MPI_Neighbor_alltoall: rank 0 has 12 from the left, 11 from the right: right
2 ranks, MPI_Ineighbor_alltoall: rank 0 has 11 from the left, 12 from the right: SWAPPED
2 ranks, MPI_Neighbor_alltoallv: rank 0 has 12 from the left, 11 from the right: right
2 ranks, MPI_Ineighbor_alltoallv: rank 0 has 11 from the left, 12 from the right: SWAPPED
MPICH
2 ranks, MPI_Sendrecv: rank 0 has 12 from the left, 11 from the right: right
2 ranks, MPI_Neighbor_alltoall: rank 0 has 12 from the left, 11 from the right: right
2 ranks, MPI_Ineighbor_alltoall: rank 0 has 12 from the left, 11 from the right: right
2 ranks, MPI_Neighbor_alltoallv: rank 0 has 11 from the left, 12 from the right: SWAPPED
2 ranks, MPI_Ineighbor_alltoallv: rank 0 has 11 from the left, 12 from the right: SWAPPED
Open MPI
3 ranks, MPI_Sendrecv: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Neighbor_alltoall: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Ineighbor_alltoall: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Neighbor_alltoallv: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Ineighbor_alltoallv: rank 0 has 22 from the left, 11 from the right: right
MPICH
3 ranks, MPI_Sendrecv: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Neighbor_alltoall: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Ineighbor_alltoall: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Neighbor_alltoallv: rank 0 has 22 from the left, 11 from the right: right
3 ranks, MPI_Ineighbor_alltoallv: rank 0 has 22 from the left, 11 from the right: right
TEXT
diff expected seen || { tail -n 5 log; echo "changed: other neighbours" >&2; exit 1; }
echo "as seen on 2026-12-02"
