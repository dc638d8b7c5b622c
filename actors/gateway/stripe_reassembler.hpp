#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "messages/base/time.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The reassembly buffer of a receiving gateway: collects the stripes of tensors from other
/// gateways and returns each tensor when its last stripe has arrived. Stripes may arrive in any
/// order, and an incomplete tensor delays no other.
///
///   absent -> incomplete    its first stripe
///   incomplete -> complete  its last stripe: add() returns it
///   incomplete -> dropped   no stripe for `patience`, or the stripes do not cover it exactly once
///
/// A dropped tensor is not requested here: the receiving stage does that. Memory is bounded by the
/// bytes that have really arrived (no buffer is allocated for an announced size), and those by
/// `limits`.
class stripe_reassembler {
 public:
  struct limits {
    std::uint64_t bytes = std::uint64_t{2} << 30;  // of all incomplete tensors' stripes
    std::uint32_t stripes = 1U << 17;
    std::uint32_t transfers = 4096;  // incomplete ones of a flow (from one stage to another)
    std::uint32_t flows = 1U << 14;
    time_ns patience = 5'000'000'000;  // since the last stripe of an incomplete tensor
  };
  struct whole {
    address from = 0, to = 0;
    tensor what;
    payload body;
  };
  struct counts {
    std::uint64_t stripes = 0, tensors = 0, refused = 0, expired = 0;
  };

  stripe_reassembler() = default;
  explicit stripe_reassembler(limits l) : limits_{l} {}

  /// A stripe from a gateway. Returns the tensor that it completes. An invalid or duplicate stripe,
  /// or one beyond the limits, is counted as refused and has no effect.
  std::optional<whole> add(time_ns now, address gateway, const stripe& s, payload body);

  /// Drops tensors of which no stripe has arrived for too long.
  void on_tick(time_ns now);

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
    time_ns last_stripe_at = 0;
  };
  /// Incomplete ones, by epoch and number.
  using flow = std::map<std::pair<std::uint64_t, std::uint64_t>, transfer>;

  bool accept(time_ns now, transfer& t, const stripe& s, payload body);
  std::optional<whole> assemble(const transfer& t);
  void forget_pieces(const transfer& t);

  limits limits_;
  std::map<flow_key, flow> flows_;
  std::uint64_t held_bytes_ = 0;
  std::uint32_t held_stripes_ = 0;
  counts counts_;
};

}  // namespace troupe::actors
