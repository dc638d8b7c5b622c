// Stages with device all-reduce: real stage actors on emulated machines; the test plays their
// network and their trainer.
#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "actors/protocol/host_threads.hpp"
#include "actors/training/stage/stage.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/runtime/calls.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/pipeline.hpp"
#include "harness/facts.hpp"
#include "messages/codec/codec.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr address trainer_address = 1;
constexpr double long_s = 60;  // a limit, never a proof

class still_clock final : public runtime::clock {
 public:
  double now_s() const override { return 0; }
  double wall_s() const override { return 0; }
};

/// Hands every message to the stage that lives at its address, and reports to the test.
class switchboard final : public runtime::transport {
 public:
  address self() const override { return 0; }
  bool send(address to, frame f, std::uint32_t) override {
    auto m = std::move(decode(f.header.bytes()).value().second);  // Catch asserts in its own thread
    if (to == trainer_address) {
      std::lock_guard lock{guard_};
      reports_.push_back(std::get<stage_report>(m));
      came_.notify_all();
    } else if (auto* t = std::get_if<tensor>(&m)) {
      if (t->what == tensor::kind::partial || t->what == tensor::kind::sum) ++parts;
      caf::anon_send(stages.at(to), inbound<tensor>{0, *t, f.body, {}});
    }
    return true;
  }
  void listen(receiver) override {}
  void handled(const frame&) override {}

  /// The first `n` reports that satisfy a condition.
  std::vector<stage_report> wait_for(std::size_t n,
                                     std::function<bool(const stage_report&)> wanted) {
    std::unique_lock lock{guard_};
    std::vector<stage_report> found;
    const bool all = came_.wait_for(lock, std::chrono::duration<double>(long_s), [&] {
      found.clear();
      std::ranges::copy_if(reports_, std::back_inserter(found), wanted);
      return found.size() >= n;
    });
    for (const auto& r : reports_) INFO(r.why.text);
    REQUIRE(all);
    return found;
  }

  std::map<address, stage_actor> stages;
  std::atomic<int> parts = 0;  // of gradients that hosts exchange

 private:
  std::mutex guard_;
  std::condition_variable came_;
  std::vector<stage_report> reports_;
};

/// Counts the all-reduces that run concurrently with kernels.
class counting_sums final : public gpu::cuda::kernel_interceptor {
 public:
  counting_sums(std::shared_ptr<gpu::cuda::machine> m, std::shared_ptr<std::atomic<int>> count)
      : kernel_interceptor{std::move(m)}, count_{std::move(count)} {}
  void* side_stream() override {
    ++*count_;
    return kernel_interceptor::side_stream();
  }

 private:
  void perform(gpu::cuda::call, std::function<void(gpu::cuda::machine&)> how) override {
    how(behind());
  }
  std::shared_ptr<std::atomic<int>> count_;
};

struct world_options {
  std::uint32_t stages = 1, pipelines = 2;
  bool tied = true;
  const gpu::cuda::collectives* sums = nullptr;
  gpu::cuda::communicator_patience patience{};
};

class world {
 public:
  explicit world(world_options o) : o_{o}, net_{std::make_shared<switchboard>()} {
    model_ = test::small_model(o.tied);
    model_.layers = o.stages;
    for (std::uint32_t p = 0; p < o.pipelines; ++p)
      for (std::uint32_t s = 0; s < o.stages; ++s) setups_.push_back(setup(p, s));
    for (const auto& s : setups_)
      net_->stages[at(s.name.pipeline, s.name.stage)] =
          spawn_actor<stage_state>(system_, options(s));
  }
  ~world() {
    for (const auto& [where, actor] : net_->stages)
      caf::anon_send_exit(actor, caf::exit_reason::kill);
  }

