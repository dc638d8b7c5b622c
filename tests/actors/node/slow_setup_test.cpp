#include <catch2/catch.hpp>

#include <memory>
#include <mutex>
#include <vector>

#include <caf/all.hpp>

#include "actors/protocol/host_threads.hpp"
#include "actors/worlds/wiring.hpp"
#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/wait.hpp"

// A node whose stages are set up on threads of their own, and whose trainer is the test.

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr double setup_limit_s = 20;  // a limit, never a proof
constexpr address trainers_node = node_address(1), this_node = node_address(0);
constexpr lease_id lease = 3;

/// Keeps what the node's stages report. They send from several threads.
class kept_reports final : public runtime::transport {
 public:
  address self() const override { return this_node; }
  bool send(address, frame f, std::uint32_t) override {
    const auto m = decode(f.header.bytes());
    const auto* r = m ? std::get_if<stage_report>(&m->second) : nullptr;
    const std::lock_guard guard{mutex_};
    if (r != nullptr) reports_.push_back(*r);
    return true;
  }
  void listen(receiver r) override { receive = std::move(r); }
  void handled(const frame&) override {}

  std::vector<stage_report> reports() const {
    const std::lock_guard guard{mutex_};
    return reports_;
  }
  bool have(std::size_t n) const {
    return runtime::wait_until([&] { return reports().size() >= n; }, setup_limit_s);
  }

  receiver receive;

 private:
  mutable std::mutex mutex_;
  std::vector<stage_report> reports_;
};

struct node_of_trainer {
  troupe::test::scratch room;
  std::shared_ptr<kept_reports> net = std::make_shared<kept_reports>();
  host_threads config;
  caf::actor_system system{config};
  std::vector<caf::actor> actors;

  node_of_trainer() {
    // Reading it takes a good part of a second: as many values as are accepted, without an end.
    std::string values = R"({"a": [)";
    for (int i = 0; i < 3'999'000; ++i) values += "0,             ";
    room.write("vocab.json", values);
    auto c = harness::small_cluster();
    c->settings.heartbeat_s = 1000;
    c->settings.lease_s = 5000;
    runtime::host h;
    h.self = this_node;
    h.incarnation = 1;
    h.clock = std::make_shared<runtime::real_clock>();
    h.net = net;
    node_options o;
    o.cluster = c;
    o.backend = "cpu";
    actors = start_node(system, h, std::move(o));
  }
  ~node_of_trainer() {
    net->receive = {};
    for (const auto& a : actors) caf::anon_send_exit(a, caf::exit_reason::kill);
  }

  void say(address from, const message& m) const { net->receive(encode(from, this_node, m)); }

  void order_a_part() const {
    node_orders o;
    o.epoch = o.sequence = o.incarnation = o.journal = 1;
    work_order w;
    w.lease = lease;
    w.incarnation = 1;
    w.devices = {0};
    w.train.emplace();
    w.train->part = 1;
    w.train->trainer = 1;
    o.work = {w};
    say(controller_address, o);
  }
  /// The only stage of its training, which needs the vocabulary.
  stage_setup setup() const {
    stage_setup s;
    s.name = {lease, 0, 0};
    s.incarnation = 9;
    s.devices = {0};
    s.backend = "cpu";
    s.model.name = "small";
    s.model.family = "gpt";
    s.model.hidden = 32;
    s.model.layers = 3;
    s.model.heads = 4;
    s.model.sequence = 8;
    s.model.vocabulary = 256;
    s.how.data = room.write("text", std::string(5000, 'x'));
    s.how.vocabulary = room.path();
    s.sublayers = 6;
    s.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 0, 0}};
    s.neighbours = s.peers = {this_node};
    return s;
  }
};

}  // namespace

TEST_CASE("a node answers a repeated setup with starting while the stage is still being set up") {
  const node_of_trainer n;
  n.order_a_part();
  n.say(trainers_node, n.setup());
  n.say(trainers_node, n.setup());
  REQUIRE(n.net->have(2));
  const auto reports = n.net->reports();
  CHECK(reports[0].name == stage_name{lease, 0, 0});
  CHECK(reports[0].incarnation == 9);
  CHECK(reports[0].starting);
  CHECK(reports[0].why.text.empty());
  // Then the stage itself reports how its setup ended.
  CHECK_FALSE(reports[1].starting);
  CHECK_FALSE(reports[1].why.text.empty());
}
