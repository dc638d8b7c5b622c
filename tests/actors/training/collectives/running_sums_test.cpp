#include <catch2/catch.hpp>

#include <cstring>
#include <map>
#include <numeric>

#include "actors/training/collectives/host_all_reduce.hpp"
#include "actors/training/collectives/sum_chain.hpp"
#include "harness/facts.hpp"
#include "messages/base/random.hpp"

// Sums of gradients whose members are in several datacenters.

using namespace troupe;
using namespace troupe::actors;

namespace {

using floats = std::vector<float>;

payload body_of(const floats& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return payload{std::move(bytes)};
}

floats floats_of(const payload& p) {
  floats values(p.bytes().size() / sizeof(float));
  std::memcpy(values.data(), p.bytes().data(), p.bytes().size());
  return values;
}

struct sent_sum {
  std::uint32_t from = 0, to = 0;
  host_all_reduce::outgoing what;
};

/// All members exchange. Tensors arrive in any order, some of them twice, and a share of them is
/// lost until its receiver says that it is missing.
class chained_members {
 public:
  chained_members(std::vector<std::uint32_t> datacenters, std::size_t values, std::uint64_t seed,
                  std::uint64_t max_chunk = 1U << 30)
      : random_{seed}, datacenters_{std::move(datacenters)} {
    const auto n = static_cast<std::uint32_t>(datacenters_.size());
    for (std::uint32_t m = 0; m < n; ++m) {
      members.emplace_back(n, m, datacenters_, max_chunk);
      auto& g = gradients.emplace_back();
      for (std::size_t i = 0; i < values; ++i)
        g.push_back(static_cast<float>((random_.uniform() - 0.5) * 1e3));
    }
  }

  void run(double lost = 0) {
    std::vector<std::uint32_t> to_begin(members.size());
    std::iota(to_begin.begin(), to_begin.end(), 0U);
    while (!to_begin.empty() || !way_.empty() || ask_again()) {
      if (!to_begin.empty() && (way_.empty() || random_.chance(0.3))) {
        const auto m = take(to_begin);
        post(m, members[m].begin(body_of(gradients[m]), gradients[m].size() * 4), lost);
        continue;
      }
      const auto repeated = random_.chance(0.1);
      const auto next = repeated ? way_[random_.below(way_.size())] : take(way_);
      tensor header;
      header.what = next.what.what;
      header.from = {1, next.from, 0};
      header.microbatch = next.what.chunk;
      post(next.to, members[next.to].receive(header, next.what.body), lost);
    }
  }

  floats in_order() const {
    auto sum = gradients[0];
    for (std::size_t m = 1; m < gradients.size(); ++m)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[m][i];
    return sum;
  }
  /// The sums of the datacenters' sums, which a chain must not make.
  floats as_a_tree() const {
    floats all;
    for (std::size_t m = 0; m < gradients.size();) {
      auto of_run = gradients[m];
      const auto here = datacenters_[m];
      for (++m; m < gradients.size() && datacenters_[m] == here; ++m)
        for (std::size_t i = 0; i < of_run.size(); ++i) of_run[i] += gradients[m][i];
      if (all.empty()) all.assign(of_run.size(), 0);
      for (std::size_t i = 0; i < of_run.size(); ++i) all[i] += of_run[i];
    }
    return all;
  }
  std::size_t boundaries() const {
    std::size_t n = 0;
    for (std::size_t m = 1; m < datacenters_.size(); ++m)
      n += datacenters_[m] != datacenters_[m - 1];
    return n;
  }

  std::vector<host_all_reduce> members;
  std::vector<floats> gradients;
  std::uint64_t wan_bytes = 0, largest_chunk = 0;
  int asked = 0;

 private:
  template <class T>
  T take(std::vector<T>& all) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(random_.below(all.size()));
    auto one = *at;
    all.erase(at);
    return one;
  }

  void post(std::uint32_t from, std::vector<host_all_reduce::outgoing> tensors, double lost) {
    for (auto& p : tensors) {
      if (datacenters_[from] != datacenters_[p.to_pipeline]) {
        wan_bytes += p.bytes;
        largest_chunk = std::max(largest_chunk, p.bytes);
      }
      const auto& kept = sent_[{from, p.to_pipeline, p.what, p.chunk}] = {from, p.to_pipeline, p};
      if (!random_.chance(lost)) way_.push_back(kept);
    }
  }

  /// Nothing is on its way: everybody asks for what it lacks. False: nobody can be answered.
  bool ask_again() {
    for (std::uint32_t m = 0; m < members.size(); ++m)
      for (const auto& lacks : members[m].missing())
        if (const auto at = sent_.find({lacks.from_pipeline, m, lacks.what, lacks.chunk});
            at != sent_.end()) {
          way_.push_back(at->second);
          ++asked;
        }
    return !way_.empty();
  }