  /// The reports of all stages that are there.
  std::vector<stage_report> ready() {
    return net_->wait_for(setups_.size(), [](const auto& r) { return r.iteration == 0; });
  }
  void run(std::uint64_t until,
           const std::map<std::uint32_t, std::vector<std::uint8_t>>& communicator_ids,
           std::uint64_t incarnation = 7) {
    for (const auto& s : setups_) {
      stage_run r{s.name, until, 0, {}, {}, {}, {}, incarnation};
      if (communicator_ids.contains(s.name.stage))
        r.communicator_id = communicator_ids.at(s.name.stage);
      caf::anon_send(net_->stages[at(s.name.pipeline, s.name.stage)],
                     inbound<stage_run>{trainer_address, r, {}, {}});
    }
  }
  /// Loss and squared norm of every iteration and stage.
  std::map<std::tuple<std::uint64_t, stage_name>, std::pair<double, double>> learnt(
      std::uint64_t until) {
    std::map<std::tuple<std::uint64_t, stage_name>, std::pair<double, double>> all;
    for (const auto& r : net_->wait_for(until * setups_.size(), [](const auto& r) {
           return r.iteration > 0 && r.why.text.empty();
         }))
      all[{r.iteration, r.name}] = {r.loss, r.squared_norm};
    return all;
  }
  std::vector<stage_report> broken(std::size_t n) {
    return net_->wait_for(n, [](const auto& r) { return !r.why.text.empty(); });
  }
  void kill(std::uint32_t pipeline, std::uint32_t stage) {
    caf::anon_send_exit(net_->stages[at(pipeline, stage)], caf::exit_reason::kill);
  }
  int parts() const { return net_->parts; }
  int overlapped_sums() const { return *overlapped_; }

 private:
  address at(std::uint32_t p, std::uint32_t s) const { return 10 + p * o_.stages + s; }

  stage_setup setup(std::uint32_t p, std::uint32_t s) const {
    stage_setup x;
    x.name = {1, p, s};
    x.incarnation = 7;
    x.backend = "cuda";
    x.model = model_;
    x.first_sublayer = 2 * s;
    x.sublayers = 2;
    x.stages = o_.stages;
    x.pipelines = o_.pipelines;
    x.microbatches = 2;
    x.rows = 2;
    x.iterations = 1000;
    for (const auto what : {stage_step::kind::forward, stage_step::kind::backward})
      for (std::uint32_t m = 0; m < 2; ++m) x.order.push_back({what, m, 0});
    for (std::uint32_t other = 0; other < o_.stages; ++other) x.neighbours.push_back(at(p, other));
    for (std::uint32_t peer = 0; peer < o_.pipelines; ++peer) x.peers.push_back(at(peer, s));
    for (auto* path : {&x.forward, &x.backward, &x.tied}) path->pairs = 0;
    return x;
  }
  stage_options options(const stage_setup& s) {
    stage_options x;
    x.setup = s;
    x.trainer = trainer_address;
    runtime::host h;
    h.self = 1000;  // no stage's address: all messages use the network
    h.clock = std::make_shared<still_clock>();
    h.net = net_;
    x.messenger = messenger{h, {}};
    gpu::stage_spec spec;
    spec.model = model_;
    spec.first_sublayer = s.first_sublayer;
    spec.sublayers = s.sublayers;
    spec.has_embedding = s.name.stage == 0;
    spec.has_head = s.name.stage + 1 == s.stages;
    spec.rows = s.rows;
    using pass = gpu::stage_spec::pass::kind;
    for (const auto what : {pass::forward_kept, pass::backward})
      for (std::uint32_t m = 0; m < 2; ++m) spec.iteration.push_back({what, m});
    stage_backend backend;
    backend.device = std::make_shared<gpu::cuda::device>(
        spec, std::make_shared<counting_sums>(test::emulated_machine(o_.sums), overlapped_),
        gpu::cuda::device::first_values::set, o_.patience, nullptr,
        1);  // pieces as small as can be
    backend.tokens = [m = model_, p = s.name.pipeline](
                         std::uint64_t iteration,
                         std::uint32_t microbatch) -> expected<std::pair<payload, payload>> {
      const auto l = test::lessons(m, 2, 1, iteration * 100 + p * 10 + microbatch);
      return std::pair{l[0].input, l[0].targets};
    };
    x.create = [backend] { return backend; };
    return x;
  }

  world_options o_;
  std::shared_ptr<std::atomic<int>> overlapped_ = std::make_shared<std::atomic<int>>(0);
  model model_;
  std::vector<stage_setup> setups_;
  actors::host_threads config_;
  caf::actor_system system_{config_};
  std::shared_ptr<switchboard> net_;
};

