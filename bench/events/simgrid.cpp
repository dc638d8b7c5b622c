#include "simgrid.hpp"

#include <functional>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "periods.hpp"
#include "stopwatch.hpp"

namespace sg = simgrid::s4u;

namespace troupe::bench {
namespace {

/// Two hosts, and one link or none: the constant model gives every message its latency alone.
struct platform {
  explicit platform(bool constant = false) {
    int argc = constant ? 6 : 4;
    char name[] = "events", quiet[] = "--log=root.thresh:critical",
         stack[] = "--cfg=contexts/stack-size:64", guard[] = "--cfg=contexts/guard-size:0",
         model[] = "--cfg=network/model:Constant", latency[] = "--cfg=network/latency-factor:50e-6";
    char* argv[] = {name, quiet, stack, guard, constant ? model : nullptr, latency, nullptr};
    engine = new sg::Engine{&argc, argv};  // ends with the process, as SimGrid wants it
    auto* zone = constant ? sg::create_empty_zone("zone") : sg::create_full_zone("zone");
    a = zone->create_host("a", 1e9)->seal();
    b = zone->create_host("b", 1e9)->seal();
    if (!constant) {
      const auto* link = zone->create_link("link", 10e9 / 8)->set_latency(50e-6)->seal();
      zone->add_route(a->get_netpoint(), b->get_netpoint(), nullptr, nullptr,
                      {sg::LinkInRoute{link}});
    }
    zone->seal();
  }
  sg::Engine* engine;
  sg::Host *a, *b;
};

}  // namespace

double simgrid_timers_s(std::uint32_t actors, std::uint64_t events, bool random) {
  platform p;
  const std::uint64_t each = events / actors;
  for (std::uint32_t i = 0; i < actors; ++i)
    sg::Actor::create("t" + std::to_string(i), p.a, [each, random, next = periods{i}]() mutable {
      for (std::uint64_t n = 0; n < each; ++n)
        sg::this_actor::sleep_for(random ? next.next_s() : period_s);
    });
  const stopwatch watch;
  p.engine->run();
  return watch.s();
}

double simgrid_callbacks_s(std::uint32_t actors, std::uint64_t events, bool random) {
  platform p;
  const std::uint64_t each = events / actors;
  std::vector<periods> next;
  for (std::uint32_t i = 0; i < actors; ++i) next.emplace_back(i);
  struct chain {
    std::vector<periods>& next;
    bool random;
    void arm(std::uint32_t who, std::uint64_t left) {
      if (left == 0) return;
      const double wait_s = random ? next[who].next_s() : period_s;
      simgrid::kernel::timer::Timer::set(sg::Engine::get_clock() + wait_s,
                                         [this, who, left] { arm(who, left - 1); });
    }
  } c{next, random};
  // The engine runs while an actor is left.
  sg::Actor::create("last", p.a, [=] { sg::this_actor::sleep_for(2 * period_s * each); });
  for (std::uint32_t i = 0; i < actors; ++i) c.arm(i, each);
  const stopwatch watch;
  p.engine->run();
  return watch.s();
}

double simgrid_messages_s(std::uint32_t pairs, std::uint64_t events, bool two_hosts,
                          bool constant) {
  platform p{constant};
  const std::uint64_t each = events / pairs / 2;
  static int token = 0;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    auto* ping = sg::Mailbox::by_name("ping" + std::to_string(i));
    auto* pong = sg::Mailbox::by_name("pong" + std::to_string(i));
    sg::Actor::create("a" + std::to_string(i), p.a, [=] {
      for (std::uint64_t n = 0; n < each; ++n) {
        ping->put(&token, 100);
        pong->get<int>();
      }
    });
    sg::Actor::create("b" + std::to_string(i), two_hosts ? p.b : p.a, [=] {
      for (std::uint64_t n = 0; n < each; ++n) {
        ping->get<int>();
        pong->put(&token, 100);
      }
    });
  }
  const stopwatch watch;
  p.engine->run();
  return watch.s();
}

}  // namespace troupe::bench
