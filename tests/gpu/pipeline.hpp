#pragma once

#include <memory>
#include <vector>

#include "gpu/devices.hpp"

namespace troupe::test {

/// A model so small that finite differences of it are quick.
model small_model(bool tied = true);
/// One stage that has all of a model.
gpu::stage_spec whole_model(const model& m, std::uint32_t rows = 1);

/// Does one operation and waits for it. A refusal fails the test.
gpu::outcome run(gpu::stage_device& d, gpu::operation o);
/// Likewise; returns the result of its kind.
template <class What>
typename What::result run(gpu::stage_device& d, What what) {
  return run(d, gpu::operation{std::move(what)}).template of<What>();
}
/// The refusal's sentence; empty if there was none.
std::string refusal(gpu::stage_device& d, gpu::operation o);

std::vector<float> floats(const payload& p);
/// The distance of two lists of values, as a fraction of the first's norm if that is not 0.
double distance(const std::vector<float>& a, const std::vector<float>& b);
payload tokens(const std::vector<std::uint32_t>& t);

/// The data of one micro-batch.
struct lesson {
  payload input, targets;
};
/// The same for the same seed.
std::vector<lesson> lessons(const model& m, std::uint32_t rows, std::size_t microbatches,
                            std::uint64_t seed);

struct pipeline_options {
  std::uint32_t rows = 2;
  bool keep = true;  // else everything is recomputed
  double learning_rate = 3e-4;
};

/// All stages of a model, run one micro-batch after another by the test's thread.
class pipeline {
 public:
  using options = pipeline_options;

  /// sublayers: of each stage; their sum is the model's, two a layer.
  pipeline(const tested_device& kind, model m, std::vector<std::uint32_t> sublayers,
           options how = {});

  struct iteration {
    std::vector<double> losses;           // by micro-batch
    std::vector<std::vector<float>> own;  // gradients, by stage
    std::vector<float> tied;              // both stages' sum
    double squared_norm = 0;
  };
  /// Forward and backward of every lesson in order, and an update with the mean.
  iteration learn(const std::vector<lesson>& all);

  /// All weights, one stage's behind another's, the tied embedding last.
  std::vector<float> weights();
  void save(const std::string& directory);
  /// The sentence with which the first stage refuses to.
  std::string refused_save(const std::string& directory);
  void load(const std::string& directory);
  std::vector<gpu::stage_spec> specs;

 private:
  double forward(std::uint32_t microbatch, const lesson& l);
  void backward(std::uint32_t microbatch);

  options how_;
  std::vector<std::unique_ptr<gpu::stage_device>> stages_;
};

/// b's gradients and losses are off a's by no more than these shares of their norm and of the loss.
void check_near(const pipeline::iteration& a, const pipeline::iteration& b, double gradients_off,
                double losses_off);

}  // namespace troupe::test
