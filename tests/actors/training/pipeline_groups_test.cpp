// Pipelines of unequal shares, in one datacenter or in several: real stage actors with the CPU
// engine, set up as the trainer's plan says; the test plays their network and their trainer.
#include <catch2/catch.hpp>

#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>

#include "actors/protocol/host_threads.hpp"
#include "actors/training/device/stage_backend.hpp"
#include "actors/training/planning/training_plan.hpp"
#include "actors/training/stage/stage.hpp"
#include "actors/training/trainer/ordered_sums.hpp"
#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec/codec.hpp"
#include "planners/plans/explicit_plan.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr double patience_s = 60;  // a limit, never a proof
constexpr address the_trainer = 1;

class stopped_clock final : public runtime::clock {
 public:
  double now_s() const override { return 0; }
  double wall_s() const override { return 0; }
};

/// Hands every tensor to the stage on its node, and reports to the test.
class stage_network final : public runtime::transport {
 public:
  address self() const override { return 0; }
  bool send(address to, frame f, std::uint32_t) override {
    auto m = std::move(decode(f.header.bytes()).value().second);  // Catch asserts in its own thread
    std::lock_guard lock{guard_};
    if (to == the_trainer) {
      reports_.push_back(std::get<stage_report>(m));
      came_.notify_all();
    } else if (auto* t = std::get_if<tensor>(&m)) {
      ++sent_[t->what];
      if (t->path.pairs > 0) crossed += t->bytes;
      caf::anon_send(stages.at(to), inbound<tensor>{0, *t, f.body, {}});
    }
    return true;
  }
  void listen(receiver) override {}
  void handled(const frame&) override {}

  std::vector<stage_report> wait_for(std::size_t n, std::uint64_t first, std::uint64_t last) {
    std::unique_lock lock{guard_};
    std::vector<stage_report> found;
    const bool all = came_.wait_for(lock, std::chrono::duration<double>(patience_s), [&] {
      found.clear();
      for (const auto& r : reports_) {
        if (!r.why.text.empty()) UNSCOPED_INFO(r.why.text);
        if (r.iteration >= first && r.iteration <= last && r.why.text.empty()) found.push_back(r);
      }
      return found.size() >= n;
    });
    REQUIRE(all);
    return found;
  }
  int sent(tensor::kind what) { return sent_[what]; }

  std::map<address, stage_actor> stages;
  std::uint64_t crossed = 0;  // bytes over the WAN

 private:
  std::mutex guard_;
  std::condition_variable came_;
  std::vector<stage_report> reports_;
  std::map<tensor::kind, int> sent_;
};

/// The actor system waits for its actors.
struct ended_stages {
  stage_network& net;
  explicit ended_stages(stage_network& n) : net{n} {}
  ended_stages(const ended_stages&) = delete;
  ended_stages& operator=(const ended_stages&) = delete;
  ~ended_stages() {
    for (const auto& [where, actor] : net.stages)
      caf::anon_send_exit(actor, caf::exit_reason::kill);
  }
};

/// Datacenters of so many nodes with one GPU each.
cluster nodes_in(const std::vector<std::uint32_t>& numbers) {
  auto c = *harness::small_cluster();
  c.gpus.resize(1);
  c.gpus[0].memory_gb = 1e6;
  const auto intra = c.nodes[0].intra, inter = c.nodes[0].inter;
  c.nodes.clear();
  for (std::uint32_t d = 0; d < numbers.size(); ++d)
    for (std::uint32_t n = 0; n < numbers[d]; ++n)
      c.nodes.push_back({"n" + std::to_string(c.nodes.size()), d, 0, 1, intra, inter});
  return c;
}

/// A number of pipelines, their micro-batches, and the datacenter of each of their stages.
struct some_pipelines {
  std::uint32_t pipelines = 1, microbatches = 1;
  std::vector<std::uint32_t> datacenters;
};

