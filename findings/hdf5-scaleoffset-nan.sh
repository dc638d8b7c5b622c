#!/usr/bin/env bash
# In a chunk of HDF5 that is compressed with scale-offset, a NaN becomes the chunk's least number;
# where a NaN is the first one, the whole chunk becomes zero.
#
# Packages: Debian 12's hdf5-tools and libhdf5-103-1 1.10.8+repack1-1.
# Seen: h5repack -f SOFF=2,DS keeps two decimals. Of the floats -1.25, 2.5, NaN, 4.75, ... the NaN
# is read as -1.25, and of NaN, 2.5, 3.25, ... all six are read as 0. Doubles lose a NaN as floats
# do, but not a chunk that begins with one. The numbers in other chunks of the dataset are right.
# For a chunk with an infinity, or with 1e30, the filter stores all its numbers without loss.
# h5repack's exit status is 0.
# Likely guess: a NaN stays, or its chunk is stored without loss, as with an infinity; the other
# numbers are within the 0.005 that was asked for in any case.
# Why it matters: the filter is for series with few digits: losses, metrics, temperatures. NaN is
# what a training writes when it has failed, and a logger where a value is missing. The sign that
# something failed is gone, and in its place is the least loss of all; a series that begins with a
# missing value is zeros.
# Date: 2026-12-02
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(hdf5-tools=1.10.8+repack1-1 libhdf5-103-1=1.10.8+repack1-1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu PATH=$work/root/usr/bin:$PATH

# numbers FILE: the dataset's numbers in one line.
numbers() {
  h5dump -y -w 200 -m %.4g -d loss "$1" | sed -n '/DATA {/,/}/p' | tr -d '\n' | tr -s ' ' |
    sed 's/.*DATA { //; s/ }.*//'
}

echo "${pinned[*]}, $(h5repack --version)"
while read -r line; do
  for type in 32 64; do
    rm -f ./*.h5
    printf '%s\n' "$line" >input
    printf 'PATH loss\nINPUT-CLASS TEXTFP\nRANK 1\nDIMENSION-SIZES 12\n' >layout
    printf 'OUTPUT-CLASS FP\nOUTPUT-SIZE %d\n' $type >>layout
    h5import input -c layout -o plain.h5
    status=0
    h5repack -l CHUNK=6 -f SOFF=2,DS plain.h5 packed.h5 || status=$?
    echo "float$type $(numbers plain.h5)"
    echo "  in chunks of 6, status $status: $(numbers packed.h5)"
  done
done <<'TEXT' | tee seen
-1.25 2.5 3.25 4.75 0.5 1.75 1.25 2.5 3.25 4.75 0.5 1.75
-1.25 2.5 nan 4.75 0.5 1.75 1.25 2.5 3.25 4.75 0.5 1.75
1.25 2.5 3.25 4.75 0.5 1.75 nan 2.5 3.25 4.75 0.5 1.75
-1.25 2.5 -inf 4.75 0.5 1.75 1.25 2.5 1e30 4.75 0.5 1.75
TEXT
cat >expected <<'TEXT'
float32 -1.25, 2.5, 3.25, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
  in chunks of 6, status 0: -1.25, 2.5, 3.25, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
float64 -1.25, 2.5, 3.25, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
  in chunks of 6, status 0: -1.25, 2.5, 3.25, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
float32 -1.25, 2.5, nan, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
  in chunks of 6, status 0: -1.25, 2.5, -1.25, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
float64 -1.25, 2.5, nan, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
  in chunks of 6, status 0: -1.25, 2.5, -1.25, 4.75, 0.5, 1.75, 1.25, 2.5, 3.25, 4.75, 0.5, 1.75
float32 1.25, 2.5, 3.25, 4.75, 0.5, 1.75, nan, 2.5, 3.25, 4.75, 0.5, 1.75
  in chunks of 6, status 0: 1.25, 2.5, 3.25, 4.75, 0.5, 1.75, 0, 0, 0, 0, 0, 0
float64 1.25, 2.5, 3.25, 4.75, 0.5, 1.75, nan, 2.5, 3.25, 4.75, 0.5, 1.75
  in chunks of 6, status 0: 1.25, 2.5, 3.25, 4.75, 0.5, 1.75, nan, 2.5, 3.25, 4.75, 0.5, 1.75
float32 -1.25, 2.5, -inf, 4.75, 0.5, 1.75, 1.25, 2.5, 1e+30, 4.75, 0.5, 1.75
  in chunks of 6, status 0: -1.25, 2.5, -inf, 4.75, 0.5, 1.75, 1.25, 2.5, 1e+30, 4.75, 0.5, 1.75
float64 -1.25, 2.5, -inf, 4.75, 0.5, 1.75, 1.25, 2.5, 1e+30, 4.75, 0.5, 1.75
  in chunks of 6, status 0: -1.25, 2.5, -inf, 4.75, 0.5, 1.75, 1.25, 2.5, 1e+30, 4.75, 0.5, 1.75
TEXT
diff expected seen || { echo "changed: other numbers" >&2; exit 1; }
echo "as seen on 2026-12-02"
