#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "harness/resident_bytes.hpp"
#include "messages/base/random.hpp"
#include "processes/shared_cluster.hpp"

// Long-term behaviour of a cluster that trains and serves: beside a training that lends its
// devices, clients ask all the time while processes die at random. Every answer must be what the
// model alone gives, every request must end, and memory must not grow.

using namespace troupe;
using namespace troupe::test;

namespace {

/// The largest resident memory of any process of each name.
class memory_watch {
 public:
  void look(const cli::local_cluster& c) {
    for (const auto& name : c.names()) {
      auto& max = max_[name];
      max = std::max(max, resident_bytes(std::to_string(c.id(name))));
    }
  }
  /// The names of processes that hold more than before, by a fifth and 16 MiB.
  std::string grown_since(const memory_watch& before) const {
    std::string names;
    for (const auto& [name, now] : max_)
      if (const auto then = before.max_.at(name); now > then + then / 5 + (16U << 20))
        names += fmt::format("{}: {} to {} MiB; ", name, then >> 20, now >> 20);
    return names;
  }

 private:
  std::map<std::string, std::size_t> max_;
};

}  // namespace

TEST_CASE("random kills for 20 minutes: every request ends, and no process grows", "[.soak]") {
  constexpr double minutes = 20, kill_every_s = 20;
  constexpr std::uint64_t front_clients = 2, other_clients = 3;  // each a request a second
  lending_cluster c;
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
  WARN(here.of.answered + there.of.answered << " answered, " << here.of.failed + there.of.failed
                                            << " failed, " << here.of.bubbles + there.of.bubbles
                                            << " in bubbles");
  CHECK(c.trains_on(20));
}
