#!/usr/bin/env bash
# Eigen adds up bfloat16 and half numbers in their own precision, but not everywhere: of 4,096 ones
# a matrix times a vector is 4096, times a matrix 512, and their dot product and sum are 256.
#
# Packages: Debian 12's libeigen3-dev 3.4.0-4; compiled with the g++ that is there, for x86-64 as
# such.
# Seen: a bfloat16 sum stops at 256, as 257 is rounded to 256, so that mean() of 1,024 ones is 0.25
# and of 4,096 ones 0.0625. A matrix product adds blocks of as many terms as fit into the cache: 256
# for each block, and one row of the same product is another number than two rows are. A matrix
# times a vector is right here. Half stops at 2048: mean() of 4,096 ones is 0.5, the product 4088.
# Likely guess: sums are kept in float and rounded at the end, as in oneDNN, cuBLAS and PyTorch; or
# they are rounded everywhere alike.
# Why it matters: layers are wider than 256. A token's logits, which are a matrix times a vector,
# are right, and the same prompt in a batch is a matrix product and is off by a factor; it changes
# with the processor's cache. An average of bfloat16 losses over a batch of 1,024 is a quarter.
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

cat >ones.cpp <<'CPP'
#include <Eigen/Core>
#include <cstdio>

template <typename Scalar>
void show(const char* name, int n) {
  using vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;
  using matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
  const vector x = vector::Constant(n, Scalar(1.f));
  const matrix a = matrix::Constant(16, n, Scalar(1.f));
  const matrix b = a.transpose();
  const matrix product = a * b, row = a.topRows(1) * b;
  const vector times = a * x;
  std::printf("%s, %d ones: matrix x vector %g, matrix x matrix %g, 1 row x matrix %g, dot %g, "
              "sum %g, mean %g\n",
              name, n, double(times(0)), double(product(0, 0)), double(row(0, 0)),
              double(x.dot(x)), double(x.sum()), double(x.mean()));
}

int main() {
  // Of a fixed size, so that the numbers are the same on every processor.
  Eigen::setCpuCacheSizes(32 << 10, 256 << 10, 8 << 20);
  for (const int n : {256, 1024, 4096}) {
    show<float>("float", n);
    show<Eigen::bfloat16>("bfloat16", n);
    show<Eigen::half>("half", n);
  }
}
CPP
g++ -O1 -isystem root/usr/include/eigen3 ones.cpp -o ones || exit 2

echo "${pinned[*]}, $(g++ --version | head -n 1)"
./ones | tee seen
cat >expected <<'TEXT'
float, 256 ones: matrix x vector 256, matrix x matrix 256, 1 row x matrix 256, dot 256, sum 256, mean 1
bfloat16, 256 ones: matrix x vector 256, matrix x matrix 256, 1 row x matrix 256, dot 256, sum 256, mean 1
half, 256 ones: matrix x vector 256, matrix x matrix 256, 1 row x matrix 256, dot 256, sum 256, mean 1
float, 1024 ones: matrix x vector 1024, matrix x matrix 1024, 1 row x matrix 1024, dot 1024, sum 1024, mean 1
bfloat16, 1024 ones: matrix x vector 1024, matrix x matrix 256, 1 row x matrix 256, dot 256, sum 256, mean 0.25
half, 1024 ones: matrix x vector 1024, matrix x matrix 1024, 1 row x matrix 1024, dot 1024, sum 1024, mean 1
float, 4096 ones: matrix x vector 4096, matrix x matrix 4096, 1 row x matrix 4096, dot 4096, sum 4096, mean 1
bfloat16, 4096 ones: matrix x vector 4096, matrix x matrix 512, 1 row x matrix 256, dot 256, sum 256, mean 0.0625
half, 4096 ones: matrix x vector 4096, matrix x matrix 4088, 1 row x matrix 2048, dot 2048, sum 2048, mean 0.5
TEXT
diff expected seen || { echo "changed: other sums" >&2; exit 1; }
echo "as seen on 2026-12-01"