job_spec small_training(const std::string& data, std::uint32_t samples, std::uint32_t stages) {
  auto job = harness::small_job("grouped", 4, samples);
  auto& m = job.model;
  m = {};
  m.name = "small", m.family = "gpt";
  m.hidden = 32, m.layers = 4, m.heads = 4, m.sequence = 16, m.vocabulary = 256;
  m.tied_head = true;
  job.train.emplace();
  job.train->data = data;
  job.train->seed = 5;
  job.train->schedule = "megatron";
  job.train->device = "cpu";
  job.pipeline.stages = stages;
  return job;
}

/// The curve of a training, and what its stages have sent.
struct grouped_curve {
  std::vector<double> losses, norms;
  std::uint64_t crossed = 0;
  std::uint64_t gradient_bytes = 0;  // of all stages of a pipeline, once
  int partials = 0, running = 0;
};

training_plan grouped_plan(const cluster& c, const job_spec& job,
                           const std::vector<some_pipelines>& groups, std::uint32_t rows) {
  const auto layers = job.model.layers;
  std::vector<pipeline_group> all;
  for (const auto& g : groups) {
    auto& group = all.emplace_back();
    group.pipelines = g.pipelines, group.microbatches = g.microbatches;
    const auto stages = static_cast<std::uint32_t>(g.datacenters.size());
    for (std::uint32_t s = 0; s < stages; ++s) {
      const auto each = 2 * layers / stages;
      group.stages.push_back({s * each, each, 1, gpu_index{0}, 0, g.datacenters[s]});
    }
  }
  const auto made = planners::plan_of_groups(c, planners::idle_index{c}, job, all, rows);
  if (!made) FAIL(made.error().text);
  train_order o;
  o.spec = job;
  o.how = made->how;
  for (const auto& share : made->where) {
    std::vector<std::uint16_t> devices(share.gpus);
    std::iota(devices.begin(), devices.end(), std::uint16_t{0});
    o.parts.push_back({share.node, 1, devices});
  }
  auto plan = plan_training(c, 1, o, "cpu");
  if (!plan) FAIL(plan.error().text);
  return std::move(*plan);
}

grouped_curve train_groups(const cluster& c, const job_spec& job,
                           const std::vector<some_pipelines>& groups) {
  auto plan = grouped_plan(c, job, groups, 2);
  const auto net = std::make_shared<stage_network>();
  actors::host_threads config;
  caf::actor_system system{config};
  const ended_stages at_end{*net};
  std::vector<double> divisors;
  for (auto& s : plan.stages) {
    s.incarnation = 7;
    s.iterations = job.iterations + 1;  // none is the last: nobody ends
    if (s.name.stage == 0)
      divisors.push_back(static_cast<double>(s.all_microbatches()) / s.microbatches);
    stage_options x;
    x.setup = s;
    x.trainer = the_trainer;
    runtime::host h;
    h.self = 7;  // no stage's address: all tensors use the network
    h.clock = std::make_shared<stopped_clock>();
    h.net = net;
    x.messenger = messenger{h, {}};
    x.create = [s] { return make_backend(s); };
    net->stages[s.neighbours[s.name.stage]] = spawn_actor<stage_state>(system, x);
  }
  REQUIRE(net->stages.size() == plan.stages.size());
  net->wait_for(plan.stages.size(), 0, 0);
  for (const auto& s : plan.stages)
    caf::anon_send(
        net->stages.at(s.neighbours[s.name.stage]),
        inbound<stage_run>{the_trainer, {s.name, job.iterations, 0, {}, {}, {}, {}, 7}, {}, {}});
  std::map<std::uint64_t, ordered_sums> sums;
  grouped_curve curve;
  for (const auto& r : net->wait_for(plan.stages.size() * job.iterations, 1, job.iterations)) {
    sums[r.iteration].add(r);
    if (r.iteration == 1 && r.name.pipeline == 0) curve.gradient_bytes += r.measured.gradient_bytes;
  }
  for (const auto& [iteration, of_stages] : sums) {
    iteration_record record;
    of_stages.add_to(record, divisors);
    curve.losses.push_back(record.loss);
    curve.norms.push_back(record.gradient_norm);
  }
  curve.crossed = net->crossed;
  curve.partials = net->sent(tensor::kind::partial);
  curve.running = net->sent(tensor::kind::running);
  return curve;
}

