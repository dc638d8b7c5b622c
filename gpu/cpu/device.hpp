#pragma once

#include <map>

#include "gpu/cpu/stage_maths.hpp"
#include "gpu/device/operation_queue.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/operations.hpp"

namespace troupe::gpu::cpu {

/// One stage on its own thread. `set`: of kernels; products of matrices are the processor's.
class device final : public member_device {
 public:
  explicit device(const stage_spec& s, std::shared_ptr<thread_communicator> tensor_group = nullptr,
                  std::shared_ptr<device_thread> thread = nullptr,
                  const kernels<float>& set = float_kernels());

  void submit(operation o, done d) override;
  void submit_values(done d) override;

 private:
  struct microbatch {
    stage_input<float> in;
    stage_memory<float> kept;
  };

  template <class What>
  void time(const What& o, const done& completed);

  using result = expected<decltype(outcome::what)>;
  result perform(const operations::forward& o);
  result perform(const operations::recompute& o);
  result perform(const operations::backward& o);
  result perform(const operations::gradients& o);
  result perform(const operations::reset&);
  result perform(const operations::update& o);
  result perform(const operations::save& o);
  result perform(const operations::load& o);
  result perform(const operations::weights&);
  result perform(const operations::digest&);
  result perform(const operations::values&);
  template <class Collective>
  result perform(const Collective&);

  void forget_passes();
  buffer<float> copy_of(std::span<const float> values);
  own_and_tied both(const buffer<float>& values) const;
  stage_input<float> input_of(const operations::forward& o);
  stage_values values();

  stage_spec spec_;
  stage_maths<float> maths_;
  microbatch_progress progress_;
  std::map<std::uint32_t, microbatch> held_;
  operation_queue queue_;
};

}  // namespace troupe::gpu::cpu
