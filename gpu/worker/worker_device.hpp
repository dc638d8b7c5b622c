#pragma once

#include <atomic>
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
class device final : public program_device {
 public:
  device(const python_spec& s, std::unique_ptr<worker_session> worker, worker_stage_ready ready,
         gradient_memory gradients, std::shared_ptr<device_thread> thread)
      : stage_{s.stage},
        emulate_speed_{s.emulate_speed},
        worker_{std::move(worker)},
        ready_{std::move(ready)},
        gradients_{std::move(gradients)},
        buffers_{s.buffer_bytes},
        queue_{[] {}, std::move(thread)} {}
  ~device() override { worker_->close(); }

  void submit(operation o, done d) override;
  void submit_norms(operations::norms n, done d) override;
  bool has_moving_state() const override { return moves_; }

 private:
  static constexpr std::uint64_t first_guess = std::uint64_t{1} << 20;  // of an output's bytes

  struct computed {
    reply answer;
    std::shared_ptr<shared_buffer> out;  // null: no output
  };

  template <class What>
  void time(const What& o, const layered& p, bool timed, const done& completed);

  // `r`: with what all operations have.
  using result = expected<outcome>;
  result perform(const operations::forward& o, request_header r);
  result perform(const operations::recompute& o, request_header r);
  result perform(const operations::backward& o, request_header r);
  result perform(const operations::gradients& o, request_header r);
  result perform(const operations::reset&, request_header r);
  result perform(const operations::update& o, request_header r);
  result perform(const operations::norms& o, request_header r);
  result perform(const operations::save& o, request_header r);
  result perform(const operations::load& o, request_header r);
  result perform(const operations::make_communicator_id& o, request_header r);
  result perform(const operations::join_communicator& o, request_header r);
  result perform(const operations::sum& o, request_header r);
  result perform(const operations::weights&, request_header r);
  result perform(const operations::digest&, request_header r);

  expected<std::shared_ptr<shared_buffer>> bring(message_kind what, const payload& in, bool wanted);
  expected<computed> compute(request_header r, std::uint64_t out_bytes);
  expected<void> take_sums(const own_and_tied& sums);
  expected<void> give_regions();
  expected<payload> deliver(const computed& c);
  expected<reply> group(request_header r, std::uint32_t rank, std::uint32_t size,
                        std::string_view id);
  result plain(request_header r, std::string_view body = {});
  outcome outcome_of(const reply& r, decltype(outcome::what) what) const;
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
  bool taken_ = false;  // gradients, since the last update
  std::atomic<bool> moves_ = false;
  operation_queue queue_;
};

}  // namespace troupe::gpu::python
