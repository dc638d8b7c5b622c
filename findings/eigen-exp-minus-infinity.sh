#!/usr/bin/env bash
# Eigen's exp of minus infinity is 2.9e-39 for the elements that it computes as vectors, and 0 for
# those that are left over: a masked row's softmax is 0.25 0.25 0.25 0.25 0.
#
# Packages: Debian 12's libeigen3-dev 3.4.0-4; compiled with the g++ that is there, for x86-64 as
# such (vectors of four floats).
# Seen: of five floats of -Infinity the first four have exp 2.94e-39 and the last 0; of three all
# have 0. -90 is 2.94e-39 and 8.2e-40, -1000 is 2.94e-39 and 0. Doubles are alike: 5.6e-309 and 0.
# e / sum(e) of a row that is masked throughout is NaN for three elements, 0.25 0.25 0.25 0.25 0 for
# five. log of 1e-40 is -87.3 in the first four and -92.1 in the last, log(exp(-Infinity)) -87.3
# and -Infinity.
# Likely guess: exp(-Infinity) is 0, as IEEE 754 and every libm have it, and no element's value
# depends on its place; the last bits may differ.
# Why it matters: attention masks with -Infinity and counts on the 0: a row without any key is to be
# NaN or is recognised by its sum of 0. Here it becomes the mean of four values that were masked,
# which ones depends on the row's length, and a test with a row of three shows something else.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v g++ >/dev/null || { echo "needs g++" >&2; exit 2; }
pinned=(libeigen3-dev=3.4.0-4)
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" || exit 2
for package in *.deb; do dpkg -x "$package" root; done

cat >exp.cpp <<'CPP'
#include <Eigen/Core>
#include <cmath>
#include <cstdio>
#include <limits>

template <typename Array>
void print(const char* name, const Array& values) {
  std::printf("%s:", name);
  for (const double value : values)
    std::isnan(value) ? std::printf(" NaN") : std::printf(" %.3g", value);
  std::printf("\n");
}

Eigen::ArrayXf exp_of(int n, float value) {
  return Eigen::ArrayXf::Constant(n, value).exp();
}

int main() {
  const float masked = -std::numeric_limits<float>::infinity();
  for (const int n : {3, 5}) {
    const Eigen::ArrayXf e = exp_of(n, masked);
    print("exp(-Infinity)", e);
    print("softmax of a masked row", Eigen::ArrayXf(e / e.sum()));
  }
  print("exp(-88)", exp_of(5, -88));
  print("exp(-90)", exp_of(5, -90));
  print("exp(-1000)", exp_of(5, -1000));
  print("exp(-Infinity) of doubles", Eigen::ArrayXd(Eigen::ArrayXd::Constant(5, masked).exp()));
  print("log(exp(-Infinity))", Eigen::ArrayXf(exp_of(5, masked).log()));
  print("log(1e-40)", Eigen::ArrayXf(Eigen::ArrayXf::Constant(5, 1e-40f).log()));
}
CPP
g++ -O1 -isystem root/usr/include/eigen3 exp.cpp -o exp || exit 2

echo "${pinned[*]}, $(g++ --version | head -n 1)"
./exp | tee seen
cat >expected <<'TEXT'
exp(-Infinity): 0 0 0
softmax of a masked row: NaN NaN NaN
exp(-Infinity): 2.94e-39 2.94e-39 2.94e-39 2.94e-39 0
softmax of a masked row: 0.25 0.25 0.25 0.25 0
exp(-88): 6.05e-39 6.05e-39 6.05e-39 6.05e-39 6.05e-39
exp(-90): 2.94e-39 2.94e-39 2.94e-39 2.94e-39 8.19e-40
exp(-1000): 2.94e-39 2.94e-39 2.94e-39 2.94e-39 0
exp(-Infinity) of doubles: 5.56e-309 5.56e-309 5.56e-309 5.56e-309 0
log(exp(-Infinity)): -87.3 -87.3 -87.3 -87.3 -inf
log(1e-40): -87.3 -87.3 -87.3 -87.3 -92.1
TEXT
diff expected seen || { echo "changed: other values" >&2; exit 1; }
echo "as seen on 2026-12-01"
