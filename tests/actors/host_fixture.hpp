#pragma once

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "harness/small_cluster.hpp"
#include "messages/wire/message.hpp"
#include "runtime/world/host.hpp"

// The surroundings of code under test: the test moves its clock, plays the other hosts and checks
// the messages that these have received.

namespace troupe::actors::tests {

/// Gateways of small_cluster, and nodes of their datacenters.
inline constexpr address dc1 = gateway_address(0), dc2 = gateway_address(1), a0 = node_address(0),
                         a1 = node_address(1), b0 = node_address(2), b1 = node_address(3);

/// small_cluster with that many fronts: front-1 in dc1, front-2 in dc2.
std::shared_ptr<cluster> cluster_with_fronts(std::uint32_t fronts = 2);

struct sent_message {
  address to = 0;
  message what;
  payload body;
  std::uint32_t lane = 0;
  double at_s = 0;
};

/// The other hosts: they record the messages to them.
class recording_peers {
 public:
  /// Takes all messages of a type to this host; to any by default.
  template <class T>
  std::vector<T> take(std::optional<address> to = {}) {
    auto found = messages<T>(to);
    std::erase_if(sent, [&](const sent_message& m) { return as<T>(m, to) != nullptr; });
    return found;
  }
  /// Takes the same messages and returns the latest, which must be there.
  template <class T>
  T last(std::optional<address> to = {}) {
    const auto found = take<T>(to);
    REQUIRE_FALSE(found.empty());
    return found.back();
  }
  /// Takes the same messages, which must be one.
  template <class T>
  T only(std::optional<address> to = {}) {
    const auto found = take<T>(to);
    REQUIRE(found.size() == 1);
    return found.front();
  }
  /// The same messages; takes none, nor do those below.
  template <class T>
  std::vector<T> messages(std::optional<address> to = {}) const {
    std::vector<T> found;
    for (const auto& m : sent)
      if (const auto* t = as<T>(m, to)) found.push_back(*t);
    return found;
  }
  template <class T>
  std::size_t count(std::optional<address> to = {}) const {
    return messages<T>(to).size();
  }
  /// The latest message of a type to this host, which must be there, and its body.
  template <class T>
  std::pair<T, payload> latest(address to) const {
    for (auto m = sent.rbegin(); m != sent.rend(); ++m)
      if (const auto* t = as<T>(*m, to)) return {*t, m->body};
    FAIL("there is no such message");
    return {};
  }

  std::vector<sent_message> sent;  // and not taken, in their order

 private:
  template <class T>
  static const T* as(const sent_message& m, std::optional<address> to) {
    return to && m.to != *to ? nullptr : std::get_if<T>(&m.what);
  }
};

/// The network between a host and recording peers, which have each message as soon as it is sent.
class recording_transport final : public runtime::transport {
 public:
  recording_transport(address self, recording_peers& peers, std::function<double()> now_s)
      : self_{self}, peers_{peers}, now_s_{std::move(now_s)} {}

  address self() const override { return self_; }
  bool send(address to, frame f, std::uint32_t lane) override;
  void listen(receiver) override {}
  void handled(const frame&) override { ++acknowledged; }

  std::set<address> full;        // these hosts accept no frame
  std::size_t acknowledged = 0;  // received frames

 private:
  address self_;
  recording_peers& peers_;
  std::function<double()> now_s_;
};

/// Shows the time that the test has set.
class manual_clock final : public runtime::clock {
 public:
  explicit manual_clock(double at_s) : now{at_s} {}
  double now_s() const override { return now; }
  double wall_s() const override { return now; }

  double now;
};

/// The host of code under test that is no actor.
class host_fixture : public recording_peers {
 public:
  host_fixture(address self, double start_s);
  host_fixture(const host_fixture&) = delete;
  host_fixture& operator=(const host_fixture&) = delete;

  std::shared_ptr<manual_clock> clock;
  std::shared_ptr<recording_transport> net;
  runtime::host host;
};

}  // namespace troupe::actors::tests