std::map<std::uint32_t, std::vector<std::uint8_t>> meetings_of(
    const std::vector<stage_report>& all) {
  std::map<std::uint32_t, std::vector<std::uint8_t>> found;
  for (const auto& r : all) {
    CHECK(r.fallback_reason.text.empty());
    CHECK(r.communicator_id.empty() == (r.name.pipeline != 0));
    if (r.name.pipeline == 0) found[r.name.stage] = r.communicator_id;
  }
  return found;
}

}  // namespace

TEST_CASE("stages learn the same by device all-reduce as by host all-reduce") {
  const auto stages = GENERATE(1u, 2u);
  const bool tied = GENERATE(true, false);
  CAPTURE(stages, tied);
  world hosts{{stages, 2, tied}}, gpus{{stages, 2, tied, &test::emulated_nccl()}};
  for (const auto& r : hosts.ready())
    CHECK(troupe::test::has_facts(r.fallback_reason.text, {"NCCL"}));
  const auto communicator_ids = meetings_of(gpus.ready());
  REQUIRE(communicator_ids.size() == stages);
  hosts.run(3, {});
  gpus.run(3, communicator_ids);
  gpus.run(3, communicator_ids);             // the trainer repeats its message after a timeout
  CHECK(hosts.learnt(3) == gpus.learnt(3));  // of two pipelines, whose sums have one order
  CHECK(hosts.parts() > 0);
  CHECK(gpus.parts() == 0);
  CHECK(hosts.overlapped_sums() == 0);
  CHECK(gpus.overlapped_sums() >= 3 * 2 * 2 * static_cast<int>(stages));  // a sublayer's at least
}

TEST_CASE("with three pipelines, device and host all-reduce differ only in the last bits") {
  world hosts{{1, 3, true}}, gpus{{1, 3, true, &test::emulated_nccl()}};
  hosts.ready();
  const auto communicator_ids = meetings_of(gpus.ready());
  hosts.run(3, {});
  gpus.run(3, communicator_ids);
  const auto a = hosts.learnt(3), b = gpus.learnt(3);
  for (const auto& [what, values] : a) {
    CHECK(b.at(what).first == Approx(values.first).epsilon(1e-4));
    CHECK(b.at(what).second == Approx(values.second).epsilon(1e-2));
  }
}

TEST_CASE("a stage whose peer has died reports an error instead of hanging") {
  world gpus{{1, 2, true, &test::emulated_nccl(), {.join_s = 0.2, .sum_s = 0.3}}};
  const auto communicator_ids = meetings_of(gpus.ready());
  SECTION("before they join the group") {
    gpus.kill(1, 0);
    gpus.run(1, communicator_ids);
    CHECK(troupe::test::has_facts(gpus.broken(1)[0].why.text, {"2 GPUs", "0.2 s", "member 0"}));
  }
  SECTION("later") {
    gpus.run(1, communicator_ids);
    gpus.learnt(1);
    gpus.kill(1, 0);
    gpus.run(2, communicator_ids);
    CHECK(troupe::test::has_facts(gpus.broken(1)[0].why.text, {"0.3 s"}));
  }
}

TEST_CASE("an NCCL error makes a stage give up with its reason") {
  world gpus{{1, 2, true, &test::emulated_nccl(), {.sum_s = 0.3}}};
  const auto communicator_ids = meetings_of(gpus.ready());
  gpus.run(1, communicator_ids);
  gpus.learnt(1);
  const test::nccl_fault fault{0, 0};  // whichever sum comes next
  gpus.run(5, communicator_ids);
  for (const auto& r : gpus.broken(2)) {
    CHECK(r.iteration == 1);
    CHECK(r.why.code == reason::kind::unavailable);
    if (r.name.pipeline == 0)
      CHECK(troupe::test::has_facts(r.why.text,
                                    {"member 0", "2 GPUs", "NCCL", "unhandled system error"}));
  }
}

TEST_CASE("a group id of an earlier trainer is ignored") {
  world gpus{{1, 2, true, &test::emulated_nccl(), {.join_s = 0.2}}};
  gpus.ready();
  gpus.run(1, {{0, std::vector<std::uint8_t>(128)}}, 6);  // the number of no group
  gpus.run(1, {});
  CHECK(gpus.learnt(1).size() == 2);
  CHECK(gpus.parts() > 0);
}
