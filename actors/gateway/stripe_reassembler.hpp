#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "actors/gateway/wan_arbiter.hpp"
#include "messages/frame.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// A tensor's body, split: stripe i of n has bytes [size i / n, size (i + 1) / n).
struct cut_body {
  std::uint64_t size = 0;
  std::uint32_t count = 1;

  std::uint64_t begin(std::uint32_t i) const { return size / count * i + size % count * i / count; }
  /// Shares the bytes (no copy).
  payload piece(const payload& whole, std::uint32_t i) const;
};

/// Reassembly buffer: rebuilds tensors from stripes of other gateways and delivers those of one
/// flow (from one stage to another) in order. Torn, contradictory or incomplete tensors are
/// dropped, and delay their successors only for a bounded time. Memory is bounded by the data
/// received, which is limited.
class stripe_reassembler {
 public:
  struct limits {
    std::uint64_t bytes = std::uint64_t{2} << 30;  // of stripes that wait for others
    std::uint32_t stripes = 1U << 17;
    std::uint32_t transfers = 4096;  // of a flow, that wait
    std::uint32_t flows = 1U << 14;
    time_ns patience = 5'000'000'000;  // with a transfer of which something is missing
  };
  struct whole {
    address from = 0, to = 0;
    tensor what;
    payload body;
  };
  struct counts {
    std::uint64_t stripes = 0, tensors = 0, refused = 0, lost = 0;
  };

  stripe_reassembler() = default;
  explicit stripe_reassembler(limits l) : limits_{l} {}

  /// Adds a stripe. Returns the tensors that can be delivered now.
  std::vector<whole> add(time_ns now, address gateway, const stripe& s, payload body);

  /// Drops transfers that have been incomplete for too long. Returns the tensors that were waiting
  /// for them.
  std::vector<whole> look(time_ns now);

  std::uint64_t held_bytes() const { return held_bytes_; }
  const counts& count() const { return counts_; }

 private:
  using flow_key = std::tuple<address, lease_id, std::uint32_t, std::uint32_t, std::uint32_t,
                              std::uint32_t>;  // gateway, lease, from pipeline, stage, to both
  struct piece {
    std::uint64_t offset = 0;
    payload body;
  };
  struct transfer {
    address from = 0, to = 0;
    tensor what;
    std::uint32_t count = 0;
    std::map<std::uint32_t, piece> pieces;
    bool complete = false;
    payload body;  // when complete
    time_ns since = 0;
  };
  struct flow {
    std::uint64_t epoch = 0, next = 0;
    time_ns last_used = 0;
    std::map<std::uint64_t, transfer> transfers;
  };

  bool accept(time_ns now, flow& f, const stripe& s, payload body);
  bool put_together(transfer& t);
  void drop(transfer& t);
  void drop_all(flow& f);
  void release(flow& f, std::vector<whole>& out);

  limits limits_;
  std::map<flow_key, flow> flows_;
  std::uint64_t held_bytes_ = 0;
  std::uint32_t held_stripes_ = 0;
  counts counts_;
};

}  // namespace troupe::actors
