// bench_events [EVENTS]: the cost of an event in virtual time, compared to SimGrid and a bare
// queue.
//
// Every figure is of a process of its own (SimGrid wants that), the best of three, nanoseconds
// of processor time an event from the first to the last of EVENTS (a million), without setting up.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <caf/all.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "messages/codec/codec.hpp"
#include "periods.hpp"
#include "runtime/virtual/virtual_world.hpp"
#include "stopwatch.hpp"
#ifdef TROUPE_HAS_SIMGRID
#include "simgrid.hpp"
#endif

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::frame)

namespace troupe::bench {
namespace {

using tick = caf::atom_constant<caf::atom("tick")>;
using namespace troupe::runtime;

// -- a bare queue: pop an event, call what it holds, which pushes the next --

double queue_timers_s(std::uint32_t actors, std::uint64_t events, bool random) {
  struct event {
    std::int64_t time;
    std::uint64_t sequence;
    std::function<void()> call;  // its captures fit without allocation
    bool operator<(const event& o) const {
      return time > o.time || (time == o.time && sequence > o.sequence);
    }
  };
  struct timers {
    bool random;
    std::priority_queue<event> queue{};
    std::vector<periods> next{};
    std::uint64_t sequence = 0, done = 0;
    std::int64_t now = 0;
    void arm(std::uint32_t who) {
      const auto wait_s = random ? next[who].next_s() : period_s;
      queue.push({now + std::llround(wait_s * 1e9), ++sequence, [this, who] {
                    ++done;
                    arm(who);
                  }});
    }
  } t{random};
  for (std::uint32_t i = 0; i < actors; ++i) t.next.emplace_back(i);
  for (std::uint32_t i = 0; i < actors; ++i) t.arm(i);
  const stopwatch watch;
  while (t.done < events) {
    auto next = std::move(const_cast<event&>(t.queue.top()));
    t.queue.pop();
    t.now = next.time;
    next.call();
  }
  return watch.s();
}

// -- this project's virtual time --

struct virtual_system {
  struct config : caf::actor_system_config {
    config() { virtual_coordinator::install(*this); }
  };
  config cfg;
  caf::actor_system system{cfg};
  virtual_coordinator& time = virtual_coordinator::of(system);
};

double timers_s(std::uint32_t actors, std::uint64_t events, bool random) {
  virtual_system v;
  for (std::uint32_t i = 0; i < actors; ++i)
    v.system.spawn([i, random](caf::event_based_actor* self) -> caf::behavior {
      const auto arm = [self, random](periods& p) {
        const std::chrono::nanoseconds wait{std::llround((random ? p.next_s() : period_s) * 1e9)};
        self->delayed_send(self, wait, tick::value);
      };
      periods p{i};
      arm(p);
      return {[arm, p](tick) mutable { arm(p); }};
    });
  v.time.run_ready();
  const stopwatch watch;
  v.time.run_until(to_ns(period_s * static_cast<double>(events / actors)));
  return watch.s();
}

double messages_s(std::uint32_t pairs, std::uint64_t events) {
  virtual_system v;
  std::vector<caf::actor> starters;
  const std::uint64_t each = events / pairs;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    auto player = [](caf::event_based_actor* self) -> caf::behavior {
      return {[self](std::uint64_t left) {
        if (left > 0) self->send(caf::actor_cast<caf::actor>(self->current_sender()), left - 1);
      }};
    };
    auto a = v.system.spawn(player), b = v.system.spawn(player);
    caf::send_as(a, b, each - 1);
  }
  const stopwatch watch;
  v.time.run_ready();
  return watch.s();
}

/// Two running parts and four devices.
node_report report(std::uint64_t incarnation, std::uint64_t n) {
  node_report r;
  r.incarnation = incarnation;
  r.sequence = n;
  r.parts.resize(2);
  r.parts[0].lease = r.parts[1].lease = 1'000'000 + n;
  r.reserved = {40e9, 40e9, 40e9, 40e9};
  return r;
}

/// Pairs of hosts, 50 us apart. With a codec, every frame is encoded, sent over the simulated
/// network, decoded; without, what came is sent back, as SimGrid's actors send a pointer.
double frames_s(std::uint32_t pairs, std::uint64_t events, bool codec) {
  cluster c;
  c.gpus.resize(1);
  c.datacenters.resize(pairs);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    c.nodes.push_back({"n" + std::to_string(i), i, 0, 8, {}, {}});
    c.datacenters[i].name = "d" + std::to_string(i);
  }
  virtual_world world{c};
  const std::uint64_t each = events / pairs;
  std::uint64_t handled = 0;
  auto start = [&](address peer) {
    return [&, peer](const host& h) {
      auto a = world.system().spawn(
          [&handled, h, peer, each, pairs, codec](caf::event_based_actor* self) -> caf::behavior {
            if (h.self > peer) self->send(self, tick::value);  // the node begins
            const auto send = [h, peer](std::uint64_t n) {
              h.net->send(peer, encode(h.self, peer, report(h.incarnation, n)));
            };
            const auto ready = encode(h.self, peer, report(h.incarnation, 1));
            return {[=, &handled](const frame& f) {
                      if (!codec) {
                        h.net->handled(f);
                        if (++handled < each * pairs) h.net->send(peer, ready);
                        return;
                      }
                      const auto m = decode(f.header.bytes());
                      h.net->handled(f);
                      ++handled;
                      const auto n = std::get<node_report>(m->second).sequence;
                      if (n < each) send(n + 1);
                    },
                    [send](tick) { send(1); }};
          });
      h.net->listen([a](frame f) { caf::anon_send(a, std::move(f)); });
      return std::vector<caf::actor>{a};
    };
  };
  for (std::uint32_t i = 0; i < pairs; ++i) {
    world.add_host(gateway_address(i), start(node_address(i)));
    world.add_host(node_address(i), start(gateway_address(i)));
  }
  const stopwatch watch;
  world.run_until([&] { return handled >= each * pairs; }, 1e9);
  return watch.s();
}

