// A pass replayed as a graph gives the results of its separate kernels.
#include "gpu/cuda/host/graphs.hpp"

#include <catch2/catch.hpp>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/pipeline.hpp"

using namespace troupe;
using namespace troupe::test;
using gpu::cuda::pass_graphs;

namespace {

/// A device over that machine, or over the GPU where there is one.
tested_device kind_over(std::function<std::shared_ptr<gpu::cuda::machine>()> make) {
  return {"graphs", [make](const gpu::stage_spec& s) {
            return expected<std::unique_ptr<gpu::stage_device>>{
                std::make_unique<gpu::cuda::device>(s, make())};
          }};
}

/// The machines on which graphs are tried.
std::vector<std::function<std::shared_ptr<gpu::cuda::machine>()>> machines() {
  std::vector<std::function<std::shared_ptr<gpu::cuda::machine>()>> all{
      [] { return std::shared_ptr{emulated_machine()}; }};
  if (gpu::cuda::open_machine_here(0))
    all.push_back([] { return *gpu::cuda::open_machine_here(0); });
  return all;
}

}  // namespace

TEST_CASE("passes replayed as graphs give the same results as separate kernels") {
  const auto make = GENERATE(from_range(machines()));
  const bool keep = GENERATE(true, false);
  const std::vector<std::uint32_t> split =
      GENERATE(as<std::vector<std::uint32_t>>{}, std::vector<std::uint32_t>{6},
               std::vector<std::uint32_t>{2, 4});
  std::vector<std::shared_ptr<pass_graphs>> graphs;
  const auto m = small_model();
  pipeline plain{kind_over(make), m, split, {.keep = keep}},
      again{kind_over([&] {
              graphs.push_back(std::make_shared<pass_graphs>(make()));
              return graphs.back();
            }),
            m,
            split,
            {.keep = keep}};
  for (std::uint64_t i = 0; i < 5; ++i) {
    const auto all = lessons(m, 2, 2, i);
    const auto a = plain.learn(all), b = again.learn(all);
    CHECK(a.losses == b.losses);
    CHECK(a.own == b.own);
    CHECK(a.tied == b.tied);
    CHECK(a.squared_norm == b.squared_norm);
  }
  CHECK(plain.weights() == again.weights());
  for (const auto& g : graphs) {
    CAPTURE(g->so_far().made, g->so_far().run);
    CHECK(g->so_far().made > 0);
    CHECK(g->so_far().run > g->so_far().made);
  }
}

TEST_CASE("a machine without graphs runs every pass kernel by kernel") {
  class without final : public gpu::cuda::kernel_interceptor {
   public:
    using kernel_interceptor::kernel_interceptor;
    bool begin_graph() override { return false; }

   private:
    void perform(gpu::cuda::call, std::function<void(gpu::cuda::machine&)> how) override {
      how(behind());
    }
  };
  const auto m = small_model();
  std::shared_ptr<pass_graphs> graphs;
  pipeline plain{kind_over([] { return std::shared_ptr{emulated_machine()}; }), m, {12}},
      other{kind_over([&] {
              graphs = std::make_shared<pass_graphs>(
                  std::make_shared<without>(std::shared_ptr{emulated_machine()}));
              return graphs;
            }),
            m,
            {12}};
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto all = lessons(m, 2, 1, i);
    CHECK(plain.learn(all).losses == other.learn(all).losses);
  }
  CHECK(graphs->so_far().made == 0);
}