  random_source random_;
  std::vector<std::uint32_t> datacenters_;
  std::vector<sent_sum> way_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, tensor::kind, std::uint32_t>, sent_sum> sent_;
};

std::vector<std::uint32_t> random_sites(random_source& r) {
  std::vector<std::uint32_t> sites(2 + r.below(6));
  for (auto& s : sites) s = static_cast<std::uint32_t>(r.below(3));
  std::sort(sites.begin(), sites.end(), [](auto a, auto b) { return a < b; });
  if (r.chance(0.3)) std::swap(sites.front(), sites.back());  // a datacenter comes twice
  return sites;
}

}  // namespace

TEST_CASE("members in several datacenters sum in the order of the pipelines, bit for bit") {
  random_source r{11};
  int several = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    chained_members g{random_sites(r), seed % 9 == 0 ? 2 : 60 + seed, seed};
    g.run();
    several += g.boundaries() > 1;
    for (auto& m : g.members) {
      REQUIRE(m.complete());
      CHECK(m.missing().empty());
      CHECK(floats_of(m.result()) == g.in_order());
    }
    // Each boundary of the order is crossed once in each direction.
    CHECK(g.wan_bytes == 2 * g.boundaries() * g.gradients[0].size() * 4);
  }
  CHECK(several > 30);
}

TEST_CASE("a sum of the datacenters' sums has other bits as soon as a later one has two members") {
  for (const auto& sites : std::vector<std::vector<std::uint32_t>>{{0, 1, 1}, {0, 1, 1, 2}}) {
    chained_members g{sites, 500, 3};
    g.run();
    CHECK(floats_of(g.members[0].result()) == g.in_order());
    CHECK(g.as_a_tree() != g.in_order());
  }
  chained_members two_first{{0, 0, 1}, 500, 3};
  CHECK(two_first.as_a_tree() == two_first.in_order());
}

TEST_CASE("lost parts and sums are reported as missing until they are resent") {
  random_source r{5};
  int asked = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    chained_members g{random_sites(r), 50, seed};
    g.run(0.3);
    asked += g.asked;
    for (auto& m : g.members) {
      REQUIRE(m.complete());
      CHECK(floats_of(m.result()) == g.in_order());
    }
  }
  CHECK(asked > 100);
}

TEST_CASE("chunks that cross the WAN are as small as they must be") {
  chained_members g{{0, 1, 1, 2}, 1000, 7, 100};
  g.run();
  CHECK(g.largest_chunk <= 100);
  CHECK(g.largest_chunk > 80);
  for (auto& m : g.members) CHECK(floats_of(m.result()) == g.in_order());
}

TEST_CASE("in every run of members each chunk has one owner, and the runs agree on the chunks") {
  const std::vector<std::uint32_t> sites{0, 1, 1, 1, 2, 2, 0, 0, 0, 0, 0};
  constexpr std::uint64_t bytes = 4 * 1003;
  std::map<std::uint32_t, int> owners;
  std::uint64_t covered = 0;
  for (std::uint32_t m = 0; m < sites.size(); ++m) {
    sum_chain chain{static_cast<std::uint32_t>(sites.size()), m, sites};
    chain.set_size(bytes, bytes);
    const auto [first, end] = chain.chunks_of(m);
    auto at = chain.part_of(m).first;
    for (auto c = first; c < end; ++c) {
      ++owners[c];
      CHECK(chain.chunk(c).first == at);
      at += chain.chunk(c).size;
      if (!chain.is_last()) CHECK_FALSE(chain.is_near(chain.next_owner(c)));
    }
    covered += chain.part_of(m).size;
  }
  CHECK(owners.size() == 5);
  for (const auto& [chunk, n] : owners) CHECK(n == 4);  // runs
  CHECK(covered == 4 * bytes);
}

TEST_CASE("running sums of another size, or of nobody's chunk, are not added") {
  const auto sum_from = [](std::uint32_t pipeline, tensor::kind what, std::uint32_t chunk) {
    tensor t;
    t.what = what;
    t.from = {1, pipeline, 0};
    t.microbatch = chunk;
    return t;
  };
  for (const bool late : {false, true}) {
    host_all_reduce last{2, 1, {0, 1}};
    if (late) last.begin(body_of({1, 2, 3}), 12);
    last.receive(sum_from(0, tensor::kind::running, 9), body_of({1}));
    last.receive(sum_from(0, tensor::kind::running_sum, 0), body_of({1}));  // it has it itself
    last.receive(sum_from(0, tensor::kind::running, 0), body_of({1, 2}));
    if (!late) last.begin(body_of({1, 2, 3}), 12);
    CHECK(troupe::test::has_facts(last.error(), {"pipeline 0", "8 bytes", "12"}));
    CHECK_FALSE(last.complete());
  }
}