// -- measuring --

/// Nanoseconds an event, the best of three runs, each in a child.
double best_ns(const std::function<double()>& run_s, std::uint64_t events) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    int ends[2];
    if (pipe(ends) != 0) return 0;
    const auto child = fork();
    if (child == 0) {
      const double s = run_s();
      const bool written = write(ends[1], &s, sizeof s) == sizeof s;
      _exit(written ? 0 : 1);
    }
    close(ends[1]);
    double s = 0;
    if (read(ends[0], &s, sizeof s) == sizeof s) best = std::min(best, s);
    close(ends[0]);
    waitpid(child, nullptr, 0);
  }
  return best * 1e9 / static_cast<double>(events);
}

void timers_row(std::uint32_t actors, std::uint64_t events, bool random) {
  const double bare = best_ns([=] { return queue_timers_s(actors, events, random); }, events);
  const double here = best_ns([=] { return timers_s(actors, events, random); }, events);
  fmt::print("{:>8} {:>10.0f} {:>10.0f} {:>12.1f}", actors, bare, here, here / bare);
#ifdef TROUPE_HAS_SIMGRID
  const double simgrid = best_ns([=] { return simgrid_timers_s(actors, events, random); }, events);
  const double callback =
      best_ns([=] { return simgrid_callbacks_s(actors, events, random); }, events);
  fmt::print(" {:>10.0f} {:>15.1f} {:>10.0f}", simgrid, simgrid / here, callback);
#endif
  fmt::print("\n");
}

enum class path { actors, frames, coded_frames };

void messages_row(std::uint32_t pairs, std::uint64_t events, path by) {
  const bool frames = by != path::actors;
  const double here = best_ns(
      [=] {
        return frames ? frames_s(pairs, events, by == path::coded_frames)
                      : messages_s(pairs, events);
      },
      events);
  fmt::print("{:>8} {:>10.0f}", pairs, here);
#ifdef TROUPE_HAS_SIMGRID
  for (const bool constant : {false, true}) {
    const double simgrid =
        best_ns([=] { return simgrid_messages_s(pairs, events, frames, constant); }, events);
    fmt::print(" {:>10.0f} {:>15.1f}", simgrid, simgrid / here);
  }
#endif
  fmt::print("\n");
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  using namespace troupe::bench;
  std::setbuf(stdout, nullptr);
  const std::uint64_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
#ifdef TROUPE_HAS_SIMGRID
  const char* const timers = "  s4u sleep    sleep/troupe   callback";
  const char* const more = " shared link   shared/troupe   constant constant/troupe";
#else
  const char* const timers = "  (SimGrid is not installed)";
  const char* const more = timers;
#endif
  fmt::print("ns of processor time an event, {} events, best of 3\n", events);
  for (const bool random : {false, true}) {
    fmt::print("\ntimers, {}\n  actors bare queue     troupe troupe/queue{}\n",
               random ? "periods drawn from 0.5 to 1.5 ms" : "all with a period of 1 ms", timers);
    for (const std::uint32_t actors : {10u, 1'000u, 10'000u, 100'000u})
      timers_row(actors, std::max<std::uint64_t>(events, 10ull * actors), random);
  }
  fmt::print("\nmessages between actors of one host\n   pairs     troupe{}\n", more);
  for (const std::uint32_t pairs : {1u, 100u, 5'000u}) messages_row(pairs, events, path::actors);
  const auto bytes = troupe::encode(0, 1, report(1, 1'000'000)).size();
  fmt::print("\nframes of {} bytes between hosts 50 us apart\n   pairs     troupe{}\n", bytes,
             more);
  for (const std::uint32_t pairs : {1u, 100u, 5'000u}) messages_row(pairs, events, path::frames);
  fmt::print("\nthe same, and each is encoded and decoded (SimGrid: a pointer)\n");
  fmt::print("   pairs     troupe{}\n", more);
  for (const std::uint32_t pairs : {1u, 100u, 5'000u})
    messages_row(pairs, events, path::coded_frames);
}
