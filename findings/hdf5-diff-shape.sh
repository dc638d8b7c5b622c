#!/usr/bin/env bash
# h5diff says that two files are the same, by its exit status and with -q by its silence, where
# their datasets have other shapes, or one has integers and the other floats.
#
# Packages: Debian 12's hdf5-tools and libhdf5-103-1 1.10.8+repack1-1.
# Seen: a 4 x 6 matrix of floats against one of 6 x 4, of 24, of 4 x 5, or of integers: exit status
# 0, that of equal files. A note says that some objects are not comparable; with -q there is none.
# One value that differs, a NaN in place of a number, or a dataset that is missing is status 1.
# Tolerances (-d) change nothing. Doubles against floats are compared by value. Where one dataset
# has other values and another one has another shape, the status is 1.
# Likely guess: status 1, as for every difference, or 2, an error; cmp, diff and a missing dataset
# have it so.
# Why it matters: tests compare a checkpoint with one that was converted, resharded or written by
# another version, by the exit status. A transposed matrix, a tensor that was cut, or one that
# became integers are the faults that they are there for, and these pass.
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

# dataset FILE NAME DIMENSIONS INPUT OUTPUT BITS: adds a dataset of the numbers of its input.
dataset() {
  cat >numbers
  printf 'PATH %s\nINPUT-CLASS TEXT%s\nRANK %d\nDIMENSION-SIZES %s\n' \
    "$2" "$4" "$(wc -w <<<"$3")" "$3" >layout
  printf 'OUTPUT-CLASS %s\nOUTPUT-SIZE %d\n' "$5" "$6" >>layout
  h5import numbers -c layout -o "$1.h5"
}
for file in weights again "6 4" 24 "4 5" integers double "other value" NaN missing "both"; do
  case $file in
    "6 4" | 24 | "4 5" | both) shape=$file ;;
    *) shape="4 6" ;;
  esac
  [ "$file" != both ] || shape="6 4"
  type=FP bits=32 input=FP last=24
  case $file in
    integers) type=IN input=IN ;;
    double) bits=64 ;;
    "other value") last=25 ;;
    NaN) last=nan ;;
  esac
  [ "$shape" = "4 5" ] && count=20 || count=24
  { seq $((count - 1)); echo $last; } | dataset "$file" weights "$shape" $input $type $bits
  [ "$file" = both ] && first=2 || first=1
  [ "$file" = missing ] || seq "$first" $((first + 2)) | dataset "$file" bias 3 FP FP 32
done

echo "${pinned[*]}, $(h5diff --version)"
for file in again "6 4" 24 "4 5" integers double "other value" NaN missing both; do
  status=0 quiet=0 close=0
  h5diff weights.h5 "$file.h5" >text || status=$?
  h5diff -q weights.h5 "$file.h5" >quietly || quiet=$?
  h5diff -d 0.5 weights.h5 "$file.h5" >/dev/null || close=$?
  echo "4 6 floats, and $file: status $status," \
    "$(if grep -q 'not comparable' text; then echo 'not comparable'; elif [ -s text ]; then
      grep -c 'differences found' text; else echo 'no text'; fi)," \
    "-q $quiet with $(wc -c <quietly) bytes, -d 0.5 $close"
done | tee seen
cat >expected <<'TEXT'
4 6 floats, and again: status 0, no text, -q 0 with 0 bytes, -d 0.5 0
4 6 floats, and 6 4: status 0, not comparable, -q 0 with 0 bytes, -d 0.5 0
4 6 floats, and 24: status 0, not comparable, -q 0 with 0 bytes, -d 0.5 0
4 6 floats, and 4 5: status 0, not comparable, -q 0 with 0 bytes, -d 0.5 0
4 6 floats, and integers: status 0, not comparable, -q 0 with 0 bytes, -d 0.5 0
4 6 floats, and double: status 0, no text, -q 0 with 0 bytes, -d 0.5 0
4 6 floats, and other value: status 1, 1, -q 1 with 0 bytes, -d 0.5 1
4 6 floats, and NaN: status 1, 1, -q 1 with 0 bytes, -d 0.5 1
4 6 floats, and missing: status 1, no text, -q 1 with 0 bytes, -d 0.5 1
4 6 floats, and both: status 1, not comparable, -q 1 with 0 bytes, -d 0.5 1
TEXT
diff expected seen || { echo "changed: other exit statuses" >&2; exit 1; }
echo "as seen on 2026-12-02"
