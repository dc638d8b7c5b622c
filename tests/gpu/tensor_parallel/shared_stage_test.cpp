// A stage shared by several devices trains like a stage on one device.
#include "gpu/tensor_parallel/shared_stage.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <future>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/pipeline.hpp"
#include "harness/facts.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::test;
namespace step = gpu::operations;

namespace {

const tested_device cpu{"cpu", gpu::make_cpu_device};

/// Distance of gradients as a fraction of their norm, and of losses as a fraction of the loss. Sums
/// of the same 32-bit values in another order; on emulated GPUs also 16-bit factors.
struct tolerance {
  double gradients, losses;
};
constexpr tolerance of_cpu{2e-6, 1e-6}, of_gpu{0.01, 0.001};

tested_device shared_cpu(std::uint32_t shards) {
  return {"cpu",
          [shards](const gpu::stage_spec& s) { return gpu::make_shared_cpu_device(s, shards); }};
}

tested_device shared_gpu(std::uint32_t shards, bool nccl) {
  return {"emulated",
          [=](const gpu::stage_spec& s) -> expected<std::unique_ptr<gpu::stage_device>> {
            const auto one = gpu::shard_of(s, 0, shards);
            auto ok = gpu::check(one);
            if (ok) ok = gpu::cuda::check_shape(one);
            if (!ok) return refuse(ok.error());
            std::vector<std::shared_ptr<gpu::cuda::machine>> machines;
            for (std::uint32_t m = 0; m < shards; ++m)
              machines.push_back(emulated_machine(nccl ? &emulated_nccl() : nullptr));
            return gpu::cuda::share_stage(s, std::move(machines));
          }};
}

model sharable(std::uint32_t layers, bool tied) {
  auto m = small_model(tied);
  m.layers = layers;
  m.hidden = 32;
  m.heads = 4;
  return m;
}

void check_near(const pipeline::iteration& a, const pipeline::iteration& b, tolerance t) {
  test::check_near(a, b, t.gradients, t.losses);
}

}  // namespace

TEST_CASE("devices that share a stage start with one device's weights") {
  const auto m = sharable(2, GENERATE(true, false));
  const auto shards = GENERATE(1u, 2u, 4u);
  pipeline one{cpu, m, {4}}, shared{shared_cpu(shards), m, {4}};
  CHECK(one.weights() == shared.weights());
}

TEST_CASE("a stage shared by CPUs has the losses, gradients and norms of one CPU") {
  const bool tied = GENERATE(true, false), keep = GENERATE(true, false);
  const auto shards = GENERATE(2u, 4u);
  const auto sublayers = GENERATE(std::vector<std::uint32_t>{4}, std::vector<std::uint32_t>{2, 2},
                                  std::vector<std::uint32_t>{1, 3});
  CAPTURE(tied, keep, shards, sublayers);
  const auto m = sharable(2, tied);
  pipeline one{cpu, m, sublayers, {.keep = keep}};
  pipeline shared{shared_cpu(shards), m, sublayers, {.keep = keep}};
  pipeline again{shared_cpu(shards), m, sublayers, {.keep = keep}};
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto all = lessons(m, 2, 3, 100 + i);
    const auto a = one.learn(all), b = shared.learn(all), c = again.learn(all);
    // AdamW's step for a gradient near 0 depends on its last bits: later steps differ a little.
    check_near(a, b, i == 0 ? of_cpu : tolerance{2e-3, 1e-4});
    CHECK(b.losses == c.losses);  // bit for bit, whichever thread was first
    CHECK(b.own == c.own);
    CHECK(b.squared_norm == c.squared_norm);
  }
  CHECK(shared.weights() == again.weights());
}

TEST_CASE("a stage shared by GPUs has a CPU's losses, gradients and norms within its tolerance") {
  const bool tied = GENERATE(true, false), nccl = GENERATE(true, false);
  const auto shards = GENERATE(2u, 4u);
  CAPTURE(tied, nccl, shards);
  const auto m = sharable(2, tied);
  pipeline one{cpu, m, {3, 1}}, shared{shared_gpu(shards, nccl), m, {3, 1}};
  const auto all = lessons(m, 2, 2, 3);
  check_near(one.learn(all), shared.learn(all), of_gpu);
}

TEST_CASE("a GPU listed twice shares a stage with itself through the host") {
  if (!gpu::cuda::open_machine_here(0)) return;  // no GPU: devices() has printed why
  ::setenv("TROUPE_COLLECTIVES", "hosts", 1);
  const tested_device twice{"cuda", [](const gpu::stage_spec& s) {
                              return gpu::make_shared_cuda_device(s, {0, 0});
                            }};
  const auto m = sharable(2, true);
  pipeline one{cpu, m, {3, 1}}, shared{twice, m, {3, 1}};
  const auto all = lessons(m, 2, 2, 3);
  check_near(one.learn(all), shared.learn(all), of_gpu);
  ::unsetenv("TROUPE_COLLECTIVES");
}

TEST_CASE("a checkpoint does not depend on how many devices shared a stage") {
  const auto m = sharable(2, true);
  const auto from = GENERATE(1u, 2u, 4u), to = GENERATE(1u, 2u, 4u);
  CAPTURE(from, to);
  const auto directory = fresh_path("shared-stage").string();
  pipeline writer{shared_cpu(from), m, {2, 2}}, reader{shared_cpu(to), m, {4}};
  const auto all = lessons(m, 2, 2, 9);
  writer.learn(all);
  writer.save(directory);
  std::vector<std::string> files;
  for (const auto& s : writer.specs) files.push_back(gpu::stage_file(s));
  CHECK(gpu::write_index(directory, m, 1, files));
  reader.load(directory);
  CHECK(reader.weights() == writer.weights());
  const auto a = writer.learn(all), b = reader.learn(all);  // the moments are there, too
  CHECK(b.losses[0] == Approx(a.losses[0]).epsilon(1e-5));
  CHECK(distance(writer.weights(), reader.weights()) < 1e-4);
}

