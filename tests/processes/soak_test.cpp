#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "harness/resident_bytes.hpp"
#include "messages/random.hpp"
#include "processes/shared_cluster.hpp"

// Long-term behaviour of a cluster that trains and serves: beside a training that lends its
// devices, clients ask all the time while processes die at random. Every answer must be what the
// model alone gives, every request must end, and memory must not grow.

using namespace troupe;
using namespace troupe::test;

namespace {

/// What the processes of each name have held in memory, look by look. The median counts: malloc
/// keeps what threads of earlier attempts have freed, in an arena for some threads each, so that a
/// node on which several attempts have run holds up to twice as much as one with a single attempt.
class memory_watch {
 public:
  void look(const cli::local_cluster& c) {
    for (const auto& name : c.names())
      held_[name].push_back(resident_bytes(std::to_string(c.id(name))));
  }
  /// The names of processes that hold more than before, by a fifth and 16 MiB.
  std::string grown_since(const memory_watch& before) const {
    std::string names;
    for (const auto& [name, looks] : held_) {
      const auto then = median(before.held_.at(name)), now = median(looks);
      if (now > then + then / 5 + (16U << 20))
        names += fmt::format("{}: {} to {} MiB; ", name, then >> 20, now >> 20);
    }
    return names;
  }
  /// The largest: a name and MiB.
  std::string largest() const {
    std::string most_name;
    std::size_t most = 0;
    for (const auto& [name, looks] : held_)
      if (const auto x = std::ranges::max(looks); x > most) most = x, most_name = name;
    return fmt::format("{}: {} MiB", most_name, most >> 20);
  }

 private:
  static std::size_t median(std::vector<std::size_t> looks) {
    std::ranges::nth_element(looks, looks.begin() + looks.size() / 2);
    return looks[looks.size() / 2];
  }

  std::map<std::string, std::vector<std::size_t>> held_;
};

}  // namespace

TEST_CASE("random kills for 20 minutes: every request ends, and no process grows", "[.soak]") {
  constexpr double minutes = 20, kill_every_s = 20;
  constexpr std::uint64_t front_clients = 2, other_clients = 3;  // each a request a second
  shared_cluster c;
  random_source random{1};
  memory_watch first_third, last_third;
  clients here{c.url, front_clients, 1}, there{c.cluster->fronts().at("front-2"), other_clients, 1};
  const std::vector<std::string> names{"t-0", "t-1",        "t-2",         "t-3",        "d1",
                                       "d2",  "controller", "dc1/gateway", "dc2/gateway"};
  const runtime::stopwatch since;
  for (double next_s = kill_every_s; since.s() < 60 * minutes; next_s += kill_every_s) {
    const auto name = names[random.below(names.size())];
    INFO(name << " after " << since.s() << " s");
    c.cluster->kill(name);
    runtime::pause(1 + 4 * random.uniform());
    REQUIRE(c.cluster->restart(name));
    runtime::pause(std::max(0.0, next_s - since.s()));
    if (since.s() < 20 * minutes) first_third.look(*c.cluster);
    if (since.s() > 40 * minutes) last_third.look(*c.cluster);
    REQUIRE(here.go_on(5));
    REQUIRE(there.go_on(5));
  }
  here.end();
  there.end();
  CHECK(here.of.wrong == 0);
  CHECK(there.of.wrong == 0);
  CHECK(here.of.refused == 0);
  CHECK(there.of.refused == 0);
  CHECK(last_third.grown_since(first_third) == "");
  WARN(here.of.right + there.of.right
       << " right, " << here.of.failed + there.of.failed << " failed, "
       << here.of.bubbles + there.of.bubbles << " in bubbles; largest in the first third "
       << first_third.largest() << ", in the last one " << last_third.largest());
  CHECK(c.trains_on(20));
}
