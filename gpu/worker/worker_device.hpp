#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "gpu/device/operation_queue.hpp"
#include "gpu/device/stage_device.hpp"
#include "gpu/model/operations.hpp"
#include "gpu/worker/gradient_memory.hpp"
#include "gpu/worker/python_spec.hpp"
#include "gpu/worker/shared_buffers.hpp"
#include "gpu/worker/worker_session.hpp"

namespace troupe::gpu::python {

/// A stage in a worker. Operations run on the device's thread, which waits for each reply.
class device final : public stage_device {
 public:
  device(const python_spec& s, std::unique_ptr<worker_session> worker, worker_stage_ready ready,
         gradient_memory gradients, std::shared_ptr<device_thread> thread)
      : stage_{s.stage},
        emulate_speed_{s.emulate_speed},
        worker_{std::move(worker)},
        ready_{std::move(ready)},
        gradients_{std::move(gradients)},
        buffers_{s.buffer_bytes},
        queue_{[this](const operation& o, const done& completed) { time(o, completed); }, [] {},
               std::move(thread)} {}
  ~device() override { worker_->close(); }

  void submit(operation o, done d) override { queue_.submit(std::move(o), std::move(d)); }

 private:
  static constexpr std::uint64_t first_guess = std::uint64_t{1} << 20;  // of an output's bytes

  struct computed {
    reply answer;
    std::shared_ptr<shared_buffer> out;  // null: no output
  };

  void time(const operation& o, const done& completed);
  expected<outcome> run(const operation& o);
  expected<outcome> forward(const operation& o);
  expected<outcome> recompute(const operation& o);
  expected<outcome> backward(const operation& o);
  expected<outcome> gradients(const operation& o);
  expected<outcome> update(const operation& o);
  expected<outcome> norms(const operation& o);
  expected<outcome> file(const operation& o);
  expected<outcome> group(const operation& o);
  expected<outcome> sum(const operation& o);
  expected<outcome> weights(const operation& o);

  expected<std::shared_ptr<shared_buffer>> bring(const operation& o, bool wanted);
  expected<computed> compute(request_header r, std::uint64_t out_bytes, std::string_view body = {});
  expected<void> take_sums(const operation& o);
  expected<void> give_regions();
  expected<payload> deliver(const computed& c);
  expected<outcome> with_output(outcome result, const computed& c);
  expected<outcome> plain(request_header r, std::string_view body = {});
  outcome outcome_of(const reply& r) const;
  payload view(std::span<const std::byte> of) const { return {gradients_.memory(), of}; }
  bool is_short() const { return !buffers_.has_room(largest_in_ + largest_out_); }
  bool first() const { return stage_.stage == 0; }
  bool last() const { return stage_.stage + 1 == stage_.stages; }

  worker_stage stage_;
  double emulate_speed_;
  double began_s_ = 0;
  std::unique_ptr<worker_session> worker_;
  worker_stage_ready ready_;
  gradient_memory gradients_;
  shared_buffers buffers_;
  microbatch_progress progress_;
  // The input of a forward stays where it is until its backward: the worker's tensors are views.
  std::map<std::uint32_t, std::shared_ptr<shared_buffer>> held_;
  std::uint64_t largest_in_ = 0, largest_out_ = first_guess;
  operation_queue queue_;
};

}  // namespace troupe::gpu::python
