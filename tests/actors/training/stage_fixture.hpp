#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <caf/all.hpp>

#include "actors/protocol/timing.hpp"
#include "actors/training/stage.hpp"
#include "gpu/device/simulated_executor.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/virtual/virtual_world.hpp"

// A stage whose trainer, node, neighbours and peers are the test itself.

namespace troupe::actors::tests {

/// Keeps what a stage sends, with its lane and its time.
class stage_transport final : public runtime::transport {
 public:
  struct sent_message {
    address to = 0;
    message what;
    payload body;
    std::uint32_t lane = 0;
    double at_s = 0;
  };

  address self() const override { return 0; }
  bool send(address to, frame f, std::uint32_t lane) override {
    if (auto m = decode(f.header.bytes()))
      sent.push_back({to, std::move(m->second), f.body, lane, now_s()});
    return accepts;
  }
  void listen(receiver) override {}
  void handled(const frame&) override {}

  bool accepts = true;
  std::vector<sent_message> sent;
  std::function<double()> now_s;
};

/// Completes operations when the test calls for it.
class device_by_hand final : public gpu::stage_device {
 public:
  void submit(gpu::operation o, done d) override {
    submitted.push_back(std::move(o));
    done_.push_back(std::move(d));
  }
  /// The operation that it executes; null: none.
  const gpu::operation* current() const { return done_.empty() ? nullptr : &submitted.back(); }
  void finish(expected<gpu::outcome> result) {
    REQUIRE(done_.size() == 1);
    std::exchange(done_, {}).front()(std::move(result));
  }

  std::vector<gpu::operation> submitted;

 private:
  std::vector<done> done_;
};

inline constexpr address trainer_of_stage = 1, before_stage = 5, this_stage = 4, after_stage = 6,
                         peer_of_stage = 8, gateway_of_stage = 2;
inline constexpr lease_id lease_of_stage = 7;

/// Stage `s` of three, of one pipeline, with two micro-batches.
inline stage_setup one_of_three(std::uint32_t s) {
  using kind = stage_step::kind;
  stage_setup x;
  x.name = {lease_of_stage, 0, s};
  x.incarnation = 3;
  x.devices = {0};
  x.backend = "sim";
  x.model.tied_head = false;
  x.stages = 3;
  x.microbatches = 2;
  x.order = {{kind::forward, 0, 4},  {kind::forward, 1, 5},   {kind::recompute, 0, 0},
             {kind::backward, 0, 6}, {kind::recompute, 1, 0}, {kind::backward, 1, 7}};
  x.neighbours = s == 0   ? std::vector<address>{this_stage, after_stage, peer_of_stage}
                 : s == 1 ? std::vector<address>{before_stage, this_stage, after_stage}
                          : std::vector<address>{peer_of_stage, before_stage, this_stage};
  x.peers = {this_stage};
  x.forward.pairs = x.backward.pairs = x.tied.pairs = 0;
  x.iterations = 4;
  x.costs.forward_s = 0.1;
  x.costs.recompute_s = 0.05;
  x.costs.backward_s = 0.2;
  x.costs.update_s = 0.03;
  x.costs.gradients_s = 0.01;
  x.costs.activation_bytes = 1000;
  x.costs.gradient_bytes = 4000;
  return x;
}

/// A single stage of one pipeline, with one micro-batch.
inline stage_setup alone() {
  auto s = one_of_three(0);
  s.stages = 1;
  s.neighbours = {this_stage};
  s.microbatches = 1;
  s.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 0, 0}};
  return s;
}

inline gpu::outcome result_with(std::vector<payload> out, double loss = 0) {
  gpu::outcome o;
  o.out = std::move(out);
  o.loss = loss;
  o.begin_s = 1;
  o.end_s = 1.5;
  return o;
}

class stage_by_hand {
 public:
  struct how {
    double start_s = 0, slowdown = 1;
    bool real = false;  // with a device_by_hand
    std::function<expected<stage_backend>()> create = nullptr;
    std::shared_ptr<std::atomic<bool>> created = nullptr;
    /// Makes the executor of its device, if that is lent to a guest.
    std::function<std::shared_ptr<gpu::device_executor>(gpu::simulated_executor::clock,
                                                        gpu::simulated_executor::timer)>
        executor = nullptr;
  };

  explicit stage_by_hand(stage_setup s) : stage_by_hand{std::move(s), how{}} {}
  stage_by_hand(stage_setup s, how it) : setup{std::move(s)}, world_{*harness::small_cluster()} {
    stage_options o;
    o.setup = setup;
    o.trainer = trainer_of_stage;
    o.start_s = it.start_s;
    if (it.slowdown != 1) o.slowdown = [f = it.slowdown] { return f; };
    o.create = std::move(it.create);
    o.created = std::move(it.created);
    if (it.real) o.device = device;
    o.tokens = [](std::uint64_t iteration,
                  std::uint32_t microbatch) -> expected<std::pair<payload, payload>> {
      return std::pair{bytes(1 + iteration), bytes(100 + microbatch)};
    };
    o.gateway = gateway_of_stage;
    if (it.executor)
      o.executor = it.executor([this] { return world_.now_s(); },
                               [this](double wait_s, std::function<void()> what) {
                                 const caf::scoped_actor sender{world_.system()};
                                 sender->delayed_send(timers_, nanoseconds_of(wait_s),
                                                      call_now{std::move(what)});
                               });
    net_->now_s = [this] { return world_.now_s(); };
    world_.add_host(this_stage, [this, o](const runtime::host& h) mutable {
      auto host = h;
      host.net = net_;
      const auto node = world_.system().spawn([this](node_actor::pointer) { return behavior(); });
      o.messenger = actors::messenger{host, node};
      timers_ = world_.system().spawn([](timer_actor::pointer) -> timer_actor::behavior_type {
        return {[](const call_now& c) { c.what(); }};
      });
      stage_ = world_.system().spawn(stage, std::move(o));
      return std::vector{caf::actor_cast<caf::actor>(node), caf::actor_cast<caf::actor>(stage_)};
    });
    settle();
  }

