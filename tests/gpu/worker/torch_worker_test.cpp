#include <catch2/catch.hpp>

#include "gpu/model/checkpoint.hpp"
#include "gpu/model/layer_index.hpp"
#include "gpu/worker/forked_worker.hpp"
#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "harness/source_dir.hpp"

// Stages of a PyTorch program in processes, end to end: results do not depend on the cut.

namespace troupe::test {

namespace kind = gpu::operations;
using recompute = gpu::python::worker_stage::recompute;

namespace {

constexpr std::uint32_t layers = 4, microbatches = 3;

bool has_torch() {
  static const bool has = test::run("/usr/bin/python3 -c 'import torch'").status == 0;
  if (!has) WARN("needs PyTorch (Debian: python3-torch)");
  return has;
}

template <class What>
typename What::result done(gpu::stage_device& d, What what, std::uint64_t iteration = 0) {
  auto r = run(d, {.what = std::move(what), .program = {.iteration = iteration}});
  if (!r) FAIL(r.error().text);
  return r->template of<What>();
}

/// The stages of worker_program.py's layers, each with those up to the next one's first.
class pipeline {
 public:
  pipeline(const std::vector<std::uint32_t>& first_layers, recompute how) : how_{how} {
    const auto stages = static_cast<std::uint32_t>(first_layers.size());
    for (std::uint32_t i = 0; i < stages; ++i) {
      gpu::python_spec s;
      s.command = {"/usr/bin/python3", "-B", "-m", "troupe.worker"};
      s.program.file = source_dir() + "/tests/python/worker_program.py";
      s.stage = {.first_layer = first_layers[i],
                 .layers = (i + 1 == stages ? layers : first_layers[i + 1]) - first_layers[i],
                 .stage = i,
                 .stages = stages,
                 .rows = 2,
                 .microbatches = microbatches,
                 .seed = 3,
                 .how = how};
      s.lease = 7;
      s.socket_directory = directory_.path();
      s.token = "secret";
      auto made = gpu::make_python_device(s, forked());
      if (!made) FAIL(made.error().text);
      stages_.push_back(std::move(*made));
    }
  }

  /// The losses of its micro-batches.
  std::vector<double> iterate(std::uint64_t iteration) {
    std::vector<double> losses;
    for (std::uint32_t m = 0; m < microbatches; ++m) {
      payload in;
      for (auto& s : stages_) {
        auto o = done(*s.device, kind::forward{m, how_ != recompute::stage, in}, iteration);
        in = o.activation;
        if (&s == &stages_.back()) losses.push_back(o.loss);
        if (&s == &stages_.back()) CHECK(o.more.at(0).weight == 10);
      }
    }
    for (std::uint32_t m = 0; m < microbatches; ++m) {
      payload in;
      for (auto s = stages_.rbegin(); s != stages_.rend(); ++s) {
        if (how_ == recompute::stage) done(*s->device, kind::recompute{m}, iteration);
        in = done(*s->device, kind::backward{m, in}, iteration).gradient;
      }
      CHECK(in.empty());
    }
    return losses;
  }
  /// As the stages of a training do: the first stage's tied gradients and then the last one's.
  void update(std::uint64_t iteration) {
    std::vector<gpu::own_and_tied> sums;
    for (auto& s : stages_) sums.push_back(done(*s.device, kind::gradients{}, iteration));
    if (sums.size() > 1) {
      auto tied = sums.front().tied.values<float>();
      const auto more = sums.back().tied.values<float>();
      for (std::size_t i = 0; i < tied.size(); ++i) tied[i] += more[i];
      sums.front().tied = sums.back().tied = payload{tied};
    }
    for (std::size_t i = 0; i < stages_.size(); ++i)
      done(*stages_[i].device, kind::update{std::move(sums[i]), 1.0 / microbatches}, iteration);
  }
  void save(const std::string& directory, std::uint64_t iteration) {
    for (auto& s : stages_) done(*s.device, kind::save{directory}, iteration);
  }
  void load(const std::string& directory) {
    for (auto& s : stages_) done(*s.device, kind::load{directory});
  }
  /// Own ones in the order of layers, and the tied ones of the first stage.
  std::vector<float> weights() {
    std::vector<float> own, tied;
    for (auto& s : stages_) {
      const auto o = done(*s.device, kind::weights{});
      const auto more = o.own.values<float>();
      own.insert(own.end(), more.begin(), more.end());
      if (tied.empty()) tied = o.tied.values<float>();
    }
    own.insert(own.end(), tied.begin(), tied.end());
    return own;
  }

 private:
  recompute how_;
  scratch directory_;
  std::vector<gpu::python_stage> stages_;
};

std::pair<std::vector<double>, std::vector<float>> trained(
    const std::vector<std::uint32_t>& first_layers, recompute how) {
  pipeline p{first_layers, how};
  std::vector<double> losses;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto more = p.iterate(i);
    losses.insert(losses.end(), more.begin(), more.end());
    p.update(i);
  }
  return {losses, p.weights()};
}

}  // namespace

TEST_CASE("a checkpoint of p stages of a program is continued by q stages") {
  if (!has_torch()) return;
  const scratch room;
  const auto directory = gpu::checkpoint_directory(room.path(), 1).string();
  pipeline two{{0, 2}, recompute::none}, three{{0, 1, 3}, recompute::none};
  two.iterate(0);
  two.update(0);
  two.save(directory, 1);
  CHECK_FALSE(gpu::newest_checkpoint(room.path()));
  CHECK(gpu::write_layer_index(directory, 8, 1).error().text ==
        "no layer of lease 8 is in " + directory);
  CHECK_FALSE(gpu::write_layer_index(directory, 7, 2));
  const auto written = gpu::write_layer_index(directory, 7, 1);
  if (!written) FAIL(written.error().text);
  CHECK(gpu::newest_checkpoint(room.path())->iteration == 1);
  three.load(directory);
  CHECK(three.weights() == two.weights());
  CHECK(three.iterate(1) == two.iterate(1));
  for (auto* p : {&two, &three}) p->update(1);
  CHECK(three.weights() == two.weights());
}

TEST_CASE("losses and weights of a PyTorch program are the same for any cut and recompute") {
  if (!has_torch()) return;
  const auto whole = trained({0}, recompute::none);
  REQUIRE(whole.first.size() == 3 * microbatches);
  CHECK(whole.first.front() != whole.first.back());
  CHECK(trained({0, 2}, recompute::none) == whole);
  CHECK(trained({0, 1, 3}, recompute::stage) == whole);
  CHECK(trained({0, 3}, recompute::layers) == whole);
}

}  // namespace troupe::test
