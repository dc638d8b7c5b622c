#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "planners/sample.hpp"
#include "planners/titan/switch_time.hpp"

// One pipeline after another on the same devices, operation by operation, against the formula that
// policies count with.

using namespace troupe;
using namespace troupe::planners;

namespace {

/// A pipeline under GPipe with stages of equal times.
struct gpipe_shape {
  std::uint32_t stages = 1, microbatches = 1;
  double forward_s = 1, backward_s = 2;

  double alone_s() const { return (microbatches + stages - 1) * (forward_s + backward_s); }
};

struct device_times {
  double begin_s = 0;  // of its first forward
  double end_s = 0;    // of its last backward
};

/// Runs every operation once its device and what it needs are ready. `ready_s`: when each stage may
/// begin.
std::vector<device_times> run(const gpipe_shape& p, const std::vector<double>& ready_s) {
  std::vector<device_times> out(p.stages);
  std::vector<std::vector<double>> forward(p.stages, std::vector<double>(p.microbatches));
  auto backward = forward;
  for (std::uint32_t s = 0; s < p.stages; ++s) {
    double free_s = ready_s[s];
    for (std::uint32_t m = 0; m < p.microbatches; ++m) {
      const double begin_s = std::max(free_s, s == 0 ? 0 : forward[s - 1][m]);
      if (m == 0) out[s].begin_s = begin_s;
      free_s = forward[s][m] = begin_s + p.forward_s;
    }
  }
  for (auto s = p.stages; s-- > 0;) {
    double free_s = forward[s].back();
    for (auto m = p.microbatches; m-- > 0;) {
      const double needed_s = s + 1 == p.stages ? forward[s].back() : backward[s + 1][m];
      free_s = backward[s][m] = std::max(free_s, needed_s) + p.backward_s;
    }
    out[s].end_s = free_s;
  }
  return out;
}

double end_of(const std::vector<device_times>& all) {
  return std::ranges::max(all, {}, &device_times::end_s).end_s;
}

}  // namespace

TEST_CASE("a pipeline that follows another begins where that one leaves first") {
  const gpipe_shape x{4, 6, 1, 2}, y{4, 3, 0.5, 1};
  const auto first = run(x, std::vector<double>(x.stages, 0));
  CHECK(end_of(first) == Approx(x.alone_s()));
  // The last stage ends first: the other pipeline's stage 0 is there.
  CHECK(std::ranges::is_sorted(first, std::greater{}, &device_times::end_s));
  std::vector<switch_stage> stages;
  std::vector<double> ready_s;
  for (auto s = x.stages; s-- > 0;) {
    stages.push_back({first[s].end_s, 0.25});
    ready_s.push_back(first[s].end_s + 0.25);
  }
  const auto second = run(y, ready_s);
  for (std::uint32_t s = 0; s < y.stages; ++s) {
    // On each device: the first pipeline's last backward, both copies, the first forward.
    CHECK(second[s].begin_s >= stages[s].free_s + stages[s].copy_s);
  }
  CHECK(followed_end_s(stages, y.forward_s, y.alone_s()) == Approx(end_of(second)).epsilon(1e-12));
  // In the order of X's stages it would wait for the device that X leaves last.
  std::ranges::reverse(stages);
  CHECK(followed_end_s(stages, y.forward_s, y.alone_s()) > end_of(second));
}

TEST_CASE("the predicted end of two pipelines is that of their operations, whatever their shapes") {
  random_source r{3};
  for (int i = 0; i < 2000; ++i) {
    const auto stages = static_cast<std::uint32_t>(1 + r.below(8));
    const auto shape = [&] {
      return gpipe_shape{stages, static_cast<std::uint32_t>(1 + r.below(8)), 0.1 + r.uniform(),
                         0.1 + 2 * r.uniform()};
    };
    const auto x = shape(), y = shape();
    const auto first = run(x, std::vector<double>(stages, 0));
    std::vector<switch_stage> all;
    std::vector<double> ready_s;
    for (auto s = stages; s-- > 0;) {
      all.push_back({first[s].end_s, 2 * r.uniform()});
      ready_s.push_back(all.back().free_s + all.back().copy_s);
    }
    const double end_s = end_of(run(y, ready_s));
    CHECK(followed_end_s(all, y.forward_s, y.alone_s()) == Approx(end_s).epsilon(1e-9));
  }
}

TEST_CASE("a naive switch takes one step after another, a pipelined one the longer copy") {
  const switch_bytes x{4e9, 12e9, 2e9, 6e9}, y{1e9, 3e9, 1e9, 3e9};
  const switch_rates rates{40, 1e9, 2e9};
  CHECK(naive_switch_s(x, y, rates) == Approx(40 + 6 + 6 + 0.5 + 1));
  CHECK(pipelined_switch_s(x, y, rates, true) == Approx(6));   // x's copy out hides y's copy in
  CHECK(pipelined_switch_s(x, y, rates, false) == Approx(7));  // the GPU holds one of them only
}

TEST_CASE("replicas load and store what one of them does, shards a part each") {
  plan how;
  how.data_parallel = 4;
  const auto replicas = bytes_to_switch(sample::gpt2_350m, how);
  CHECK(replicas.load_per_gpu == replicas.load);
  CHECK(replicas.store == Approx(3 * replicas.load));
  how.data_parallel = 1;
  how.tensor_parallel = 4;
  const auto shards = bytes_to_switch(sample::gpt2_350m, how);
  CHECK(shards.load == replicas.load);
  CHECK(shards.load_per_gpu == Approx(replicas.load / 4));
}

TEST_CASE("nodes are taken in the reverse order of the job before") {
  const allocation before{{5, 4}, {2, 4}, {7, 4}};
  CHECK(in_switch_order(before, {{2, 4}, {5, 4}, {7, 4}}) == allocation{{7, 4}, {2, 4}, {5, 4}});
  CHECK(in_switch_order(before, {{1, 4}, {2, 4}}) == allocation{{2, 4}, {1, 4}});
}
