// A training whose GPU has less memory than in the cluster file: real hosts in this process,
// whose node has emulated GPUs of N bytes.
#include <catch2/catch.hpp>

#include <mutex>

#include "actors/worlds/real_host.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/counted_machine.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/tensor_parallel/shared_stage.hpp"
#include "harness/scratch.hpp"
#include "planners/policy/policy.hpp"
#include "runtime/host/wait.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr double wait_s = 60;

/// A node with two GPUs, of `bytes` each in truth.
class emulated_cluster {
 public:
  explicit emulated_cluster(std::size_t bytes) : bytes_{bytes} {
    auto c = std::make_shared<cluster>();
    c->name = "emulated";
    c->gpus.push_back({.name = "emulated",
                       .memory_gb = 2,
                       .fp16_tflops = 10,
                       .fp32_tflops = 1,
                       .memory_gbytes_s = 100,
                       .source = ""});
    c->datacenters = {{"dc", ""}};
    node n;
    n.name = "dc-0";
    n.gpus = 2;
    n.intra = {"pcie", 200, 5};
    n.inter = {"ethernet", 100, 10};
    c->nodes.push_back(n);
    c->settings.heartbeat_s = 0.1;
    cluster_ = std::move(c);
    controller_ =
        must(real_host::controller(options("controller"), planners::make_policy("frenzy"), true));
    gateway_ = must(real_host::gateway(options("gateway", controller_->endpoint()), 0));
    auto o = options("node", gateway_->endpoint());
    o.listen.clear();
    o.make_cuda = [this](const gpu::stage_spec& s, const std::vector<int>&) { return make(s); };
    node_ = must(real_host::node(o, 0));
    real_host_options client;
    client.upstream = controller_->endpoint();
    client_ = must(real_host::client(client, wait_s));
  }

  template <class Reply>
  Reply ask(message m) const {
    const auto a = client_->ask(std::move(m), wait_s).reply;
    INFO((a ? std::string{} : a.error().text));
    REQUIRE(a);
    REQUIRE(std::holds_alternative<Reply>(a->first));
    return std::get<Reply>(a->first);
  }
  job_status run_to_end(job_spec job) const {
    job.train->data = data_;
    job.train->checkpoint = room_ / "checkpoint";
    submit_job s;
    s.spec = std::move(job);
    const auto id = ask<submit_reply>(s).job;
    REQUIRE(id != 0);
    job_status last;
    REQUIRE(runtime::wait_until(
        [&] {
          last = ask<query_reply>(query_jobs{}).jobs.back();
          return is_final(last.state);
        },
        wait_s, 0.05));
    return last;
  }
  training_report report(job_id job) const {
    return ask<training_reply>(query_training{0, job}).report;
  }
  /// The number of sublayers of each stage that was created.
  std::vector<std::uint32_t> stages() const {
    const std::lock_guard lock{guard_};
    return stages_;
  }

 private:
  static std::unique_ptr<real_host> must(expected<std::unique_ptr<real_host>> h) {
    INFO((h ? std::string{} : h.error().text));
    REQUIRE(h);
    return std::move(*h);
  }
  real_host_options options(const std::string& name, const std::string& upstream = {}) const {
    real_host_options o;
    o.cluster = cluster_;
    o.upstream = upstream;
    o.listen = "tcp://127.0.0.1:*";
    o.state = room_ / name;
    return o;
  }
  expected<std::unique_ptr<gpu::stage_device>> make(const gpu::stage_spec& s) {
    {
      const std::lock_guard lock{guard_};
      stages_.push_back(s.sublayers);
    }
    try {
      return std::make_unique<gpu::cuda::device>(s, test::emulated_machine(nullptr, 1, bytes_));
    } catch (const std::runtime_error& e) {
      return refuse(gpu::cuda::code_of(e, reason::kind::insufficient), e.what());
    }
  }

  const std::size_t bytes_;
  test::scratch room_;
  std::string data_ = room_.write("text", std::string(4000, 'a') + std::string(4000, 'b'));
  std::shared_ptr<const cluster> cluster_;
  mutable std::mutex guard_;
  std::vector<std::uint32_t> stages_;
  std::unique_ptr<real_host> controller_, gateway_, node_, client_;
};

/// One micro-batch, so that a second stage gains nothing but memory.
job_spec a_training() {
  job_spec job;
  job.name = "tight";
  job.model.name = "tiny";
  job.model.hidden = 24;
  job.model.heads = 3;
  job.model.layers = 3;
  job.model.sequence = 20;
  job.model.vocabulary = 256;
  job.model.tied_head = false;
  job.global_batch = 2;
  job.iterations = 3;
  job.train.emplace();
  job.train->device = "cuda";
  job.pipeline.data_parallel = 1;
  job.pipeline.microbatches = 1;
  return job;
}

/// Bytes that sublayers of it take on a device.
std::size_t needed(std::uint32_t first, std::uint32_t count) {
  const auto job = a_training();
  gpu::stage_spec s;
  s.model = job.model;
  s.first_sublayer = first;
  s.sublayers = count;
  s.has_embedding = first == 0;
  s.has_head = first + count == 2 * job.model.layers;
  s.rows = job.global_batch;
  const auto taken = std::make_shared<gpu::cuda::taken_memory>();
  const gpu::cuda::device d{s, std::make_shared<gpu::cuda::counting_machine>(
                                   std::make_shared<gpu::cuda::idle_machine>(), taken)};
  return taken->bytes;
}

}  // namespace

TEST_CASE("a training that runs out of GPU memory is planned again with more headroom, and ends") {
  const emulated_cluster roomy{std::size_t{1} << 30};
  const auto usual = roomy.run_to_end(a_training());
  INFO(usual.detail);
  REQUIRE(usual.state == job_state::finished);
  CHECK(usual.progress.attempts == 1);
  CHECK(roomy.stages() == std::vector<std::uint32_t>{6});

  // Created, it has no room for its activations.
  const emulated_cluster tight{needed(0, 6) + 1000};
  const auto job = tight.run_to_end(a_training());
  UNSCOPED_INFO(job.detail);
  REQUIRE(job.state == job_state::finished);
  CHECK(job.progress.attempts > 1);
  const auto stages = tight.stages();
  REQUIRE(stages.size() == 3);
  CHECK(stages[0] == 6);
  CHECK(stages[1] + stages[2] == 6);

  const auto e = tight.ask<explanation>(explain_job{0, job.job});
  REQUIRE(e.memory.size() == 1);
  CHECK(e.memory[0].out_of_memory);
  const auto a = roomy.report(usual.job), b = tight.report(job.job);
  CHECK(std::ranges::any_of(b.events, [](const std::string& event) {
    return event.starts_with("stage 0 of pipeline 0 on node ") &&
           event.find(": the GPU refused memory of ") != std::string::npos &&
           event.find("bytes: out of memory; ") != std::string::npos;
  }));
  REQUIRE(a.iterations.size() == 3);
  REQUIRE(b.iterations.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(a.iterations[i].loss == b.iterations[i].loss);
}

TEST_CASE("a training that no GPU of the cluster turns out to hold fails, and says why") {
  const emulated_cluster tiny{needed(0, 1) / 2};
  const auto job = tiny.run_to_end(a_training());
  CHECK(job.state == job_state::failed);
  CHECK_THAT(job.detail,
             Catch::StartsWith("ran out of memory; with the headroom that this implies: "));
  CHECK(tiny.stages().size() > 1);
}
