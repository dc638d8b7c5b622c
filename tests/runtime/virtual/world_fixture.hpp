#pragma once

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include "messages/codec/codec.hpp"
#include "runtime/virtual/virtual_world.hpp"

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::frame)

namespace troupe::runtime::tests {

/// Two datacenters, 40 ms apart, of two nodes each: 8 Gbit/s between them, 4 Gbit/s a connection.
inline cluster two_sites() {
  cluster c;
  c.name = "two sites";
  c.gpus.resize(1);
  c.gpus[0].name = "A100";
  c.datacenters = {{"east", ""}, {"west", ""}};
  for (std::uint32_t i = 0; i < 4; ++i)
    c.nodes.push_back({"n" + std::to_string(i), i / 2, 0, 8, {"nvlink", 4800, 1}, {"ib", 80, 5}});
  c.wan = {{0, 1, 40, 8, 4}};
  return c;
}

/// Every test host's inbox: an actor that hands each frame to a function of the test.
struct inbox {
  struct arrival {
    double at_s = 0;
    address from = 0;
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;
  };
  std::vector<arrival> frames;
};

inline caf::behavior receive_frames(caf::event_based_actor*, host h,
                                    std::function<void(const host&, const frame&)> each) {
  return {[h, each](const frame& f) {
    each(h, f);
    h.net->handled(f);
  }};
}

/// A fault plan as a function fills it in.
template <class F>
fault_plan plan_with(F&& fill) {
  fault_plan f;
  fill(f);
  return f;
}

inline gateway_report numbered(std::uint64_t n) {
  return {.incarnation = 1, .sequence = n, .heartbeats = {}};
}

inline payload zeros(std::size_t n) {
  return payload{std::vector<std::byte>(n)};
}

struct fixture {
  explicit fixture(virtual_options options = {}, cluster c = two_sites())
      : world{std::move(c), std::move(options)} {}

  /// Adds a host whose frames are noted in inboxes[a].
  void add(address a) {
    add(a, [](const host&, const frame&) {});
  }
  void add(address a, std::function<void(const host&, const frame&)> also) {
    world.add_host(a, [this, a, also](const host& h) {
      nets[a] = h.net;
      hosts[a] = h;
      auto self =
          world.system().spawn(receive_frames, h, [this, a, also](const host& me, const frame& f) {
            auto m = decode(f.header.bytes());
            REQUIRE(m);
            const auto* numbers = std::get_if<gateway_report>(&m->second);
            inboxes[a].frames.push_back(
                {me.clock->now_s(), m->first.from, numbers ? numbers->sequence : 0, f.size()});
            also(me, f);
          });
      h.net->listen([self](frame f) { caf::anon_send(self, std::move(f)); });
      return std::vector<caf::actor>{self};
    });
  }
  bool send(address from, address to, std::uint64_t n = 0, std::size_t body = 0) {
    auto f = encode(from, to, numbered(n), zeros(body));
    sent_bytes = f.size();
    return nets[from]->send(to, std::move(f));
  }
  std::vector<inbox::arrival>& got(address a) { return inboxes[a].frames; }
  std::vector<std::uint64_t> numbers(address a) {
    std::vector<std::uint64_t> r;
    for (const auto& x : got(a)) r.push_back(x.sequence);
    return r;
  }

  std::map<address, inbox> inboxes;
  std::map<address, std::shared_ptr<transport>> nets;
  std::map<address, host> hosts;
  std::size_t sent_bytes = 0;
  virtual_world world;
};

inline constexpr address controller = 0, east = 1, west = 2, n0 = node_address(0),
                         n1 = node_address(1), n2 = node_address(2),
                         client = first_client_address + 1;

}  // namespace troupe::runtime::tests
