// Members of a group: threads of the host, and GPUs with device all-reduce on emulated machines.
#include "gpu/tensor_parallel/thread_communicator.hpp"

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/counted_machine.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/grouped.hpp"
#include "gpu/pipeline.hpp"
#include "harness/facts.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::test;
using gpu::operation;
namespace step = gpu::operations;

namespace {

std::vector<float> added(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

}  // namespace

TEST_CASE("threads of a group sum in the order of their ranks") {
  const auto size = GENERATE(1u, 2u, 3u, 5u);
  const auto group = gpu::make_group(size);
  std::vector<std::vector<float>> values(size, std::vector<float>(11));
  std::vector<float> sum(11);
  for (std::uint32_t m = 0; m < size; ++m)
    for (std::size_t i = 0; i < 11; ++i) {
      values[m][i] = 1.0f / static_cast<float>(1 + m * 11 + i);
      sum[i] = m == 0 ? values[m][i] : sum[i] + values[m][i];
    }
  // A second sum has another length: the group keeps nothing of the sum before.
  std::vector<std::vector<float>> more(size);
  for (std::uint32_t m = 0; m < size; ++m) more[m].assign(3, static_cast<float>(m));
  const std::vector<float> sum_of_ranks(3, static_cast<float>(size * (size - 1) / 2));
  std::vector<std::future<expected<void>>> done;
  for (std::uint32_t m = 0; m < size; ++m)
    done.push_back(std::async(std::launch::async, [&, m] {
      auto ok = group[m]->sum(values[m]);
      if (ok) ok = group[m]->sum(more[m]);
      return ok;
    }));
  for (auto& d : done) CHECK(d.get());
  for (std::uint32_t m = 0; m < size; ++m) {
    CHECK(values[m] == sum);
    CHECK(more[m] == sum_of_ranks);
  }
}

TEST_CASE("a rank whose peers never join, or leave the group, gets an error") {
  const auto group = gpu::make_group(3, 0.05);
  std::vector<float> v(4);
  CHECK(troupe::test::has_facts(group[1]->sum(v).error().text,
                                {"member 1", "1 of", "3 devices", "0.05 s"}));
  const auto other = gpu::make_group(2);
  auto waiting = std::async(std::launch::async, [&] { return other[0]->sum(v).error().text; });
  other[1]->abort("it ran out of memory");
  CHECK(troupe::test::has_facts(waiting.get(), {"member 0", "2 devices", "out of memory"}));
}

TEST_CASE("device all-reduce gives the same training as host all-reduce") {
  const auto count = GENERATE(2u, 3u);
  const bool tied = GENERATE(true, false);
  CAPTURE(count, tied);
  auto m = tiny();
  m.tied_head = tied;
  pipelines grouped{count, m}, by_hosts{count, m};
  grouped.join_communicator();
  for (std::uint64_t i = 0; i < 3; ++i) {
    grouped.go_through(i);
    by_hosts.go_through(i);
    auto summed = on_all(grouped.all, [](auto) { return operation{step::sum{}}; });
    for (auto& s : summed) {
      REQUIRE(s);
      CHECK_FALSE(s->of<step::sum>().tied);  // all parts of the embedding's gradient are here
    }
    std::vector<float> own, shared;
    for (auto& d : by_hosts.all) {
      const auto out = run(*d, step::gradients{});
      own = own.empty() ? floats(out.own) : added(own, floats(out.own));
      shared = shared.empty() ? floats(out.tied) : added(shared, floats(out.tied));
    }
    double norm = 0;
    for (auto& d : by_hosts.all)
      norm = run(*d, step::update{.sums = {as_payload(own), as_payload(shared)}, .scale = 0.5})
                 .squared_norm;
    for (auto& d : grouped.all)
      CHECK(run(*d, step::update{.scale = 0.5}).squared_norm == Approx(norm).epsilon(1e-6));
  }
  const auto a = by_hosts.weights(0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto b = grouped.weights(i);
    CHECK(b == grouped.weights(0));
    if (count == 2) {
      CHECK(a == b);  // two numbers have one sum
      continue;
    }
    // AdamW moves a weight by its rate whichever way its gradient goes: where that is nearly
    // nothing, a last bit decides. Nearly all weights are the same.
    std::size_t far = 0;
    for (std::size_t k = 0; k < a.size(); ++k) far += std::abs(a[k] - b[k]) > 1e-6f;
    CHECK(static_cast<double>(far) < 0.01 * static_cast<double>(a.size()));
  }
}

TEST_CASE("GPUs with part of a tied embedding return its sum for the other stage") {
  auto m = tiny();
  m.layers = 2;
  gpu::stage_spec first;
  first.model = m;
  first.sublayers = 2;
  first.has_embedding = true;
  first.rows = 2;
  grouped_devices all;
  for (int i = 0; i < 2; ++i) all.push_back(grouped_device(first));
  const auto& d = all[0];
  join_communicator(all);
  const auto n = gpu::size_of(first).tied_parameters;
  const auto head = std::vector<float>(n, 0.25f);
  const auto l = lessons(m, 2, 1, 1);
  const auto activation = run(*d, step::forward{.keep = true, .input = l[0].input}).activation;
  run(*d, step::backward{.gradient = activation});
  const auto own = floats(run(*d, step::gradients{}).tied);
  CHECK(refusal(*d, {step::update{}}).starts_with("a tied embedding split over two stages"));
  auto summed = on_all(all, [&](std::uint32_t i) {
    step::sum o;
    if (i == 0) o.tied = as_payload(head);  // the other pipeline's parts are nothing
    return operation{o};
  });
  for (auto& s : summed) {
    REQUIRE(s);
    CHECK(floats(*s->of<step::sum>().tied) == added(own, head));
  }
  CHECK(refusal(*d, {step::sum{.tied = as_payload({1, 2})}}).starts_with("sum takes"));
  run(*d, step::update{});
  CHECK(refusal(*d, {step::update{}}).starts_with("a tied embedding split over two stages"));
}

TEST_CASE("a device without a collective says so") {
  gpu::stage_spec s;
  s.model = tiny();
  s.sublayers = 2;
  s.has_embedding = s.has_head = true;
  const gpu::cuda::device alone{s, emulated_machine()};
  auto& d = const_cast<gpu::cuda::device&>(alone);
  CHECK(troupe::test::has_facts(refusal(d, {step::make_communicator_id{}}), {"NCCL"}));
  CHECK(troupe::test::has_facts(refusal(d, {step::sum{}}), {"group"}));
  CHECK(troupe::test::has_facts(refusal(**gpu::make_cpu_device(s), {step::make_communicator_id{}}),
                                {"CPU", "host"}));
}

TEST_CASE("GPUs leave their group after their sums, without aborting each other") {
  const auto before = ends_so_far();
  {
    pipelines p{2, tiny()};
    p.join_communicator();
    p.go_through(1);
    for (const auto& s : on_all(p.all, [](auto) { return operation{step::sum{}}; })) CHECK(s);
  }
  while (ends_so_far().destroyed + ends_so_far().aborted < before.destroyed + before.aborted + 2)
    std::this_thread::yield();  // they leave by themselves
  CHECK(ends_so_far().destroyed == before.destroyed + 2);
  CHECK(ends_so_far().aborted == before.aborted);
}

TEST_CASE("a GPU allocates all memory of its passes before it joins its group") {
  auto s = whole_model(tiny(), 2);
  using pass = gpu::stage_spec::pass::kind;
  s.iteration = {{pass::forward_kept, 0}, {pass::forward_kept, 1}, {pass::forward_kept, 2},
                 {pass::forward, 3},      {pass::backward, 0},     {pass::backward, 1},
                 {pass::backward, 2},     {pass::recompute, 3},    {pass::backward, 3}};
  std::vector<std::shared_ptr<gpu::cuda::taken_memory>> taken;
  grouped_devices all;
  grouped_options how;
  how.before = [&](std::size_t, std::shared_ptr<gpu::cuda::machine> m) {
    taken.push_back(std::make_shared<gpu::cuda::taken_memory>());
    return std::make_shared<gpu::cuda::counting_machine>(std::move(m), taken.back());
  };
  for (int i = 0; i < 2; ++i) all.push_back(grouped_device(s, how));
  join_communicator(all);
  const std::uint64_t blocks[] = {taken[0]->blocks, taken[1]->blocks};
  const auto l = lessons(s.model, 2, 4, 1);
  for (auto& d : all) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      auto o = forward(l[i], i);
      o.keep = i != 3;
      run(*d, o);
    }
    for (std::uint32_t i = 0; i < 3; ++i) run(*d, step::backward{.microbatch = i});
    run(*d, step::recompute{3});
    run(*d, step::backward{.microbatch = 3, .last = true});
  }
  for (const auto& x : on_all(all, [](auto) { return operation{step::sum{}}; })) CHECK(x);
  for (auto& d : all) run(*d, step::update{});
  for (std::size_t i = 0; i < 2; ++i) CHECK(taken[i]->blocks == blocks[i]);
}

