#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/frame.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// Data-parallel all-reduce of one stage's gradients on hosts, from the view of one member: a
/// reduce-scatter followed by an all-gather, with the traffic of a ring. Every member reduces one
/// chunk, always in the order of the pipelines, so that the bits do not depend on arrival order.
///
/// With empty payloads (a simulation) it counts bytes.
class host_all_reduce {
 public:
  /// A message to another member.
  struct parcel {
    std::uint32_t to_pipeline = 0;
    tensor::kind what = tensor::kind::part;
    payload body;
    std::uint64_t bytes = 0;
  };

  host_all_reduce() = default;
  host_all_reduce(std::uint32_t members, std::uint32_t self);

  /// Contributes this member's gradients, `bytes` long; 32-bit floats. Returns what to send.
  std::vector<parcel> begin(payload gradients, std::uint64_t bytes);

  /// Handles data from another member; it may arrive before begin. Returns what to send.
  std::vector<parcel> take(const tensor& what, payload body);

  /// What came and has another size than it must have: then nothing more is summed. Empty: all is
  /// well.
  const std::string& mistake() const { return mistake_; }

  /// What this member waits for, and from which pipeline.
  std::vector<std::pair<tensor::kind, std::uint32_t>> missing() const;

  /// Is the whole sum here?
  bool complete() const { return begun_ && sums_ == members_ && mistake_.empty(); }
  /// The sum, once. The exchange is then as new.
  payload result();

 private:
  struct range {
    std::uint64_t first = 0, size = 0;  // bytes
  };
  range chunk(std::uint32_t member) const;
  std::vector<parcel> sum_if_all_here();
  void check(const char* what, std::uint32_t from, const payload& body, std::uint64_t bytes);

  std::uint32_t members_ = 1, self_ = 0;
  bool begun_ = false, summed_ = false;
  std::uint64_t bytes_ = 0;
  payload mine_;
  std::vector<payload> parts_;  // of my chunk, by member
  std::vector<bool> has_part_, has_sum_;
  std::uint32_t parts_here_ = 0;  // my own included once begun
  std::vector<payload> chunks_;   // summed, by member
  std::uint32_t sums_ = 0;
  std::string mistake_;
};

/// a + b, element by element; 32-bit floats. Of equal size, or a is empty.
payload sum_of(const payload& a, const payload& b);

/// A part of a payload, which shares its bytes; and two payloads as one.
payload slice(const payload& whole, std::uint64_t first, std::uint64_t size);
payload joined(const payload& a, const payload& b);

}  // namespace troupe::actors
