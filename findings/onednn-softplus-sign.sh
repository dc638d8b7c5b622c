#!/usr/bin/env bash
# oneDNN's softplus (eltwise_soft_relu) is 0 or negative over much of its tail, where the true value
# is small and positive: its logarithm is good to some 2e-6 only.
#
# Packages: Debian 12's libdnnl2 and libdnnl-dev 2.6.3-1; compiled with the g++ that is there. Run
# with ONEDNN_MAX_CPU_ISA=SSE41, which any x86-64 processor of today has.
# Seen: of the values from -25 to 0 in steps of 0.01, 207 between -23.91 and -17.68 have a negative
# softplus (-1.9e-6) and 804 one of 0, at -15 already, where it is 3e-7. It goes up and down: 0 at
# -15, 9.5e-7 at -16, negative at -18. log(2) is 24 units in the last place off. AVX2 has the same
# signs.
# Likely guess: log(1 + exp(x)) to a few units in the last place, or at worst that of a log that is
# accurate to one: 0 below -17, and positive above.
# Why it matters: softplus is taken to have a positive step size, variance or rate, in state-space
# models and in policies. A negative one is the square root's or the logarithm's NaN, or a sign
# that turns; the model was trained with another library's softplus, which is positive.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v g++ >/dev/null || { echo "needs g++" >&2; exit 2; }
# The pinned packages, and of what they need only what this machine lacks.
pinned=(libdnnl2=2.6.3-1 libdnnl-dev=2.6.3-1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$lib ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1

cat >tail.cpp <<'CPP'
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <vector>

using namespace dnnl;
using Values = std::vector<float>;

Values run(algorithm which, const Values& values) {
  const engine cpu{engine::kind::cpu, 0};
  stream order{cpu};
  const memory::desc form{
      {memory::dim(values.size())}, memory::data_type::f32, memory::format_tag::a};
  memory from{form, cpu}, to{form, cpu};
  std::memcpy(from.get_data_handle(), values.data(), values.size() * sizeof(float));
  eltwise_forward{{{prop_kind::forward_inference, which, form, 0, 0}, cpu}}.execute(
      order, {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
  order.wait();
  Values result(values.size());
  std::memcpy(result.data(), to.get_data_handle(), values.size() * sizeof(float));
  return result;
}

int main() {
  const auto* v = dnnl_version();
  std::printf("oneDNN %d.%d.%d\n", v->major, v->minor, v->patch);
  const Values some{-5, -10, -13, -14, -15, -16, -18, -20, -22};
  const auto softplus = run(algorithm::eltwise_soft_relu, some);
  for (std::size_t i = 0; i < some.size(); ++i)
    std::printf("softplus(%g) = %.2e, is %.2e\n", some[i], softplus[i],
                std::log1p(std::exp(double(some[i]))));
  Values all;
  for (int i = -2500; i <= 0; ++i) all.push_back(float(i) / 100);
  const auto tail = run(algorithm::eltwise_soft_relu, all);
  int negative = 0, zero = 0;
  float first = 0, last = -100;
  for (std::size_t i = 0; i < all.size(); ++i) {
    zero += tail[i] == 0;
    if (tail[i] >= 0) continue;
    ++negative;
    first = std::fmin(first, all[i]);
    last = std::fmax(last, all[i]);
  }
  std::printf("of %zu values from -25 to 0: %d negative, from %.2f to %.2f; %d zero\n", all.size(),
              negative, first, last, zero);
  for (float x : {2.0f, 3.0f})
    std::printf("log(%g) = %.7f, is %.7f\n", x, run(algorithm::eltwise_log, {x})[0],
                std::log(double(x)));
}
CPP
g++ -std=c++17 -O1 -isystem root/usr/include tail.cpp "$lib/libdnnl.so.2" \
  -Wl,--allow-shlib-undefined -o tail || exit 2
echo "${pinned[*]}, $(g++ --version | head -n 1)"
./tail | tee seen
cat >expected <<'TEXT'
oneDNN 2.6.3
softplus(-5) = 6.72e-03, is 6.72e-03
softplus(-10) = 4.48e-05, is 4.54e-05
softplus(-13) = 2.86e-06, is 2.26e-06
softplus(-14) = 1.91e-06, is 8.32e-07
softplus(-15) = 0.00e+00, is 3.06e-07
softplus(-16) = 9.54e-07, is 1.13e-07
softplus(-18) = -1.91e-06, is 1.52e-08
softplus(-20) = -1.91e-06, is 2.06e-09
softplus(-22) = 0.00e+00, is 2.79e-10
of 2501 values from -25 to 0: 207 negative, from -23.91 to -17.68; 804 zero
log(2) = 0.6931458, is 0.6931472
log(3) = 1.0986086, is 1.0986123
TEXT
diff expected seen || { echo "changed: softplus has another tail" >&2; exit 1; }
echo "as seen on 2026-12-01"