TEST_CASE("a GPU whose peers never join reports a timeout") {
  pipelines p{1, tiny(), {.patience = {.join_s = 0.1}}};
  const auto id = run(*p.all[0], step::make_communicator_id{.size = 2}).id;
  CHECK(troupe::test::has_facts(refusal(*p.all[0], {step::join_communicator{.id = id, .size = 2}}),
                                {"2 GPUs", "0.1 s", "member 0"}));
  CHECK(troupe::test::has_facts(
      refusal(*p.all[0], {step::join_communicator{.id = as_payload({1}), .size = 2}}),
      {"128 bytes", "4"}));
}

TEST_CASE("an NCCL error during an all-reduce ends it with NCCL's error text") {
  pipelines p{2, tiny(), {.patience = {.sum_s = 0.5}}};
  p.join_communicator();
  const auto directory = fresh_path("groups").string();
  run(*p.all[0], step::save{directory});
  p.go_through(1);
  {
    const nccl_fault fault{1, 0};
    const auto ended = on_all(p.all, [](auto) { return operation{step::sum{}}; });
    REQUIRE_FALSE(ended[0]);
    REQUIRE_FALSE(ended[1]);
    CHECK(troupe::test::has_facts(ended[0].error().text, {"0.5 s"}));
    CHECK(troupe::test::has_facts(ended[1].error().text,
                                  {"member 1", "2 GPUs", "NCCL", "unhandled system error"}));
    CHECK(ended[1].error().code == reason::kind::unavailable);
  }
  // The sums are undefined now; a checkpoint and a new group recover.
  CHECK(refusal(*p.all[1], {step::update{}})
            .starts_with("device state is invalid; load a checkpoint first: member"));
  for (auto& d : p.all) run(*d, step::load{directory});
  p.join_communicator();
  p.go_through(1);
  for (const auto& s : on_all(p.all, [](auto) { return operation{step::sum{}}; })) CHECK(s);
}

