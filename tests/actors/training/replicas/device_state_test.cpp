#include <catch2/catch.hpp>

#include <future>
#include <utility>

#include "actors/training/device/socket_folder.hpp"
#include "actors/training/device/state_files.hpp"
#include "gpu/device/stage_device.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::gpu;

namespace {

constexpr std::uint32_t positions = 8, hidden = 16;

template <class What>
expected<typename What::result> result_of(stage_device& d, What what) {
  std::promise<expected<outcome>> done;
  d.submit({std::move(what)}, [&](expected<outcome> r) { done.set_value(std::move(r)); });
  auto r = done.get_future().get();
  if (!r) return tl::unexpected{r.error()};
  return r->template of<What>();
}

/// The last of two stages of a tied model: the first one has the embedding that checkpoints have.
stage_spec last_stage(std::uint64_t seed) {
  stage_spec s;
  s.model = {"small", "gpt", hidden, 2, 4, 0, 0, positions, 32, true, {}};
  s.first_sublayer = 2;
  s.sublayers = 2;
  s.has_head = true;
  s.seed = seed;
  return s;
}

void train(stage_device& d) {
  std::vector<float> activation(positions * hidden);
  std::vector<std::uint32_t> targets(positions);
  for (std::size_t i = 0; i < activation.size(); ++i) activation[i] = static_cast<float>(i % 7) / 7;
  for (std::uint32_t i = 0; i < positions; ++i) targets[i] = i;
  REQUIRE(result_of(d, operations::forward{0, true, payload{activation}, payload{targets}}));
  REQUIRE(result_of(d, operations::backward{}));
  auto sums = result_of(d, operations::gradients{});
  REQUIRE(sums);
  REQUIRE(result_of(d, operations::update{std::move(*sums), 1}));
}

std::uint64_t weights_of(stage_device& d) {
  return result_of(d, operations::digest{})->weights;
}

}  // namespace

TEST_CASE("a device that takes a peer's state has its weights, moments and count of updates") {
  const auto folder = *socket_folder::make();
  const auto giver = *make_cpu_device(last_stage(1)), joiner = *make_cpu_device(last_stage(2));
  for (int i = 0; i < 3; ++i) train(*giver);
  train(*joiner);  // of an earlier time
  REQUIRE(weights_of(*giver) != weights_of(*joiner));
  const auto from = folder.path() + "/from", to = folder.path() + "/to";
  REQUIRE(result_of(*giver, operations::save{.path = from, .whole = true}));
  const auto state = read_state(from, {1, 3});
  REQUIRE(state);
  REQUIRE(write_state(to, *state, {1, 3}));
  REQUIRE(result_of(*joiner, operations::load{to}));
  CHECK(weights_of(*joiner) == weights_of(*giver));
  // Moments and the number of updates decide the next ones.
  for (int i = 0; i < 2; ++i) {
    train(*giver), train(*joiner);
    CHECK(weights_of(*joiner) == weights_of(*giver));
  }
}

TEST_CASE("what a checkpoint has of a tied model's last stage is not its whole state") {
  const auto folder = *socket_folder::make();
  const auto device = *make_cpu_device(last_stage(1));
  REQUIRE(result_of(*device, operations::save{folder.path() + "/part"}));
  CHECK_FALSE(result_of(*device, operations::load{folder.path() + "/part"}));
}
