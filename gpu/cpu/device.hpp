#pragma once

#include <map>

#include "gpu/cpu/stage_maths.hpp"
#include "gpu/device/operation_queue.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/operations.hpp"

namespace troupe::gpu::cpu {

/// One stage on its own thread.
class device final : public stage_device {
 public:
  explicit device(const stage_spec& s, std::shared_ptr<thread_communicator> tensor_group = nullptr,
                  std::shared_ptr<device_thread> thread = nullptr);

  void submit(operation o, done d) override;

 private:
  struct microbatch {
    stage_input<float> in;
    stage_memory<float> kept;
  };

  void time(const operation& o, const done& completed);
  expected<outcome> run_all_the_same(const operation& o);
  expected<outcome> run(const operation& o);
  outcome forward(const operation& o);
  outcome recompute(const operation& o);
  outcome backward(const operation& o);
  outcome update(const operation& o);
  expected<outcome> save(const operation& o);
  expected<outcome> load(const operation& o);
  outcome both(const buffer<float>& values) const;
  stage_input<float> input_of(const operation& o);
  stage_values values();
  std::uint64_t activation_bytes() const;

  stage_spec spec_;
  stage_maths<float> maths_;
  microbatch_progress progress_;
  std::map<std::uint32_t, microbatch> held_;
  operation_queue queue_;
};

}  // namespace troupe::gpu::cpu