  /// A payload of that many bytes.
  static payload bytes(std::size_t n) { return payload{std::vector<std::byte>(n)}; }

  stage_run run_until(std::uint64_t until) const {
    stage_run r;
    r.name = setup.name;
    r.until = until;
    r.incarnation = setup.incarnation;
    return r;
  }
  void say(const stage_run& r) {
    caf::anon_send(stage_, inbound<stage_run>{trainer_of_stage, r, {}, {}});
    settle();
  }
  void run(std::uint64_t until) { say(run_until(until)); }
  /// From a neighbour, or for sums from a peer.
  tensor tensor_of(tensor::kind what, std::uint64_t iteration, std::uint32_t microbatch) const {
    tensor t;
    t.what = what;
    t.from = setup.name;
    t.from.stage += what == tensor::kind::activation ? -1U : what == tensor::kind::gradient ? 1 : 0;
    t.to_stage = setup.name.stage;
    t.to_pipeline = setup.name.pipeline;
    t.iteration = iteration;
    t.microbatch = microbatch;
    t.bytes = 1000;
    t.sent_s = world_.now_s();
    t.path.pairs = 0;
    return t;
  }
  void receive(const tensor& t, payload body = {}) {
    caf::anon_send(stage_, inbound<tensor>{before_stage, t, std::move(body), {}});
    settle();
  }
  void activation(std::uint64_t iteration, std::uint32_t m, payload body = {}) {
    receive(tensor_of(tensor::kind::activation, iteration, m), std::move(body));
  }
  void gradient(std::uint64_t iteration, std::uint32_t m, payload body = {}) {
    receive(tensor_of(tensor::kind::gradient, iteration, m), std::move(body));
  }
  void ask(const tensor_request& r) {
    caf::anon_send(stage_, inbound<tensor_request>{after_stage, r, {}, {}});
    settle();
  }
  void release() {
    caf::anon_send(stage_, release_device{});
    settle();
  }
  void finish(gpu::outcome o = {}) {
    device->finish(std::move(o));
    settle();
  }
  void fail(reason::kind code, const std::string& text) {
    device->finish(refuse(code, text));
    settle();
  }
  void advance(double seconds) { world_.run_until(world_.now_s() + seconds); }
  double now_s() const { return world_.now_s(); }

  /// All messages of a type that were sent and not yet taken.
  template <class T>
  std::vector<T> take() {
    std::vector<T> all;
    std::erase_if(net_->sent, [&](const auto& m) {
      const auto* t = std::get_if<T>(&m.what);
      if (t) all.push_back(*t);
      return t != nullptr;
    });
    return all;
  }
  /// The latest report; forgets those before it.
  stage_report report() {
    const auto all = take<stage_report>();
    REQUIRE_FALSE(all.empty());
    return all.back();
  }
  std::vector<stage_transport::sent_message>& sent() { return net_->sent; }
  stage_transport& net() { return *net_; }
  const std::vector<training_over>& over() const { return over_; }
  /// Messages to stages of this host.
  const std::vector<message>& local() const { return local_; }

  /// Gives a simulated stage in the middle its inputs of an iteration, and lets it end.
  void complete(std::uint64_t iteration) {
    for (const auto m : {0u, 1u}) activation(iteration, m);
    for (const auto m : {0u, 1u}) gradient(iteration, m);
    advance(1.5);
  }

  stage_setup setup;
  std::shared_ptr<device_by_hand> device = std::make_shared<device_by_hand>();

 private:
  node_actor::behavior_type behavior() {
    return {[](const arrived&) {},
            [this](const local_frame& f) {
              if (auto m = decode(f.what.header.bytes())) local_.push_back(std::move(m->second));
            },
            [](const programs_changed&) {},
            [](const work_done&) {},
            [this](const training_over& o) { over_.push_back(o); },
            [](const training_event&) {},
            [](const serving_over&) {},
            [](const tick&) {}};
  }
  void settle() { world_.run_until(world_.now_s() + 0.001); }

  std::shared_ptr<stage_transport> net_ = std::make_shared<stage_transport>();
  std::vector<training_over> over_;
  std::vector<message> local_;
  runtime::virtual_world world_;
  stage_actor stage_;
  using timer_actor = caf::typed_actor<caf::reacts_to<call_now>>;
  timer_actor timers_;
};

/// The order of `alone` once, up to the end of the update.
inline void iterate(stage_by_hand& s) {
  for (int i = 0; i < 3; ++i) s.finish(result_with({}));
}

}  // namespace troupe::actors::tests
