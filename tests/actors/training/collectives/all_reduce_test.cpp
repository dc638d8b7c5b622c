#include "actors/training/collectives/host_all_reduce.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <deque>

#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "harness/facts.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

payload payload_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return payload{std::move(bytes)};
}

std::vector<float> values_of(const payload& p) {
  std::vector<float> values(p.bytes().size() / sizeof(float));
  std::memcpy(values.data(), p.bytes().data(), p.bytes().size());
  return values;
}

struct on_the_way {
  std::uint32_t to;
  tensor header;
  payload body;
};

/// All members exchange; tensors arrive in any order, some of them twice.
class group {
 public:
  group(std::uint32_t members, std::size_t values, std::uint64_t seed) : random_{seed} {
    for (std::uint32_t m = 0; m < members; ++m) {
      members_.emplace_back(members, m);
      auto& g = gradients_.emplace_back();
      for (std::size_t i = 0; i < values; ++i)
        g.push_back(static_cast<float>((random_.uniform() - 0.5) * 1e3));
    }
  }

  void run() {
    std::deque<std::uint32_t> to_begin;
    for (std::uint32_t m = 0; m < members_.size(); ++m) to_begin.push_back(m);
    while (!to_begin.empty() || !way_.empty()) {
      if (!to_begin.empty() && (way_.empty() || random_.chance(0.3))) {
        const auto at = random_.below(to_begin.size());
        const auto m = to_begin[at];
        to_begin.erase(to_begin.begin() + static_cast<std::ptrdiff_t>(at));
        post(m, members_[m].begin(payload_of(gradients_[m]), gradients_[m].size() * 4));
      } else {
        const auto at = random_.below(way_.size());
        const auto next = way_[at];
        if (!random_.chance(0.1)) way_.erase(way_.begin() + static_cast<std::ptrdiff_t>(at));
        post(next.to, members_[next.to].receive(next.header, next.body));
      }
    }
  }

  void post(std::uint32_t from, std::vector<host_all_reduce::outgoing> tensors) {
    for (auto& p : tensors) {
      tensor header;
      header.what = p.what;
      header.from = {1, from, 0};
      way_.push_back({p.to_pipeline, header, p.body});
      bytes_ += p.bytes;
    }
  }

  std::vector<float> sum_in_order() const {
    auto sum = gradients_[0];
    for (std::size_t m = 1; m < gradients_.size(); ++m)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients_[m][i];
    return sum;
  }

  std::vector<host_all_reduce> members_;
  std::uint64_t bytes_ = 0;

 private:
  random_source random_;
  std::vector<std::vector<float>> gradients_;
  std::vector<on_the_way> way_;
};

}  // namespace

TEST_CASE("every member ends with the sum in pipeline order, whoever is first") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const auto members = static_cast<std::uint32_t>(2 + seed % 5);
    group g{members, seed % 7 == 0 ? 3 : 100 + seed, seed};
    g.run();
    for (auto& m : g.members_) {
      REQUIRE(m.complete());
      CHECK(values_of(m.result()) == g.sum_in_order());  // bit for bit
    }
  }
}

TEST_CASE("an all-reduce sends as many bytes as a ring") {
  group g{4, 1000, 1};
  g.run();
  CHECK(g.bytes_ == 2 * 3 * 1000 * 4);  // 2 (n - 1) / n of the gradients from each of n
}

TEST_CASE("gradients of another size are not summed, and the error names their pipeline") {
  const std::vector<float> ten(10, 1), nine(9, 1), five(5, 1), four(4, 1);
  const auto from = [](std::uint32_t pipeline, tensor::kind what) {
    tensor t;
    t.what = what;
    t.from = {1, pipeline, 0};
    return t;
  };
  for (const bool late : {false, true}) {
    host_all_reduce part{2, 0}, sum{2, 0};
    if (late) part.begin(payload_of(ten), 40), sum.begin(payload_of(ten), 40);
    part.receive(from(1, tensor::kind::partial), payload_of(four));
    sum.receive(from(1, tensor::kind::partial), payload_of(five));
    sum.receive(from(1, tensor::kind::sum), payload_of(nine));
    if (!late) part.begin(payload_of(ten), 40), sum.begin(payload_of(ten), 40);
    CHECK(troupe::test::has_facts(part.error(), {"pipeline 1", "16 bytes", "20"}));
    CHECK(troupe::test::has_facts(sum.error(), {"pipeline 1", "36 bytes", "20"}));
    CHECK_FALSE(part.complete());
    CHECK_FALSE(sum.complete());
  }
}

TEST_CASE("a tied embedding's gradients of another size are not summed either") {
  stage_setup s;
  s.stages = 2;
  s.model.tied_head = true;
  tensor t;
  t.what = tensor::kind::tied_partial;
  t.from = {1, 0, 1};
  gradient_all_reduce first{s};
  first.receive(t, payload_of({1, 2, 3}));
  first.begin(payload_of({1}), 4, payload_of({1, 2}), 8);
  CHECK(troupe::test::has_facts(first.error(), {"12 bytes", "8"}));
  CHECK_FALSE(first.complete());
  s.name.stage = 1;
  t.what = tensor::kind::tied_sum;
  gradient_all_reduce last{s};
  last.begin(payload_of({1}), 4, payload_of({1, 2}), 8);
  last.receive(t, {});
  CHECK(troupe::test::has_facts(last.error(), {"0 bytes", "8"}));
  CHECK_FALSE(last.complete());
}
