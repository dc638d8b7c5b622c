#include "actors/actor_fixture.hpp"

#include "messages/codec/codec.hpp"

namespace troupe::actors::tests {

std::shared_ptr<cluster> cluster_with_fronts(std::uint32_t fronts) {
  auto c = harness::small_cluster();
  for (std::uint32_t f = 0; f < fronts; ++f)
    c->fronts.push_back({"front-" + std::to_string(f + 1), f, ""});
  return c;
}

bool recording_transport::send(address to, frame f, std::uint32_t lane) {
  if (full.contains(to)) return false;
  if (auto m = decode(f.header.bytes()))
    peers_.sent.push_back({to, std::move(m->second), f.body, lane, now_s_()});
  return true;
}

host_fixture::host_fixture(address self, double start_s)
    : clock{std::make_shared<manual_clock>(start_s)},
      net{std::make_shared<recording_transport>(self, *this, [c = clock] { return c->now; })} {
  host.self = self;
  host.clock = clock;
  host.net = net;
}

void virtual_fixture::play(address a) {
  world.add_host(a, [this, a](const runtime::host& h) {
    nets[a] = h.net;
    h.net->listen([this, a, h](const frame& f) {
      h.net->handled(f);
      if (auto m = decode(f.header.bytes()))
        sent.push_back({a, std::move(m->second), f.body, 0, h.clock->now_s()});
    });
    return std::vector<caf::actor>{};
  });
}

bool virtual_fixture::send(address from, address to, const message& m, payload body) {
  return nets.at(from)->send(to, encode(from, to, m, std::move(body)), runtime::lane_of(m));
}

void actor_fixture::start(address self, const std::function<caf::actor(const messenger&)>& spawn) {
  net = std::make_shared<recording_transport>(self, *this, [this] { return now_s(); });
  world.add_host(self, [this, spawn](const runtime::host& h) {
    host = h;
    host.net = net;
    const auto node = world.system().spawn([this](node_actor::pointer) { return behavior(); });
    actor_ = spawn(messenger{host, node});
    return std::vector{caf::actor_cast<caf::actor>(node), actor_};
  });
  settle();
}

node_actor::behavior_type actor_fixture::behavior() {
  return {[](const arrived&) {},
          [this](const local_frame& f) {
            if (auto m = decode(f.what.header.bytes()))
              sent.push_back({m->first.to, std::move(m->second), f.what.body, 0, now_s()});
          },
          [](const programs_changed&) {},
          [](const work_done&) {},
          [this](const training_over& o) { training_ends.push_back(o); },
          [this](const training_event& e) { events.push_back(e.sentence); },
          [this](const serving_over& o) { serving_ends.push_back(o); },
          [](const end_node&) {},
          [](const tick&) {}};
}

}  // namespace troupe::actors::tests