TEST_CASE("a GPU that is gone delays its peers no longer than the timeout") {
  pipelines p{3, tiny(), {.patience = {.sum_s = 0.3}}};
  p.join_communicator();
  p.go_through(1);
  p.all.pop_back();
  for (const auto& s : on_all(p.all, [](auto) { return operation{step::sum{}}; })) CHECK_FALSE(s);
}

TEST_CASE("a device can be closed while it waits for its peers to join or to sum") {
  pipelines p{2, tiny()};
  SECTION("for them to come") {
    const auto id = run(*p.all[0], step::make_communicator_id{.size = 2}).id;
    std::promise<std::string> said;
    p.all[0]->submit({step::join_communicator{.id = id, .size = 2}},
                     [&](expected<gpu::outcome> r) { said.set_value(r ? "" : r.error().text); });
    await_waiting_member();
    p.all.clear();
    CHECK(said.get_future().get() == "the device was closed");
  }
  SECTION("for their sums") {
    p.join_communicator();
    p.go_through(1);
    std::promise<std::string> said;
    p.all[0]->submit({step::sum{}},
                     [&](expected<gpu::outcome> r) { said.set_value(r ? "" : r.error().text); });
    await_waiting_member();
    p.all.clear();
    CHECK(said.get_future().get() == "the device was closed");
  }
}
