#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/cuda/host/device.hpp"
#include "gpu/pipeline.hpp"

// One stage in several pipelines, on emulated machines that sum among themselves.

namespace troupe::test {

struct grouped_options {
  gpu::cuda::communicator_patience patience{};
  std::size_t piece_bytes = gpu::cuda::min_piece_bytes;
  /// Wraps a member's machine; by default it stays as it is.
  std::function<std::shared_ptr<gpu::cuda::machine>(std::size_t member,
                                                    std::shared_ptr<gpu::cuda::machine>)>
      before = [](std::size_t, std::shared_ptr<gpu::cuda::machine> m) { return m; };
};

using grouped_devices = std::vector<std::unique_ptr<gpu::stage_device>>;

std::unique_ptr<gpu::stage_device> grouped_device(const gpu::stage_spec& s,
                                                  const grouped_options& how = {},
                                                  std::size_t member = 0);

/// The outcomes of one operation on each device, enqueued on all at once.
std::vector<expected<gpu::outcome>> on_all(
    const grouped_devices& all, const std::function<gpu::operation(std::uint32_t)>& make);

/// Creates and joins the group. A refusal fails the test.
void join_communicator(const grouped_devices& all);

gpu::operations::forward forward(const lesson& l, std::uint32_t microbatch = 0);

/// Pipelines whose only stage is the whole model.
class pipelines {
 public:
  pipelines(std::uint32_t count, const model& m, const grouped_options& how = {});

  void join_communicator() { test::join_communicator(all); }
  /// A micro-batch on each, one after another.
  void go_through(std::uint64_t seed);
  std::vector<float> weights(std::size_t member);

  grouped_devices all;

 private:
  model model_;
};

payload as_payload(const std::vector<float>& v);
/// Own values and then tied ones.
std::vector<float> both(const gpu::own_and_tied& values);

/// small_model's, with one layer.
model tiny();

}  // namespace troupe::test
