#!/usr/bin/env bash
# Longs written to a file in MPI's portable form, external32, come back as others: with Open MPI and
# with MPICH, element 1 is read as element 2.
#
# Packages: Debian 12's openmpi-bin, libopenmpi3 and libopenmpi-dev 4.1.4-3+b1; mpich, libmpich12
# and libmpich-dev 4.0.2-3+b1; compiled with the gcc that is there.
# Seen: 11, 22, 33 and 44 are written as MPI_LONG under a view of MPI_LONG. Read at the offsets 0
# and 1 they are 11 and 33; read in one piece they are right. Open MPI's file has 16 bytes, and the
# count of the write is 2 of 4; MPICH's has 32, of which the first half are the values. No call
# returns an error. As MPI_INT64_T, which is the same type of C here, they come back right.
# Likely guess: 4 or 8 bytes a long, and the values that were written; MPI_LONG as MPI_INT64_T.
# Why it matters: external32 is for files that other machines and other MPIs read: indices and
# counters of a data set or a checkpoint. Each rank reads its part at its offset, which is where the
# values are wrong; a numpy array of int64 is MPI_LONG for mpi4py.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v gcc >/dev/null || { echo "needs gcc" >&2; exit 2; }
# The pinned packages, and of what they need only what this machine lacks.
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

cat >longs.c <<'C'
#include <mpi.h>
#include <stdio.h>

static void file_of(const char* name, MPI_Datatype type) {
    const long values[4] = {11, 22, 33, 44};
    int failed = 0;
    int count = 0;
    MPI_Offset size = 0;
    MPI_Status status;
    MPI_File file;
    failed += MPI_File_open(MPI_COMM_SELF, (char*)name, MPI_MODE_CREATE | MPI_MODE_RDWR,
                            MPI_INFO_NULL, &file) != MPI_SUCCESS;
    failed += MPI_File_set_view(file, 0, type, type, "external32", MPI_INFO_NULL) != MPI_SUCCESS;
    failed += MPI_File_write_at(file, 0, values, 4, type, &status) != MPI_SUCCESS;
    MPI_Get_count(&status, type, &count);
    MPI_File_get_size(file, &size);
    printf("%s: %d bytes, count", name, (int)size);
    count == MPI_UNDEFINED ? printf(" undefined") : printf(" %d", count);
    printf(", elements 0 and 1:");
    for (int i = 0; i < 2; ++i) {
        long value = 0;
        failed += MPI_File_read_at(file, i, &value, 1, type, &status) != MPI_SUCCESS;
        printf(" %ld", value);
    }
    long all[4] = {0, 0, 0, 0};
    failed += MPI_File_read_at(file, 0, all, 4, type, &status) != MPI_SUCCESS;
    printf(", at once: %ld %ld %ld %ld, errors %d\n", all[0], all[1], all[2], all[3], failed);
    MPI_File_close(&file);
    remove(name);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    file_of("MPI_LONG", MPI_LONG);
    file_of("MPI_INT64_T", MPI_INT64_T);
    MPI_Finalize();
}
C
compile() { gcc -O1 -I"$lib/$1/include" longs.c "$lib/$2" -Wl,--allow-shlib-undefined -o "$1"; }
compile openmpi libmpi.so.40
compile mpich libmpich.so.12

echo "${pinned[*]}, $(gcc --version | head -n 1)"
for mpi in openmpi mpich; do
  echo "$mpi"
  timeout 100 "./$mpi" 2>>log | grep "^MPI_"
done | tee seen
cat >expected <<'TEXT'
openmpi
MPI_LONG: 16 bytes, count 2, elements 0 and 1: 11 33, at once: 11 22 33 44, errors 0
MPI_INT64_T: 32 bytes, count 4, elements 0 and 1: 11 22, at once: 11 22 33 44, errors 0
mpich
MPI_LONG: 32 bytes, count 4, elements 0 and 1: 11 33, at once: 11 22 33 44, errors 0
MPI_INT64_T: 32 bytes, count 4, elements 0 and 1: 11 22, at once: 11 22 33 44, errors 0
TEXT
diff expected seen || { tail -n 5 log; echo "changed: other values come back" >&2; exit 1; }
echo "as seen on 2026-12-01"
