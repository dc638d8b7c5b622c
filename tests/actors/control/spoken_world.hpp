#pragma once

#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <vector>

#include <caf/all.hpp>

#include "actors/worlds/wiring.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/virtual/virtual_world.hpp"

namespace troupe::actors::tests {

inline constexpr address dc1 = 1, dc2 = 2, a0 = node_address(0), a1 = node_address(1),
                         b0 = node_address(2);

/// A world in which the test speaks for the hosts that it adds, and for those behind them.
class spoken_world {
 public:
  spoken_world() : world{*cluster_} {}

  void speak_for(address a) {
    world.add_host(a, [this, a](const runtime::host& h) {
      nets_[a] = h.net;
      h.net->listen([this, a, net = h.net](const frame& f) {
        net->handled(f);
        if (auto m = decode(f.header.bytes())) received_[a].push_back(std::move(*m));
      });
      return std::vector<caf::actor>{};
    });
  }
  void say(address over, address from, address to, const message& m) {
    REQUIRE(nets_[over]->send(to, encode(from, to, m)));
    world.run_until(world.now_s() + 0.01);
  }
  /// All messages of a type that `a` has received and not yet taken, for any host.
  template <class T>
  std::vector<T> take(address a) {
    std::vector<T> found;
    std::erase_if(received_[a], [&](const auto& m) {
      const auto* t = std::get_if<T>(&m.second);
      if (t) found.push_back(*t);
      return t != nullptr;
    });
    return found;
  }
  /// The same with their envelopes.
  template <class T>
  std::vector<std::pair<envelope, T>> take_with_envelopes(address a) {
    std::vector<std::pair<envelope, T>> found;
    std::erase_if(received_[a], [&](const auto& m) {
      const auto* t = std::get_if<T>(&m.second);
      if (t) found.emplace_back(m.first, *t);
      return t != nullptr;
    });
    return found;
  }
  std::size_t waiting(address a) { return received_[a].size(); }

  std::shared_ptr<cluster> cluster_ = harness::small_cluster();

 private:
  std::map<address, std::shared_ptr<runtime::transport>> nets_;
  std::map<address, std::vector<std::pair<envelope, message>>> received_;

 public:
  runtime::virtual_world world;
};

}  // namespace troupe::actors::tests
