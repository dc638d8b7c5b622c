#include <catch2/catch.hpp>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "actors/training/device/stage_backend.hpp"
#include "actors/training/stage_fixture.hpp"
#include "actors/training/written_checkpoint.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "harness/scratch.hpp"

// Checkpoints whose files are written while the training goes on.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// Writes when the test calls for it.
class writer_by_hand final : public gpu::checkpoint_writer {
 public:
  void submit(work w, done d) override { waiting.emplace_back(std::move(w), std::move(d)); }
  expected<void> write() {
    REQUIRE_FALSE(waiting.empty());
    auto [w, d] = std::move(waiting.front());
    waiting.pop_front();
    auto ok = w();
    d(ok);
    return ok;
  }

  std::deque<std::pair<work, done>> waiting;
};

/// A device by hand whose values can be copied: that is a `save` without a directory.
class copied_by_hand final : public gpu::member_device {
 public:
  explicit copied_by_hand(std::shared_ptr<device_by_hand> d) : hand_{std::move(d)} {}
  void submit(gpu::operation o, done d) override { hand_->submit(std::move(o), std::move(d)); }
  void submit_values(done d) override { hand_->submit({gpu::operations::save{}}, std::move(d)); }

 private:
  std::shared_ptr<device_by_hand> hand_;
};

/// A stage alone, which saves each iteration.
struct behind {
  troupe::test::scratch directory;
  std::shared_ptr<writer_by_hand> writer = std::make_shared<writer_by_hand>();
  std::shared_ptr<device_by_hand> device = std::make_shared<device_by_hand>();
  std::optional<stage_fixture> stage;

  explicit behind(std::uint64_t iterations, std::uint32_t every = 1) {
    REQUIRE(gpu::take_fence(directory.path(), lease_of_stage));
    auto setup = alone();
    setup.backend = "cpu";
    setup.iterations = iterations;
    setup.model = tiny_model();
    setup.sublayers = 2 * setup.model.layers;
    setup.how.checkpoint = directory.path();
    setup.how.checkpoint_every = every;
    stage.emplace(setup, stage_fixture::how{.create = [d = device]() -> expected<stage_backend> {
                                              return stage_backend{
                                                  std::make_shared<copied_by_hand>(d),
                                                  [](std::uint64_t, std::uint32_t) {
                                                    return std::pair{payload{}, payload{}};
                                                  }};
                                            },
                                            .writer = writer});
    stage->device = device;
    stage->run(iterations);
  }

  bool copies() const { return device->current<gpu::operations::save>() != nullptr; }
  /// Ends the copy that the device makes.
  void copy(std::uint64_t steps) {
    REQUIRE(copies());
    gpu::stage_spec s;
    s.model = stage->setup.model;
    s.sublayers = stage->setup.sublayers;
    s.has_embedding = s.has_head = true;
    const auto n = gpu::size_of(s).own_parameters + gpu::size_of(s).tied_parameters;
    const auto zeros = [n] { return payload{std::vector<float>(n)}; };
    stage->finish(gpu::outcome{gpu::operations::values::result{zeros(), zeros(), zeros(), steps}});
  }
  bool written(std::uint64_t iteration) const {
    const auto folder = checkpoint_path(directory.path(), iteration);
    return std::filesystem::exists(folder) && !std::filesystem::is_empty(folder);
  }
};

}  // namespace

TEST_CASE("a stage goes on while its checkpoint is written, and reports it when it is durable") {
  behind b{9};
  auto& s = *b.stage;
  iterate(s);
  b.copy(1);
  auto r = s.report();
  CHECK(r.iteration == 1);
  CHECK(r.saved == 0);
  CHECK_FALSE(b.written(1));
  CHECK(b.device->current<gpu::operations::forward>());  // of the second iteration
  CHECK(b.writer->write());
  s.settle();
  r = s.only<stage_report>();
  CHECK(r.saved == 1);
  CHECK(r.iteration < r.saved);  // no iteration is reported by it
  CHECK(b.written(1));
  iterate(s);
  b.copy(2);
  CHECK(s.report().saved == 1);
}

