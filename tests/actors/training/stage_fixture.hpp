#pragma once

#include <atomic>

#include "actors/actor_fixture.hpp"
#include "actors/training/stage/stage.hpp"
#include "gpu/device/simulated_executor.hpp"

// A stage whose trainer, node, neighbours and peers are the test itself.

namespace troupe::actors::tests {

namespace op = gpu::operations;

/// Completes operations when the test calls for it.
class device_by_hand final : public gpu::stage_device {
 public:
  void submit(gpu::operation o, done d) override {
    submitted.push_back(std::move(o));
    done_.push_back(std::move(d));
  }
  /// The operation that it executes; null: none, or one of another kind.
  template <class What>
  const What* current() const {
    return done_.empty() ? nullptr : std::get_if<What>(&submitted.back().what);
  }
  bool is_idle() const { return done_.empty(); }
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

/// A result, of the kind of the operation that it ends.
struct by_hand {
  std::vector<payload> out{};
  double loss = 0, squared_norm = 0, begin_s = 0, end_s = 0;

  payload at(std::size_t i) const { return i < out.size() ? out[i] : payload{}; }
  void into(op::forward::result& r) const { r = {at(0), loss, {}}; }
  void into(op::backward::result& r) const { r = {at(0)}; }
  void into(gpu::own_and_tied& r) const { r = {at(0), at(1)}; }
  void into(op::update::result& r) const { r.squared_norm = squared_norm; }
  void into(op::make_communicator_id::result& r) const { r = {at(0)}; }
  void into(op::sum::result& r) const {
    if (!out.empty()) r.tied = out[0];
  }
  void into(op::digest::result&) const {}
  void into(op::no_result&) const {}

  gpu::outcome of(const gpu::operation& o) const {
    return std::visit(
        [this]<class What>(const What&) {
          typename What::result r;
          into(r);
          return gpu::outcome{std::move(r), begin_s, end_s};
        },
        o.what);
  }
};

inline by_hand result_with(std::vector<payload> out, double loss = 0) {
  return {std::move(out), loss, 0, 1, 1.5};
}

class stage_fixture : public actor_fixture {
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
    std::shared_ptr<gpu::checkpoint_writer> writer = nullptr;
    /// The other stages agree to every update, and what it says and hears about that is not shown.
    bool agrees = true;
  };

  explicit stage_fixture(stage_setup s) : stage_fixture{std::move(s), how{}} {}
  stage_fixture(stage_setup s, how it) : setup{std::move(s)}, agrees_{it.agrees} {
    stage_options o;
    o.setup = setup;
    o.trainer = trainer_of_stage;
    if (setup.view) o.replica = std::make_shared<stage_replica>(setup.name.pipeline, 0);
    o.start_s = it.start_s;
    if (it.slowdown != 1) o.slowdown = [f = it.slowdown] { return f; };
    o.create = std::move(it.create);
    o.created = std::move(it.created);
    o.writer = std::move(it.writer);
    if (it.real)
      o.create = [device = device]() -> expected<stage_backend> {
        return stage_backend{device, [](std::uint64_t iteration, std::uint32_t microbatch) {
                               return std::pair{bytes(1 + iteration), bytes(100 + microbatch)};
                             }};
      };
    o.gateway = gateway_of_stage;
    if (it.executor)
      o.executor = it.executor([this] { return now_s(); },
                               [this](double wait_s, std::function<void()> what) {
                                 world.at(now_s() + wait_s, std::move(what));
                               });
    start<stage_state>(this_stage, std::move(o));
    if (agrees_) answer();
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
  void run(const stage_run& r) { receive(trainer_of_stage, r); }
  void run(std::uint64_t until) { run(run_until(until)); }
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
    t.sent_s = now_s();
    t.path.pairs = 0;
    t.term = setup.incarnation;
    return t;
  }
  using actor_fixture::receive;
  /// The sender of the last gradient, or of a sum, can update.
  void receive(const tensor& t, payload body = {}) {
    receive(before_stage, t, std::move(body));
    const bool at_end = t.what == tensor::kind::gradient ? t.microbatch + 1 == setup.microbatches
                                                         : t.what == tensor::kind::sum;
    if (agrees_ && at_end && setup.name.pipeline == 0) agree(tensor::kind::ready, t);
  }
  /// Another stage's word about the update of a tensor's iteration, with a squared norm of 0.
  tensor word(tensor::kind what, const tensor& of, const stage_name& from) const {
    auto t = tensor_of(what, of.iteration, 0);
    t.from = from;
    t.bytes = sizeof(double);
    return t;
  }
  void agree(tensor::kind what, const tensor& of) {
    receive(before_stage, word(what, of, of.from), bytes(sizeof(double)));
  }
  void activation(std::uint64_t iteration, std::uint32_t m, payload body = {}) {
    receive(tensor_of(tensor::kind::activation, iteration, m), std::move(body));
  }
  void gradient(std::uint64_t iteration, std::uint32_t m, payload body = {}) {
    receive(tensor_of(tensor::kind::gradient, iteration, m), std::move(body));
  }
  void finish(const by_hand& o = {}) {
    REQUIRE_FALSE(device->is_idle());
    finish(o.of(device->submitted.back()));
  }
  void finish(expected<gpu::outcome> o) {
    device->finish(std::move(o));
    settle();
  }
  /// The operation under way, which is of this kind.
  template <class What>
  const What& executes() const {
    const auto* o = device->current<What>();
    REQUIRE(o);
    return *o;
  }
  void fail(reason::kind code, const std::string& text) {
    finish(expected<gpu::outcome>{refuse(code, text)});
  }

  /// The latest report; forgets those before it.
  stage_report report() { return last<stage_report>(); }

  /// Gives a simulated stage in the middle its inputs of an iteration, and lets it end.
  void complete(std::uint64_t iteration) {
    for (const auto m : {0u, 1u}) activation(iteration, m);
    for (const auto m : {0u, 1u}) gradient(iteration, m);
    advance(1.5);
  }

  stage_setup setup;
  std::shared_ptr<device_by_hand> device = std::make_shared<device_by_hand>();

 private:
  /// Takes its words about updates, and tells it to do those for which it is ready.
  void answer() {
    std::erase_if(sent, [this](const auto& m) {
      const auto* t = std::get_if<tensor>(&m.what);
      if (!t || (t->what != tensor::kind::ready && t->what != tensor::kind::commit)) return false;
      if (t->what == tensor::kind::ready)
        give(inbound<tensor>{before_stage,
                             word(tensor::kind::commit, *t, {lease_of_stage, 0, t->to_stage}),
                             bytes(sizeof(double)),
                             {}});
      return true;
    });
    world.at(now_s() + 0.0004, [this] { answer(); });  // before a message has settled
  }

  bool agrees_ = true;
};

/// The order of `alone` once, up to the end of the update.
inline void iterate(stage_fixture& s) {
  for (int i = 0; i < 3; ++i) s.finish(result_with({}));
}

}  // namespace troupe::actors::tests
