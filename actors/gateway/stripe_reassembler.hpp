#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
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

/// Puts tensors together from stripes that came from other gateways, and hands each on when it is
/// whole: one that lacks a stripe holds nothing back. What is torn, contradicts itself or gets no
/// further for some time is dropped; whoever waits for it asks for it again. Memory is bounded by
/// what really came, and that by limits.
class stripe_reassembler {
 public:
  struct limits {
    std::uint64_t bytes = std::uint64_t{2} << 30;  // of stripes that wait for others
    std::uint32_t stripes = 1U << 17;
    std::uint32_t transfers = 4096;  // of a flow (from one stage to one other), that wait
    std::uint32_t flows = 1U << 14;
    time_ns patience = 5'000'000'000;  // with a transfer of which nothing more comes
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

  /// A stripe from a gateway. Gives the tensor that it was the last stripe of.
  std::optional<whole> add(time_ns now, address gateway, const stripe& s, payload body);

  /// Time has passed: gives up transfers of which nothing has come for too long.
  void look(time_ns now);

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
    time_ns since = 0;  // the last one came
  };
  /// By epoch and number.
  using flow = std::map<std::pair<std::uint64_t, std::uint64_t>, transfer>;

  bool accept(time_ns now, transfer& t, const stripe& s, payload body);
  std::optional<whole> put_together(const transfer& t);
  void let_go(const transfer& t);

  limits limits_;
  std::map<flow_key, flow> flows_;
  std::uint64_t held_bytes_ = 0;
  std::uint32_t held_stripes_ = 0;
  counts counts_;
};

}  // namespace troupe::actors
