// NCCL as far as one GPU can show it: with the real library where there are a GPU and NCCL, with
// the emulated ones everywhere.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "gpu/cuda/collectives/communicator.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/runtime/calls.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/pipeline.hpp"
#include "harness/facts.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::gpu::cuda;

namespace {

struct nccl_kind {
  std::string name;
  std::function<std::shared_ptr<machine>()> open;  // the same GPU each time
  double join_s;                                   // a member's patience
};

std::vector<nccl_kind> kinds() {
  std::vector<nccl_kind> all{
      {"emulated", [] { return std::shared_ptr{emulated_machine(&emulated_nccl())}; }, 0.1}};
  static const bool real = [] {
    const auto m = open_machine_here(0);
    std::string why = m ? "" : m.error().text;
    const bool has = m && (*m)->sums_with_others(why) != nullptr;
    if (!has) fmt::print("NCCL's tests on a GPU are skipped: {}\n", why);
    std::fflush(stdout);
    return has;
  }();
  if (real) all.push_back({"cuda", [] { return *open_machine_here(0); }, 3});
  return all;
}

/// Kernels and copies of a machine, from begin to end.
void check_usable(machine& m) {
  m.enter();
  constexpr std::size_t count = 64, bytes = count * sizeof(float);
  auto* on_gpu = static_cast<float*>(m.take(bytes));
  auto* on_host = static_cast<float*>(m.take_host(bytes));
  std::fill_n(on_host, count, 1.5f);
  m.copy_in(on_gpu, on_host, bytes);
  m.add(on_gpu, on_gpu, count);
  m.copy_out(on_host, on_gpu, bytes);
  m.wait(m.record_event());
  CHECK(on_host[0] == 3);
  CHECK(on_host[count - 1] == 3);
  m.give(on_gpu);
  m.give_host(on_host);
}

/// A GPU, its collectives, and the id of a new group.
struct member {
  std::shared_ptr<machine> m;
  const collectives* with;
  std::vector<std::byte> id;
};

member open_member(const nccl_kind& kind) {
  auto m = kind.open();
  m->enter();
  std::string why;
  const auto* with = m->sums_with_others(why);
  REQUIRE(with);
  return {std::move(m), with, make_communicator_id(*with)};
}

/// A member's state once it is no longer in progress.
int settled(const collectives& with, void* member) {
  int now = collectives::under_way;
  while (now == collectives::under_way) {
    std::this_thread::yield();
    if (const int result = with.state(member, &now); result != collectives::well) return result;
  }
  return now;
}

}  // namespace

TEST_CASE("joining a group whose other member never comes ends, and the GPU goes on") {
  const auto kind = GENERATE(from_range(kinds()));
  CAPTURE(kind.name);
  const auto [m, with, id] = open_member(kind);
  std::string text;
  try {
    const communicator alone{*with, id, 0, 2, {.join_s = kind.join_s}, [] { return false; }};
  } catch (const std::runtime_error& e) {
    text = e.what();
  }
  CHECK(has_facts(text, {"2 GPUs did not form", "member 0"}));
  check_usable(*m);
}

TEST_CASE("a group of one GPU is joined, sums and is left") {
  const auto kind = GENERATE(from_range(kinds()));
  CAPTURE(kind.name);
  const auto [m, with, id] = open_member(kind);
  void* member = nullptr;
  const int joined = with->join(&member, 1, id.data(), 0);
  REQUIRE((joined == collectives::well || joined == collectives::under_way));
  REQUIRE(settled(*with, member) == collectives::well);

  constexpr std::size_t count = 64, bytes = count * sizeof(float);
  auto* on_gpu = static_cast<float*>(m->take(bytes));
  auto* on_host = static_cast<float*>(m->take_host(bytes));
  std::fill_n(on_host, count, 1.25f);
  m->copy_in(on_gpu, on_host, bytes);
  m->add(on_gpu, on_gpu, count);
  const int summed = with->sum(member, on_gpu, count, false, m->stream());
  CHECK((summed == collectives::well || summed == collectives::under_way));
  CHECK(settled(*with, member) == collectives::well);
  m->add(on_gpu, on_gpu, count);
  m->copy_out(on_host, on_gpu, bytes);
  m->wait(m->record_event());
  CHECK(on_host[0] == 5);  // the only member's values, between the kernels before and after
  CHECK(on_host[count - 1] == 5);

  const int left = with->finalize(member);
  CHECK((left == collectives::well || left == collectives::under_way));
  CHECK(settled(*with, member) == collectives::well);
  CHECK(with->destroy(member) == collectives::well);
  m->give(on_gpu);
  m->give_host(on_host);
  check_usable(*m);
}

TEST_CASE("GPUs that NCCL refuses to join share their stage through the host, with NCCL's reason") {
  const auto kind = GENERATE(from_range(kinds()));
  CAPTURE(kind.name);
  std::optional<nccl_refusal> refusal;  // NCCL itself refuses a GPU that is there twice
  if (kind.name == "emulated") refusal.emplace();
  auto m = small_model();
  m.hidden = 32;
  m.heads = 4;
  m.layers = 2;
  std::string why;
  const tested_device twice{kind.name, [&](const gpu::stage_spec& s) {
                              return expected<std::unique_ptr<gpu::stage_device>>{
                                  share_stage(s, {kind.open(), kind.open()}, {}, &why)};
                            }};
  pipeline one{{"cpu", gpu::make_cpu_device}, m, {4}}, shared{twice, m, {4}};
  CHECK(has_facts(why, {"2 GPUs", "NCCL reports", "invalid usage"}));
  const auto all = lessons(m, 2, 2, 3);
  check_near(one.learn(all), shared.learn(all), 0.01, 0.001);
}

TEST_CASE("a GPU that is lost while GPUs join is reported as lost") {
  class lost_machine final : public kernel_interceptor {
   public:
    using kernel_interceptor::kernel_interceptor;
    void enter() override { throw gpu_lost("the GPU refused cudaSetDevice: it is lost"); }

   private:
    void perform(call, std::function<void(machine&)> how) override { how(behind()); }
  };
  const auto make = [] { return std::shared_ptr{emulated_machine(&emulated_nccl())}; };
  auto s = whole_model(small_model());
  s.model.hidden = 32;
  s.model.heads = 4;
  CHECK_THROWS_AS(share_stage(s, {std::make_shared<lost_machine>(make()), make()}), gpu_lost);
}
