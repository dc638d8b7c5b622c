#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/collectives/collectives.hpp"
#include "gpu/cuda/kernels/portable.hpp"

namespace troupe::gpu::cuda {

/// How long the others are waited for.
struct group_patience {
  double join_s = 60;  // until all are there
  double sum_s = 600;  // until a sum is done; one that is slow is no error
  double leave_s = 5;  // until peers have what they need of a member that leaves
};

/// What all members of a group are told, so that they find each other. Throws std::runtime_error.
std::vector<std::byte> make_group_id(const collectives& with);

/// One member. Its sums are asked for on one thread; any thread may look for trouble, or end it.
class communicator {
 public:
  /// Waits until all are there. Throws std::runtime_error with a sentence if they are not in time,
  /// or if `stop` says that nobody wants them any more.
  communicator(const collectives& with, std::span<const std::byte> id, std::uint32_t rank,
               std::uint32_t size, group_patience patience, std::function<bool()> stop);
  ~communicator();

  /// Asked for and not waited for. Throws std::runtime_error.
  void sum(float* values, std::size_t count, void* stream) { sum(values, count, false, stream); }
  void sum(bf16* values, std::size_t count, void* stream) { sum(values, count, true, stream); }

  /// Why sums that are under way will never be done; empty: they may.
  std::string trouble();
  /// Ends it. What was asked for ends too, with nothing to rely on.
  void abort(const std::string& why);
  /// Nobody wants its sums any more: from now on that is its trouble. What is done stays done.
  void close(const std::string& why);
  /// The end, on a thread of its own, which is joined at the program's end at the latest: as NCCL
  /// wants it if all is well, so that slower peers get all of their sums; else, or if that takes
  /// too long, an abort. `keeps`: what has to be there until then.
  void leave(std::shared_ptr<const void> keeps);

  const group_patience& patience() const { return patience_; }

 private:
  void sum(void* values, std::size_t count, bool narrow, void* stream);
  int state();
  bool is_closing();
  int settled(double patience_s, const char* what);
  std::string sentence(int result) const;

  const collectives& with_;
  const std::uint32_t rank_, size_;
  const group_patience patience_;
  const std::function<bool()> stop_;
  std::mutex guard_;
  void* member_ = nullptr;  // null: ended
  std::string ended_;       // why
  std::string closing_;     // why, if its sums are not wanted any more
};

}  // namespace troupe::gpu::cuda
