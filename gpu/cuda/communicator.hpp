#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/collectives.hpp"
#include "gpu/cuda/portable.hpp"

namespace troupe::gpu::cuda {

/// How long the others are waited for.
struct group_patience {
  double join_s = 60;  // until all are there
  double sum_s = 600;  // until a sum is done; one that is slow is no error
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

  const group_patience& patience() const { return patience_; }

 private:
  void sum(void* values, std::size_t count, bool narrow, void* stream);
  int state();
  int settled(double patience_s, const char* what);
  std::string sentence(int result) const;

  const collectives& with_;
  const std::uint32_t rank_, size_;
  const group_patience patience_;
  const std::function<bool()> stop_;
  std::mutex guard_;
  void* member_ = nullptr;  // null: ended
  std::string ended_;       // why
};

}  // namespace troupe::gpu::cuda
