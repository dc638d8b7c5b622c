#pragma once

#include <cstddef>
#include <memory_resource>
#include <utility>
#include <vector>

namespace troupe::planners {

/// The memory of a decision's lists, which end with it; it keeps its size for the thread's next
/// one. These lists are long, and malloc would sort its free pieces for each of them.
class decision_memory {
 public:
  decision_memory() = default;
  ~decision_memory() { kept() = std::move(bytes_); }
  decision_memory(const decision_memory&) = delete;
  decision_memory& operator=(const decision_memory&) = delete;

  std::pmr::memory_resource* get() { return &lists_; }

 private:
  static constexpr std::size_t size = std::size_t{1} << 18;
  static std::vector<std::byte>& kept() {
    thread_local std::vector<std::byte> bytes;
    return bytes;
  }
  static std::vector<std::byte> taken() {
    auto bytes = std::exchange(kept(), {});
    bytes.resize(size);
    return bytes;
  }
  std::vector<std::byte> bytes_ = taken();
  std::pmr::monotonic_buffer_resource lists_{bytes_.data(), bytes_.size()};
};

template <class T>
using decision_list = std::pmr::vector<T>;

}  // namespace troupe::planners
