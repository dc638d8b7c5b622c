#pragma once

#include <catch2/catch.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "harness/scratch.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/zeromq/transport.hpp"

// Helpers of the real runtime's tests: a small cluster, temporary places, waiting on conditions.

namespace troupe::runtime::test {

inline constexpr double long_s = 60;  // a limit, never a proof

using troupe::test::scratch;

inline bool eventually(const std::function<bool()>& so) {
  return wait_until(so, long_s);
}

/// Two datacenters; nodes a-0 and a-1 in the first, b-0 in the second.
inline cluster two_datacenters() {
  cluster c;
  c.name = "test";
  c.gpus.push_back({.name = "V100-32GB", .memory_gb = 32, .source = ""});
  c.datacenters = {{"dc1", ""}, {"dc2", ""}};
  for (const auto& [name, dc] : {std::pair{"a-0", 0u}, {"a-1", 0u}, {"b-0", 1u}}) {
    node n;
    n.name = name;
    n.datacenter = dc;
    n.gpus = 4;
    c.nodes.push_back(n);
  }
  return c;
}

/// Keeps what a transport receives. Frames are handled at once, or when the test calls for it.
class mailbox {
 public:
  explicit mailbox(std::shared_ptr<transport> net, bool handle_at_once = true)
      : net_{std::move(net)} {
    net_->listen([to = received_, handle_at_once, from = net_.get()](frame f) {
      if (handle_at_once) from->handled(f);
      const std::lock_guard guard{to->mutex};
      to->frames.push_back(std::move(f));
    });
  }

  transport& net() { return *net_; }
  std::size_t size() const {
    const std::lock_guard guard{received_->mutex};
    return received_->frames.size();
  }
  frame at(std::size_t i) const {
    const std::lock_guard guard{received_->mutex};
    return received_->frames.at(i);
  }
  std::vector<frame> take() {
    const std::lock_guard guard{received_->mutex};
    return std::exchange(received_->frames, {});
  }
  bool has(std::size_t n) const {
    return eventually([&] { return size() >= n; });
  }

 private:
  /// Outlives the mailbox: another owner of the transport keeps its thread, which calls in here.
  struct received {
    std::mutex mutex;
    std::vector<frame> frames;
  };
  std::shared_ptr<received> received_ = std::make_shared<received>();
  std::shared_ptr<transport> net_;
};

/// A message that carries a number.
inline frame numbered(address from, address to, std::uint64_t n, payload body = {}) {
  return encode(from, to, query_jobs{.request = n, .job = 0}, std::move(body));
}
inline std::uint64_t number_of(const frame& f) {
  const auto m = decode(f.header.bytes());
  REQUIRE(m);
  return std::get<query_jobs>(m->second).request;
}

inline std::shared_ptr<zeromq_transport> must_open(zeromq_options o) {
  auto t = zeromq_transport::open(std::move(o));
  INFO((t ? std::string{} : t.error().text));
  REQUIRE(t);
  return *t;
}

}  // namespace troupe::runtime::test
