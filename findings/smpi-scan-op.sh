#!/usr/bin/env bash
# In SimGrid's MPI, MPI_Scan and MPI_Exscan do not apply an operation that is declared as not
# commutative: each rank gets its own value, or nothing.
#
# Packages: Debian 12's libsimgrid3.32 and libsimgrid-dev 3.32-2+b2; compiled with the gcc that is
# there.
# Seen: four ranks scan 1, 2, 3 and 4 with one function, a sum. Created with commute = 1 it gives 1,
# 3, 6 and 10; with commute = 0, which MPI allows for any operation, 1, 2, 3 and 4. MPI_Exscan then
# leaves the result on all ranks as it was. MPI_Allreduce gives 10 with both. No call returns an
# error. Open MPI 4.1.4 and MPICH 4.0.2 give the sums with both.
# Likely guess: the sum, as the function is the same; at worst in another order.
# Why it matters: linear recurrences, as state-space models have them, are scanned over ranks with
# an operation that is associative and does not commute; MPI_Scan is for such ones. SMPI is there to
# run and check MPI programs on one machine, with any number of ranks: their results are wrong in
# the simulation alone.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v gcc >/dev/null || { echo "needs gcc" >&2; exit 2; }
# The pinned packages, and of what they need only what this machine lacks.
pinned=(libsimgrid3.32=3.32-2+b2 libsimgrid-dev=3.32-2+b2)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$lib:$lib/simgrid

cat >sums.c <<'C'
#include <mpi.h>
#include <stdio.h>

static void sum(void* in, void* inout, int* count, MPI_Datatype* type) {
    (void)type;
    for (int i = 0; i < *count; ++i)
        ((int*)inout)[i] += ((int*)in)[i];
}

static int rank, ranks;

static void show(const char* name, int commutes, int result) {
    int all[8];
    MPI_Gather(&result, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return;
    printf("%s, %s:", name, commutes ? "commutative" : "not commutative");
    for (int i = 0; i < ranks; ++i)
        printf(" %d", all[i]);
    printf("\n");
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int commutes = 1; commutes >= 0; --commutes) {
        MPI_Op op;
        MPI_Op_create(sum, commutes, &op);
        const int mine = rank + 1;
        int out = 0;
        MPI_Allreduce(&mine, &out, 1, MPI_INT, op, MPI_COMM_WORLD);
        show("MPI_Allreduce", commutes, out);
        out = 0;
        MPI_Scan(&mine, &out, 1, MPI_INT, op, MPI_COMM_WORLD);
        show("MPI_Scan", commutes, out);
        out = 0;
        MPI_Exscan(&mine, &out, 1, MPI_INT, op, MPI_COMM_WORLD);
        show("MPI_Exscan", commutes, out);
        MPI_Op_free(&op);
    }
    MPI_Finalize();
}
C
gcc -O1 -fPIC -shared -include root/usr/include/smpi/smpi_helpers.h -Iroot/usr/include \
  -Iroot/usr/include/smpi sums.c -o sums.so "$lib/libsimgrid.so.3.32" -lm \
  -Wl,--allow-shlib-undefined || exit 2

cat >platform.xml <<'XML'
<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="n" suffix="" radical="0-3" speed="1Gf" bw="1GBps" lat="10us"/>
</platform>
XML
printf 'n%d\n' 0 1 2 3 >hosts
# The launcher has the paths of an installed package.
sed "s#/usr/lib/x86_64-linux-gnu/simgrid/#$lib/simgrid/#" root/usr/bin/smpirun >smpirun

echo "${pinned[*]}, $(gcc --version | head -n 1)"
timeout 100 sh smpirun -np 4 -platform platform.xml -hostfile hosts --cfg=smpi/host-speed:1Gf \
  --log=root.thres:critical ./sums.so 2>log | grep ^MPI_ | tee seen
cat >expected <<'TEXT'
MPI_Allreduce, commutative: 10 10 10 10
MPI_Scan, commutative: 1 3 6 10
MPI_Exscan, commutative: 0 1 3 6
MPI_Allreduce, not commutative: 10 10 10 10
MPI_Scan, not commutative: 1 2 3 4
MPI_Exscan, not commutative: 0 0 0 0
TEXT
diff expected seen || { tail -n 5 log; echo "changed: other sums" >&2; exit 1; }
echo "as seen on 2026-12-01"