std::string text_to_learn(const troupe::test::scratch& room) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "abcdefgh "[i * i % 9];
  return room.write("text", text);
}

}  // namespace

TEST_CASE(
    "one pipeline beside two in another datacenter, of other shares, learns as in one datacenter, "
    "bit for bit") {
  const troupe::test::scratch room;
  const auto job = small_training(text_to_learn(room), 2 * (3 + 2 * 1), 2);
  const auto here = train_groups(nodes_in({6}), job, {{1, 3, {0, 0}}, {2, 1, {0, 0}}});
  const auto apart = train_groups(nodes_in({2, 4}), job, {{1, 3, {0, 0}}, {2, 1, {1, 1}}});
  CHECK(here.losses.size() == job.iterations);
  CHECK(apart.losses == here.losses);
  CHECK(apart.norms == here.norms);
  CHECK(here.crossed == 0);
  CHECK(here.running == 0);
  // Every gradient crosses once, and its sum comes back. A tied embedding's is summed in the first
  // stage alone.
  CHECK(apart.crossed > 0);
  CHECK(apart.crossed % (2 * job.iterations) == 0);
  CHECK(apart.crossed <= 2 * job.iterations * apart.gradient_bytes);
  CHECK(apart.running == static_cast<int>(job.iterations) * 2 * 2);  // stages, chunks
}

TEST_CASE("three micro-batches beside one are the four of one pipeline") {
  const troupe::test::scratch room;
  const auto job = small_training(text_to_learn(room), 8, 1);
  const auto one = train_groups(nodes_in({1}), job, {{1, 4, {0}}});
  const auto two = train_groups(nodes_in({1, 1}), job, {{1, 3, {0}}, {1, 1, {1}}});
  // The engine adds products into gradients, so that the last bits may differ.
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    CHECK(two.losses[i] == Approx(one.losses[i]).epsilon(1e-5));
    CHECK(two.norms[i] == Approx(one.norms[i]).epsilon(1e-4));
  }
  CHECK(two.losses.back() < two.losses.front());
}

TEST_CASE("a pipeline of its own datacenters beside one that crosses the WAN learns the same") {
  const troupe::test::scratch room;
  const auto job = small_training(text_to_learn(room), 2 * (1 + 2 + 2), 2);
  const auto here =
      train_groups(nodes_in({6}), job, {{1, 1, {0, 0}}, {1, 2, {0, 0}}, {1, 2, {0, 0}}});
  const auto apart =
      train_groups(nodes_in({2, 3, 1}), job, {{1, 1, {0, 1}}, {1, 2, {1, 1}}, {1, 2, {2, 0}}});
  CHECK(apart.losses == here.losses);
  CHECK(apart.norms == here.norms);
}

TEST_CASE("setups name a pipeline's share and its peers' datacenters only where they are needed") {
  const troupe::test::scratch room;
  const auto data = text_to_learn(room);
  const auto even = grouped_plan(nodes_in({4}), small_training(data, 8, 2), {{2, 2, {0, 0}}}, 2);
  for (const auto& s : even.stages) CHECK((!s.share && !s.sites));
  const auto split = grouped_plan(nodes_in({3, 1}), small_training(data, 8, 2),
                                  {{1, 1, {0, 0}}, {1, 3, {0, 1}}}, 2);
  REQUIRE(split.stages.size() == 4);
  const auto& second = split.stages[3];
  REQUIRE(second.share);
  CHECK(*second.share == batch_share{1, 4});
  CHECK(second.first_microbatch() == 1);
  CHECK(split.stages[0].all_microbatches() == 4);
  CHECK_FALSE(split.stages[2].sites);  // stage 0 of both is in the first datacenter
  REQUIRE(second.sites);
  CHECK(second.sites->datacenters == std::vector<std::uint32_t>{0, 1});
  CHECK(second.sites->forward.pairs == 0);
  CHECK(second.sites->backward.pairs == 1);
  CHECK(second.sites->backward.first_pair == 1);
  CHECK(second.backward.pairs == 1);  // its hop crosses the WAN
  CHECK(split.stages[1].sites->forward.first_pair == 0);
}
