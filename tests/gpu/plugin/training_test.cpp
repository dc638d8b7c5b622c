// Stages that train through plugin.cu over the fake CUDA, against the emulated machine and the CPU.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/host/graphs.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/pipeline.hpp"
#include "gpu/plugin/fake_cuda.hpp"
#include "gpu/plugin/plugin_machines.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::gpu::cuda;

namespace {

/// Overwrites memory for copies as soon as its pool has it back.
class poisoning_machine final : public kernel_interceptor {
 public:
  using kernel_interceptor::kernel_interceptor;
  void let_go(void* memory, std::size_t bytes) noexcept override {
    std::memset(memory, 0xff, bytes);
  }

 private:
  void perform(call, std::function<void(machine&)> how) override { how(behind()); }
};

tested_device emulated() {
  return {"emulated", [](const gpu::stage_spec& s) {
            return expected<std::unique_ptr<gpu::stage_device>>{
                std::make_unique<device>(s, emulated_machine())};
          }};
}

/// Each stage on another GPU. `graphs`: of its machines.
tested_device through_plugin(std::vector<std::shared_ptr<pass_graphs>>& graphs) {
  return {"plugin", [&graphs](const gpu::stage_spec& s) {
            const auto index = static_cast<int>(graphs.size()) % fake_cuda::device_count;
            graphs.push_back(std::make_shared<pass_graphs>(
                std::make_shared<poisoning_machine>(open_gpu(index).m)));
            return expected<std::unique_ptr<gpu::stage_device>>{
                std::make_unique<device>(s, graphs.back())};
          }};
}

}  // namespace

TEST_CASE("training through the plug-in has the emulated machine's bits, at every pace") {
  fake_cuda::settings how;
  how.no_epilogues();  // the emulated machine has none
  const auto all = fake_cuda::all_paces();
  const auto which = GENERATE(0u, 1u, 2u, 4u, 15u, 16u);
  how.paces(all[which]);
  const auto m = wide_model();
  const std::vector<std::uint32_t> split =
      which % 2 == 0 ? std::vector<std::uint32_t>{4} : std::vector<std::uint32_t>{1, 3};
  std::vector<std::shared_ptr<pass_graphs>> graphs;
  pipeline reference{emulated(), m, split}, plugin{through_plugin(graphs), m, split};
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto l = lessons(m, 2, 2, i);
    const auto a = reference.learn(l), b = plugin.learn(l);
    CHECK(a.losses == b.losses);  // others in parentheses: Catch takes minutes for many values
    CHECK((a.own == b.own));
    CHECK((a.tied == b.tied));
    CHECK(a.squared_norm == b.squared_norm);
  }
  CHECK((reference.weights() == plugin.weights()));
  for (const auto& g : graphs) CHECK(g->so_far().run > g->so_far().made);
  for (const auto& g : graphs) CHECK(g->so_far().made > 0);
}

TEST_CASE("training through the plug-in with cuBLASLt's epilogues follows the CPU's") {
  fake_cuda::settings how;
  how.paces(fake_cuda::all_paces()[16]);
  const auto m = wide_model();
  std::vector<std::shared_ptr<pass_graphs>> graphs;
  pipeline cpu{{"cpu", gpu::make_cpu_device}, m, {4}}, plugin{through_plugin(graphs), m, {4}};
  fake_cuda::seen() = {};
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto l = lessons(m, 2, 2, i);
    check_near(cpu.learn(l), plugin.learn(l), 0.01, 0.001);
  }
  CHECK(fake_cuda::seen().products > 0);
}

TEST_CASE("a timed operation reports the time between its first and its last kernel") {
  fake_cuda::settings how;
  how.paces(fake_cuda::all_paces()[1]);
  const auto m = wide_model();
  std::vector<std::shared_ptr<pass_graphs>> graphs;
  const auto made = through_plugin(graphs).make(whole_model(m, 2));
  REQUIRE(made);
  const auto l = lessons(m, 2, 1, 0).front();
  namespace kind = gpu::operations;
  const gpu::operation forward{kind::forward{.keep = true, .input = l.input, .targets = l.targets}};
  const auto timed = [&](gpu::operation o) {
    o.timed = true;
    return run(**made, std::move(o)).compute_s;
  };
  CHECK(timed(forward) == Approx(fake_cuda::elapsed_s));
  CHECK(timed({kind::backward{}}) == Approx(fake_cuda::elapsed_s));
  CHECK(timed({kind::update{}}) == Approx(fake_cuda::elapsed_s));
  CHECK(run(**made, forward).compute_s == 0);
}
