#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/kernels/portable.hpp"
#include "gpu/cuda/runtime/collectives.hpp"

namespace troupe::gpu::cuda {

/// Timeouts for other members.
struct communicator_patience {
  double join_s = 60;  // until all have joined
  double sum_s = 600;  // until an all-reduce is complete; slow ones are not errors
  double leave_s = 5;  // until peers have this member's data at the end
};

/// Creates a group id, which all members need to join. Throws std::runtime_error.
std::vector<std::byte> make_communicator_id(const collectives& with);

/// One member. One thread requests its all-reduces; any thread may check for errors or end it.
class communicator {
 public:
  /// Waits until all have joined. Throws std::runtime_error if they do not in time, or if `stop`
  /// returns true.
  communicator(const collectives& with, std::span<const std::byte> id, std::uint32_t rank,
               std::uint32_t size, communicator_patience patience, std::function<bool()> stop);
  ~communicator();

  /// Asynchronous. Throws std::runtime_error.
  void sum(float* values, std::size_t count, void* stream) { sum(values, count, false, stream); }
  void sum(bf16* values, std::size_t count, void* stream) { sum(values, count, true, stream); }

  /// Why pending all-reduces will never complete; empty: they may.
  std::string trouble();
  /// Aborts it; the results of pending all-reduces are invalid.
  void abort(const std::string& why);
  /// Its results are no longer needed: trouble() returns that from now on. Completed ones stay
  /// valid.
  void close(const std::string& why);
  /// Ends it on a background thread, which is joined at the program's end at the latest: normally,
  /// so that slower peers get all their data, or by an abort after an error or a timeout. `keeps`:
  /// objects that must live until then.
  void leave(std::shared_ptr<const void> keeps);

  const communicator_patience& patience() const { return patience_; }

 private:
  void sum(void* values, std::size_t count, bool narrow, void* stream);
  int state();
  bool is_closing();
  int settled(double patience_s, const char* what);
  std::string sentence(int result) const;

  const collectives& with_;
  const std::uint32_t rank_, size_;
  const communicator_patience patience_;
  const std::function<bool()> stop_;
  std::mutex guard_;
  void* member_ = nullptr;  // null: ended
  std::string ended_;       // why
  std::string closing_;     // why, if its results are no longer needed
};

}  // namespace troupe::gpu::cuda
