#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/training/collectives/sum_chain.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::actors {

/// Data-parallel all-reduce of one stage's gradients on hosts, from the view of one member: a
/// reduce-scatter followed by an all-gather, with the traffic of a ring; between datacenters a
/// running sum (sum_chain.hpp). Every chunk is summed in the order of the pipelines, so that the
/// bits depend neither on arrival order nor on where the members are.
///
/// With payloads without bytes (a simulation) it counts them, and sums digests
/// (gpu/device/simulated_tensor.hpp).
class host_all_reduce {
 public:
  /// A message to another member: its part of a chunk, or a chunk's sum.
  struct outgoing {
    std::uint32_t to_pipeline = 0;
    tensor::kind what = tensor::kind::partial;
    payload body;
    std::uint64_t bytes = 0;
    std::uint32_t chunk = 0;  // of running sums
  };
  struct missing_tensor {
    tensor::kind what = tensor::kind::partial;
    std::uint32_t from_pipeline = 0;
    std::uint32_t chunk = 0;  // of running sums
  };

  host_all_reduce() = default;
  /// `datacenters`: by member; empty: all are in one. `max_chunk`: of running sums, bytes.
  host_all_reduce(std::uint32_t members, std::uint32_t self,
                  const std::vector<std::uint32_t>& datacenters = {},
                  std::uint64_t max_chunk = runtime::largest_tensor_bytes);

  /// Contributes this member's gradients, `bytes` long; 32-bit floats. Returns what to send.
  std::vector<outgoing> begin(payload gradients, std::uint64_t bytes);

  /// Handles data from another member; it may arrive before begin. Returns what to send.
  std::vector<outgoing> receive(const tensor& what, payload body);

  /// A received tensor has the wrong size: nothing more is summed then. Empty: none has.
  const std::string& error() const { return error_; }

  /// The tensors that this member waits for.
  std::vector<missing_tensor> missing() const;

  bool complete() const { return started_ && all_near(reduced_) && error_.empty(); }
  /// Returns the sum, and resets this object for another all-reduce.
  payload result();

 private:
  using by_member = std::vector<std::optional<payload>>;
  using by_chunk = std::map<std::uint32_t, payload>;
  // Numbers of chunks are other hosts' word until their size is known.
  static constexpr std::uint32_t max_chunks = 1U << 16;

  /// Whether those of all members of the own run are there.
  bool all_near(const by_member& all) const;
  std::vector<outgoing> receive_running(const tensor& t, payload body);
  std::vector<outgoing> advance();
  void add_up(std::uint32_t chunk, std::vector<outgoing>& out);
  void hand_on(std::vector<outgoing>& out);
  void check(const char* what, std::uint32_t from, const payload& body, std::uint64_t bytes);

  std::uint32_t size_ = 1, rank_ = 0;
  std::vector<std::uint32_t> datacenters_;
  std::uint64_t max_chunk_ = runtime::largest_tensor_bytes;
  sum_chain chain_;
  bool started_ = false;
  std::uint64_t bytes_ = 0;
  payload own_;
  // By member of the own run, once they are here: its part of my chunks, and its chunks, summed.
  by_member unreduced_, reduced_;
  // My chunks: the sums up to the run before, and over all runs; those that I have added to.
  by_chunk running_, total_;
  std::set<std::uint32_t> added_;
  std::string error_;
};

/// a + b, element by element; 32-bit floats. Of equal size, or a is empty. Of simulated tensors:
/// their digests' sum.
payload sum_of(const payload& a, const payload& b);

/// A range of a payload, without a copy; and the concatenation of two payloads.
payload slice(const payload& whole, std::uint64_t first, std::uint64_t size);
payload joined(const payload& a, const payload& b);

}  // namespace troupe::actors
