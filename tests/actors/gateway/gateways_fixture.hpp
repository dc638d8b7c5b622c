#pragma once

#include "actors/actor_fixture.hpp"
#include "actors/worlds/wiring.hpp"

// Gateways in virtual time; the test plays all other hosts.

namespace troupe::actors::tests {

/// Two datacenters of two nodes: 8 Mbit a second between a pair of nodes, 16 inside; no latency.
inline std::shared_ptr<cluster> slots() {
  auto c = std::make_shared<cluster>();
  c->name = "slots";
  c->gpus.resize(1);
  c->datacenters = {{"dc1", ""}, {"dc2", ""}};
  const troupe::link inside{"slots", 0.016, 0};
  c->nodes = {{"a-0", 0, 0, 1, inside, inside},
              {"a-1", 0, 0, 1, inside, inside},
              {"b-0", 1, 0, 1, inside, inside},
              {"b-1", 1, 0, 1, inside, inside}};
  c->wan = {{0, 1, 0, 0.008, 0}};
  return c;
}

struct gateways_fixture : virtual_fixture {
  struct received_tensor {
    double at_s = 0;
    tensor what;
    payload body;
  };

  explicit gateways_fixture(const std::shared_ptr<cluster>& c = slots(),
                            runtime::virtual_options o = {}, bool second_gateway = true)
      : virtual_fixture{*c, std::move(o)} {
    const auto gateway = [this, c](const runtime::host& h) {
      return start_gateway(world.system(), h, c, true);
    };
    world.add_host(dc1, gateway);
    second_gateway ? world.add_host(dc2, gateway) : play(dc2);
    for (const auto a : {controller_address, a0, a1, b0, b1}) play(a);
  }

  std::vector<received_tensor> tensors(address to) const {
    std::vector<received_tensor> all;
    for (const auto& m : sent)
      if (const auto* t = std::get_if<tensor>(&m.what); t && m.to == to)
        all.push_back({m.at_s, *t, m.body});
    return all;
  }
  /// The times at which messages of a type have arrived.
  template <class T = tensor>
  std::vector<double> times(address to) const {
    std::vector<double> all;
    for (const auto& m : sent)
      if (m.to == to && std::holds_alternative<T>(m.what)) all.push_back(m.at_s);
    return all;
  }
};

}  // namespace troupe::actors::tests
