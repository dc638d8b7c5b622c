#!/usr/bin/env bash
# METIS partitions by weights modulo 2^32: where their total passes 2^31, one part gets nearly all
# of the graph, status and reported balance being those of a success.
#
# Packages: Debian 12's metis and libmetis5 5.1.0.dfsg-7.
# Seen: a grid of 100 vertices of one weight each, in two parts. With 21,400,000 (2.14e9 in all)
# they are 50 and 50. With 30,000,000 (3e9) all 100 are in one part and the cut is 0; the "balance"
# has a negative target, 2.000 out of -0.046. With 60,000,000 (6e9) they are 14 and 86, and METIS
# calls that balanced, 1.015 of what is the best. Both ways to partition (k-way, bisection) do it,
# and the exit status is 0. Each weight is well within the 32 bits of METIS' integers.
# Likely guess: right, since only each weight has to fit, or METIS_ERROR_INPUT as for other values
# that cannot be; at least the figure of balance shows it.
# Why it matters: the weights of a model's layers are bytes or operations: 100 layers of 60 MB are
# 6e9. Placed on two devices, one gets 86 of them and runs out of memory, with a report of 1.5%
# imbalance. In kilobytes the same graph is split in halves.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(metis=5.1.0.dfsg-7 libmetis5=5.1.0.dfsg-7)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu PATH=$work/root/usr/bin:$PATH

# grid WEIGHT: 10 x 10 vertices as METIS reads graphs, with a weight before each one's neighbours.
grid() {
  awk -v weight="$1" 'BEGIN {
    print 100, 180, "010"
    for (i = 0; i < 100; ++i)
      print weight, (i % 10 ? i : ""), (i % 10 < 9 ? i + 2 : ""), (i < 10 ? "" : i - 9),
        (i < 90 ? i + 11 : "")
  }'
}

echo "${pinned[*]}"
for weight in 60000 21400000 30000000 45000000 60000000; do
  grid $weight >graph
  for way in kway rb; do
    gpmetis -ptype=$way graph 2 >log && status=$?
    echo "100 x $weight, $way: status $status," \
      "$(sed -n 's/.*Edgecut: \([0-9]*\),.*/cut \1/p' log)," \
      "balance $(sed -n 's/.*constraint #0: *//p' log)," \
      "vertices $(sort graph.part.2 | uniq -c | awk '{print $1}' | paste -sd ' ')"
  done
done | tee seen
cat >expected <<'TEXT'
100 x 60000, kway: status 0, cut 10, balance 1.000 out of 0.020, vertices 50 50
100 x 60000, rb: status 0, cut 10, balance 1.000 out of 0.020, vertices 50 50
100 x 21400000, kway: status 0, cut 10, balance 1.000 out of 0.020, vertices 50 50
100 x 21400000, rb: status 0, cut 10, balance 1.000 out of 0.020, vertices 50 50
100 x 30000000, kway: status 0, cut 0, balance 2.000 out of -0.046, vertices 100
100 x 30000000, rb: status 0, cut 0, balance 2.000 out of -0.046, vertices 100
100 x 45000000, kway: status 0, cut 3, balance 1.122 out of 0.439, vertices 2 98
100 x 45000000, rb: status 0, cut 3, balance 1.122 out of 0.439, vertices 2 98
100 x 60000000, kway: status 0, cut 9, balance 1.015 out of 0.070, vertices 14 86
100 x 60000000, rb: status 0, cut 9, balance 1.015 out of 0.070, vertices 14 86
TEXT
diff expected seen || { echo "changed: other parts" >&2; exit 1; }
echo "as seen on 2026-12-01"
