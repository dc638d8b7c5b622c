#include "gpu/grouped.hpp"

#include <catch2/catch.hpp>
#include <future>

#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulated_nccl.hpp"

namespace troupe::test {

using gpu::operation;
namespace step = gpu::operations;

std::unique_ptr<gpu::stage_device> grouped_device(const gpu::stage_spec& s,
                                                  const grouped_options& how, std::size_t member) {
  return std::make_unique<gpu::cuda::device>(
      s, how.before(member, std::shared_ptr{emulated_machine(&emulated_nccl())}),
      gpu::cuda::device::first_values::set, how.patience, nullptr, how.piece_bytes);
}

std::vector<expected<gpu::outcome>> on_all(const grouped_devices& all,
                                           const std::function<operation(std::uint32_t)>& make) {
  std::vector<std::promise<expected<gpu::outcome>>> promises(all.size());
  for (std::uint32_t i = 0; i < all.size(); ++i)
    all[i]->submit(
        make(i), [&promises, i](expected<gpu::outcome> r) { promises[i].set_value(std::move(r)); });
  std::vector<expected<gpu::outcome>> results;
  for (auto& p : promises) results.push_back(p.get_future().get());
  return results;
}

void join_communicator(const grouped_devices& all) {
  const auto size = static_cast<std::uint32_t>(all.size());
  const auto id = run(*all[0], step::make_communicator_id{.rank = 0, .size = size}).id;
  for (std::uint32_t i = 1; i < size; ++i)
    CHECK(run(*all[i], step::make_communicator_id{.rank = i, .size = size}).id.empty());
  for (const auto& joined : on_all(all, [&](std::uint32_t i) {
         return operation{step::join_communicator{.id = id, .rank = i, .size = size}};
       }))
    REQUIRE(joined);
}

step::forward forward(const lesson& l, std::uint32_t microbatch) {
  return {microbatch, true, l.input, l.targets};
}

pipelines::pipelines(std::uint32_t count, const model& m, const grouped_options& how) : model_{m} {
  gpu::stage_spec s;
  s.model = m;
  s.sublayers = 2 * m.layers;
  s.has_embedding = s.has_head = true;
  s.rows = 2;
  for (std::uint32_t i = 0; i < count; ++i) all.push_back(grouped_device(s, how, i));
}

void pipelines::go_through(std::uint64_t seed) {
  const auto l = lessons(model_, 2, all.size(), seed);
  for (std::size_t i = 0; i < all.size(); ++i) {
    run(*all[i], forward(l[i]));
    run(*all[i], step::backward{});
  }
}

std::vector<float> pipelines::weights(std::size_t member) {
  return both(run(*all[member], step::weights{}));
}

payload as_payload(const std::vector<float>& v) {
  const auto bytes = std::as_bytes(std::span{v});
  return payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
}

std::vector<float> both(const gpu::own_and_tied& values) {
  auto v = floats(values.own);
  const auto tied = floats(values.tied);
  v.insert(v.end(), tied.begin(), tied.end());
  return v;
}

model tiny() {
  auto m = small_model();
  m.layers = 1;
  return m;
}

}  // namespace troupe::test