TEST_CASE("GPUs that share a stage write and read the same checkpoints") {
  const auto m = sharable(1, true);
  const auto directory = fresh_path("shared-gpu").string();
  pipeline writer{shared_gpu(2, true), m, {2}}, reader{cpu, m, {2}};
  writer.learn(lessons(m, 2, 1, 9));
  writer.save(directory);
  reader.load(directory);
  CHECK(reader.weights() == writer.weights());
}

TEST_CASE("gradients summed by hosts reach every device that shares a stage") {
  const auto m = sharable(1, true);
  pipeline one{cpu, m, {2}}, shared{shared_cpu(2), m, {2}};
  auto a = gpu::make_cpu_device(one.specs[0]);
  auto b = gpu::make_shared_cpu_device(one.specs[0], 2);
  const auto size = gpu::size_of(one.specs[0]);
  std::vector<std::byte> own(size.own_parameters * 4), tied(size.tied_parameters * 4);
  for (std::size_t i = 0; i < own.size() / 4; ++i) {
    const float v = 1e-3f * static_cast<float>(i % 97) - 0.05f;
    std::memcpy(own.data() + 4 * i, &v, 4);
  }
  const payload in[] = {payload{own}, payload{tied}};
  const auto x = run(**a, step::update{.sums = {in[0], in[1]}});
  const auto y = run(**b, step::update{.sums = {in[0], in[1]}});
  CHECK(y.squared_norm == Approx(x.squared_norm).epsilon(2e-5));
  CHECK(floats(run(**a, step::weights{}).own) == floats(run(**b, step::weights{}).own));
}

TEST_CASE("in two pipelines with shared stages, each shard is summed with its counterpart") {
  const auto m = sharable(1, true);
  const auto kind = shared_gpu(2, true);
  const auto s = whole_model(m, 2);
  auto a = kind.make(s), b = kind.make(s);
  const auto id = run(**a, step::make_communicator_id{.rank = 0, .size = 2}).id;
  CHECK(id.bytes().size() == 2 * gpu::cuda::collectives::id_bytes);
  CHECK(run(**b, step::make_communicator_id{.rank = 1, .size = 2}).id.empty());
  std::promise<expected<gpu::outcome>> joined;
  (*a)->submit({step::join_communicator{.id = id, .rank = 0, .size = 2}},
               [&](expected<gpu::outcome> r) { joined.set_value(std::move(r)); });
  run(**b, step::join_communicator{.id = id, .rank = 1, .size = 2});
  REQUIRE(joined.get_future().get());
  const auto l = lessons(m, 2, 2, 4);
  std::vector<float> sum;
  for (auto* d : {a->get(), b->get()}) {
    const auto& mine = l[d == b->get()];
    run(*d, step::forward{.keep = true, .input = mine.input, .targets = mine.targets});
    run(*d, step::backward{.last = true});  // they begin with nothing before it
    const auto g = floats(run(*d, step::gradients{}).own);
    if (sum.empty()) sum.resize(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
  }
  std::promise<expected<gpu::outcome>> summed;
  (*a)->submit({step::sum{}}, [&](expected<gpu::outcome> r) { summed.set_value(std::move(r)); });
  run(**b, step::sum{});
  REQUIRE(summed.get_future().get());
  for (auto* d : {a->get(), b->get()}) CHECK(floats(run(*d, step::gradients{}).own) == sum);
}

TEST_CASE("a model that cannot be divided among the devices is refused with a sentence") {
  auto s = whole_model(sharable(1, true));
  CHECK(troupe::test::has_facts(gpu::make_shared_cpu_device(s, 3).error().text,
                                {"3 devices", "4", "128"}));
  s.model.intermediate = 8;
  CHECK(troupe::test::has_facts(shared_gpu(4, true).make(s).error().text, {"8", "2"}));
}

TEST_CASE("devices that share a stage refuse what one device refuses, and keep working") {
  const auto kind = GENERATE(shared_cpu(2), shared_gpu(2, true));
  CAPTURE(kind.name);
  const auto s = whole_model(sharable(1, true), 2);
  auto d = kind.make(s);
  REQUIRE(d);
  CHECK(refusal(**d, {step::backward{}}).starts_with("micro-batch 0: "));
  CHECK(refusal(**d, {step::load{"/nowhere"}}).find("/nowhere") != std::string::npos);
  const auto l = lessons(s.model, 2, 1, 1);
  run(**d, step::forward{.keep = true, .input = l[0].input, .targets = l[0].targets});
}

TEST_CASE("an error between GPUs that share a stage ends all of them with a sentence") {
  const auto s = whole_model(sharable(1, true), 2);
  auto d = shared_gpu(2, true).make(s);
  REQUIRE(d);
  const auto l = lessons(s.model, 2, 1, 1);
  const nccl_fault fault{1, 1};
  const auto why =
      refusal(**d, {step::forward{.keep = true, .input = l[0].input, .targets = l[0].targets}});
  CHECK(troupe::test::has_facts(why, {"member 1", "2 GPUs", "NCCL", "unhandled system error"}));
}