TEST_CASE("checkpoints that fall due while one is written are skipped, but not the last one") {
  behind b{4};
  auto& s = *b.stage;
  iterate(s);
  b.copy(1);
  for (int i = 0; i < 2; ++i) {
    CHECK(b.device->current<gpu::operations::forward>());
    iterate(s);
    CHECK(s.report().saved == 0);
    CHECK_FALSE(b.copies());
  }
  iterate(s);  // the last one waits for the writer, and then for its own files
  CHECK(b.device->is_idle());
  CHECK(s.take<stage_report>().empty());
  CHECK(b.writer->write());
  s.settle();
  CHECK(s.take<stage_report>().empty());
  b.copy(4);
  CHECK(s.take<stage_report>().empty());
  CHECK(s.training_ends.empty());
  CHECK(b.writer->write());
  s.settle();
  const auto r = s.report();
  CHECK(r.iteration == 4);
  CHECK(r.saved == 4);
  CHECK(s.training_ends.size() == 1);
  for (const std::uint64_t i : {1, 2, 3, 4}) CHECK(b.written(i) == (i == 1 || i == 4));
}

TEST_CASE("a stage that halts after an iteration whose files are being written waits for them") {
  behind b{9, 2};
  auto& s = *b.stage;
  iterate(s);
  auto halt = s.run_until(9);
  halt.halt = true;
  s.finish(result_with({}));  // a step of the second iteration, which is thus the last
  s.run(halt);
  for (int i = 0; i < 2; ++i) s.finish(result_with({}));
  b.copy(2);
  halt.save = halt.until = 2;
  s.run(halt);
  CHECK(s.report().saved == 0);
  CHECK(b.writer->write());
  s.settle();
  CHECK(s.report().saved == 2);
  CHECK(b.writer->waiting.empty());
  CHECK(b.device->is_idle());
}

TEST_CASE("files that cannot be written fail the stage, and a lease that is replaced writes none") {
  behind b{9};
  auto& s = *b.stage;
  iterate(s);
  b.copy(1);
  s.take<stage_report>();
  REQUIRE(gpu::take_fence(b.directory.path(), lease_of_stage + 1));
  CHECK_FALSE(b.writer->write());
  s.settle();
  const auto r = s.report();
  CHECK(r.why.code == reason::kind::stale);
  CHECK_FALSE(b.written(1));
}

TEST_CASE("a program saves into memory, the node writes it from there; without room it does so") {
  const troupe::test::scratch directory;
  REQUIRE(gpu::take_fence(directory.path(), lease_of_stage));
  auto setup = alone();
  setup.backend = "cpu";
  setup.iterations = 9;
  setup.how.program = layer_file{};
  setup.how.checkpoint = directory.path();
  setup.how.checkpoint_every = 1;
  const auto writer = std::make_shared<writer_by_hand>();
  stage_fixture s{setup, {.real = true, .writer = writer}};
  s.run(9);
  iterate(s);
  const std::filesystem::path memory = s.executes<gpu::operations::save>().path;
  const std::filesystem::path first = checkpoint_path(directory.path(), 1);
  CHECK(memory != first);
  CHECK(s.device->submitted.back().program.iteration == 1);
  std::filesystem::create_directories(memory);
  std::ofstream{memory / "layer-00000-lease-7.safetensors"} << "a layer";
  s.finish();
  CHECK(s.report().saved == 0);
  CHECK(s.device->current<gpu::operations::forward>());
  CHECK(writer->write());
  s.settle();
  CHECK(s.report().saved == 1);
  std::string text;
  std::ifstream{first / "layer-00000-lease-7.safetensors"} >> text >> text;
  CHECK(text == "layer");
  CHECK_FALSE(std::filesystem::exists(memory));
  iterate(s);
  CHECK(s.executes<gpu::operations::save>().path != checkpoint_path(directory.path(), 2));
  s.fail(reason::kind::invalid, "no room");
  CHECK(s.executes<gpu::operations::save>().path == checkpoint_path(directory.path(), 2));
  s.finish();
  CHECK(s.report().saved == 2);
  iterate(s);
  CHECK(s.executes<gpu::operations::save>().path == checkpoint_path(directory.path(), 3));
  s.fail(reason::kind::invalid, "no room there either");
  CHECK(s.report().why.text == "no room there either");
}
