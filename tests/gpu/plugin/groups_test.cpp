// GPUs that sum among themselves through plugin.cu: its table of NCCL, its side stream, and the
// host.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/grouped.hpp"
#include "gpu/plugin/fake_cuda.hpp"
#include "gpu/plugin/plugin_machines.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::gpu::cuda;
namespace step = gpu::operations;

namespace {

#ifdef TROUPE_NCCL
constexpr bool nccl = true;
#else
constexpr bool nccl = false;
#endif

/// Two machines' stage. `by_hosts_since`: as share_stage's.
tested_device shared(std::function<std::shared_ptr<machine>(int)> open,
                     std::string& by_hosts_since) {
  return {"shared", [open = std::move(open), &by_hosts_since](const gpu::stage_spec& s) {
            return expected<std::unique_ptr<gpu::stage_device>>{
                share_stage(s, {open(0), open(2)}, {}, &by_hosts_since)};
          }};
}

}  // namespace

TEST_CASE("a stage shared by two GPUs through the plug-in has the bits of emulated ones") {
  fake_cuda::settings how;
  how.no_epilogues();
  how.paces(fake_cuda::all_paces()[GENERATE(0u, 15u, 16u)]);
  const bool hosts = GENERATE(true, false);
  if (hosts) ::setenv("TROUPE_COLLECTIVES", "hosts", 1);
  const auto m = wide_model();
  std::string since, plugin_since;
  pipeline reference{shared([](int) { return emulated_machine(&emulated_nccl()); }, since), m, {4}};
  pipeline plugin{shared([](int i) { return open_gpu(i).m; }, plugin_since), m, {4}};
  ::unsetenv("TROUPE_COLLECTIVES");
  CHECK(plugin_since == (hosts  ? "TROUPE_COLLECTIVES selects host all-reduce"
                         : nccl ? ""
                                : "this program was built without NCCL"));
  for (std::uint64_t i = 0; i < 2; ++i) {
    const auto l = lessons(m, 2, 1, i);
    const auto a = reference.learn(l), b = plugin.learn(l);
    CHECK(a.losses == b.losses);
    CHECK((a.own == b.own));
  }
  CHECK((reference.weights() == plugin.weights()));
}

TEST_CASE("gradients summed beside backward through the plug-in have the bits of emulated ones") {
  if (!nccl) return;  // the CUDA device was built without it
  fake_cuda::settings how;
  how.no_epilogues();
  how.paces(fake_cuda::all_paces()[GENERATE(0u, 1u, 8u, 15u, 16u)]);
  const auto m = wide_model();
  grouped_options by_emulation{.piece_bytes = 1}, by_plugin{.piece_bytes = 1};
  by_plugin.before = [](std::size_t member, std::shared_ptr<machine>) {
    return open_gpu(static_cast<int>(member)).m;
  };
  pipelines reference{2, m, by_emulation}, plugin{2, m, by_plugin};
  for (auto* p : {&reference, &plugin}) {
    p->join_communicator();
    for (std::uint64_t i = 0; i < 2; ++i) {
      const auto l = lessons(m, 2, 2, i);
      const auto all = [&](auto make) {
        for (const auto& done : on_all(p->all, make)) REQUIRE(done);
      };
      all([&](std::uint32_t member) { return gpu::operation{forward(l[member])}; });
      all([](std::uint32_t) { return gpu::operation{step::backward{.last = true}}; });
      all([](std::uint32_t) { return gpu::operation{step::sum{}}; });
      all([](std::uint32_t) { return gpu::operation{step::update{.scale = 0.5}}; });
    }
  }
  for (std::size_t member = 0; member < 2; ++member)
    CHECK((reference.weights(member) == plugin.weights(member)));
}
