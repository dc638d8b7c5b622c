#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Data-parallel all-reduce of one stage's gradients on hosts, from the view of one member: a
/// reduce-scatter followed by an all-gather, with the traffic of a ring. Every member reduces one
/// chunk, always in the order of the pipelines, so that the bits do not depend on arrival order.
///
/// With empty payloads (a simulation) it counts bytes.
class host_all_reduce {
 public:
  /// A message to another member: its part of a chunk, or a chunk's sum.
  struct outgoing {
    std::uint32_t to_pipeline = 0;
    tensor::kind what = tensor::kind::partial;
    payload body;
    std::uint64_t bytes = 0;
  };

  host_all_reduce() = default;
  host_all_reduce(std::uint32_t members, std::uint32_t self);

  /// Contributes this member's gradients, `bytes` long; 32-bit floats. Returns what to send.
  std::vector<outgoing> begin(payload gradients, std::uint64_t bytes);

  /// Handles data from another member; it may arrive before begin. Returns what to send.
  std::vector<outgoing> receive(const tensor& what, payload body);

  /// A received tensor has the wrong size: nothing more is summed then. Empty: none has.
  const std::string& error() const { return error_; }

  /// The tensors that this member waits for: their kind and pipeline.
  std::vector<std::pair<tensor::kind, std::uint32_t>> missing() const;

  bool complete() const { return started_ && all_here(reduced_) && error_.empty(); }
  /// Returns the sum, and resets this object for another all-reduce.
  payload result();

 private:
  struct range {
    std::uint64_t first = 0, size = 0;  // bytes
  };
  range chunk(std::uint32_t member) const;
  static bool all_here(const std::vector<std::optional<payload>>& by_member) {
    return std::ranges::all_of(by_member, [](const auto& p) { return p.has_value(); });
  }
  std::vector<outgoing> reduce_if_complete();
  void check(const char* what, std::uint32_t from, const payload& body, std::uint64_t bytes);

  std::uint32_t size_ = 1, rank_ = 0;
  bool started_ = false, summed_ = false;
  std::uint64_t bytes_ = 0;
  payload own_;
  // By member, once they are here: its part of my chunk, and its chunk, summed.
  std::vector<std::optional<payload>> unreduced_, reduced_;
  std::string error_;
};

/// a + b, element by element; 32-bit floats. Of equal size, or a is empty.
payload sum_of(const payload& a, const payload& b);

/// A range of a payload, without a copy; and the concatenation of two payloads.
payload slice(const payload& whole, std::uint64_t first, std::uint64_t size);
payload joined(const payload& a, const payload& b);

}  // namespace troupe::actors
