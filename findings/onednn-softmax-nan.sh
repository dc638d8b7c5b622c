#!/usr/bin/env bash
# oneDNN's exponential of NaN is infinity, and so its softmax of a row that has one NaN is a row of
# zeros with a NaN here and there.
#
# Packages: Debian 12's libdnnl2 and libdnnl-dev 2.6.3-1; compiled with the g++ that is there. Run
# with ONEDNN_MAX_CPU_ISA=SSE41, which any x86-64 processor of today has.
# Seen: of twenty equal logits one is NaN. With the NaN at place 3 the other nineteen results are 0;
# with the NaN at place 17 fourteen are 0, and NaN are those at 2, 6, 10, 14, 17 and 18. eltwise_exp
# of NaN is inf, while log, tanh, logistic and pow of NaN are NaN. With AVX2 the NaNs are at other
# places.
# Likely guess: NaN in the whole row, as the sum in the denominator is NaN; exp(NaN) is NaN.
# Why it matters: a NaN in a score is noticed by the NaN that comes out at the end. Here the row's
# weights are 0: attention of this row returns zeros, a sampler finds no probability, and an average
# over rows only shrinks. Where a NaN is left depends on the processor.
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

cat >rows.cpp <<'CPP'
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <vector>

using namespace dnnl;
using Row = std::vector<float>;

const engine cpu{engine::kind::cpu, 0};

template <class Primitive, class Desc>
Row run(const Desc& what, const memory::desc& form, const Row& row) {
  stream order{cpu};
  memory from{form, cpu}, to{form, cpu};
  std::memcpy(from.get_data_handle(), row.data(), row.size() * sizeof(float));
  Primitive{typename Primitive::primitive_desc{what, cpu}}.execute(
      order, {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
  order.wait();
  Row result(row.size());
  std::memcpy(result.data(), to.get_data_handle(), row.size() * sizeof(float));
  return result;
}

int main() {
  const auto* v = dnnl_version();
  std::printf("oneDNN %d.%d.%d\n", v->major, v->minor, v->patch);
  const memory::dim size = 20;
  for (int ill : {-1, 0, 3, 17, 19}) {
    Row row(size, 0.0f);
    if (ill >= 0) row[ill] = NAN;
    const memory::desc form{{1, size}, memory::data_type::f32, memory::format_tag::ab};
    const auto result = run<softmax_forward>(
        softmax_forward::desc{prop_kind::forward_inference, form, 1}, form, row);
    int zeros = 0;
    float sum = 0;
    std::printf("softmax, NaN at %d: NaN at", ill);
    for (int i = 0; i < size; ++i) {
      zeros += result[i] == 0;
      std::isnan(result[i]) ? void(std::printf(" %d", i)) : void(sum += result[i]);
    }
    std::printf("; %d zeros, the others' sum %.3f\n", zeros, sum);
  }
  const Row values{NAN, 0, 1, 2};
  const memory::desc form{{4}, memory::data_type::f32, memory::format_tag::a};
  const auto show = [&](const char* name, algorithm which) {
    const auto result = run<eltwise_forward>(
        eltwise_forward::desc{prop_kind::forward_inference, which, form, 1, 0.5f}, form, values);
      std::printf("%s of NaN: %f\n", name, std::fabs(result[0]));
  };
  show("exp", algorithm::eltwise_exp);
  show("log", algorithm::eltwise_log);
  show("tanh", algorithm::eltwise_tanh);
  show("logistic", algorithm::eltwise_logistic);
  show("pow 0.5", algorithm::eltwise_pow);
}
CPP
g++ -std=c++17 -O1 -isystem root/usr/include rows.cpp "$lib/libdnnl.so.2" \
  -Wl,--allow-shlib-undefined -o rows || exit 2
echo "${pinned[*]}, $(g++ --version | head -n 1)"
./rows | tee seen
cat >expected <<'TEXT'
oneDNN 2.6.3
softmax, NaN at -1: NaN at; 0 zeros, the others' sum 1.000
softmax, NaN at 0: NaN at 0; 19 zeros, the others' sum 0.000
softmax, NaN at 3: NaN at 3; 19 zeros, the others' sum 0.000
softmax, NaN at 17: NaN at 2 6 10 14 17 18; 14 zeros, the others' sum 0.000
softmax, NaN at 19: NaN at 0 4 8 12 16 19; 14 zeros, the others' sum 0.000
exp of NaN: inf
log of NaN: nan
tanh of NaN: nan
logistic of NaN: nan
pow 0.5 of NaN: nan
TEXT
diff expected seen || { echo "changed: a NaN comes out of softmax otherwise" >&2; exit 1; }
echo "as seen on 2026-12-01"
