#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/address.hpp"
#include "messages/wire/frame.hpp"
#include "runtime/host/log_limiter.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/world/host.hpp"

// Which host may send which message to which. Every host checks the envelope of every frame on
// arrival, before the message is decoded or forwarded; docs/security.md has the same table. The
// transport has already checked that the sender belongs to the connection.

namespace troupe::actors {

/// Kinds of hosts, as bits: a permission has sets of them.
enum class role : std::uint8_t { client = 1, node = 2, gateway = 4, controller = 8, front = 16 };

/// Checks beyond the roles. All but same_datacenter are made after decoding.
enum class condition : std::uint8_t {
  none,
  is_operator,      // the sender is an operator
  owner,            // the job is the sender's, or the sender is an operator
  lease_node,       // the sender is a node of the message's lease
  trainer,          // the sender is the lease's first node
  same_datacenter,  // the sender and the receiver are in one datacenter
  decoder,          // the lease is a decoder's on the sender, by the controller's statement
  lender,           // the sender trains in the lease, which lends by the controller's statement
  guest,            // the sender is a guest of the lending, or of the prefill
  receiver,         // the sender is what the prefill's blocks were for
  asked_decoder,    // the request was given to the sender
};

struct permission {
  std::uint16_t type = 0;
  const char* name = "";
  std::uint8_t from = 0, to = 0;  // roles
  condition also = condition::none;
  condition then = condition::none;  // a second one, never same_datacenter

  /// A row with the same two roles on both sides is for messages from one to the other.
  bool allows(role sender, role receiver) const {
    const bool between_two = from == to && (from & (from - 1)) != 0;
    return (from & static_cast<std::uint8_t>(sender)) != 0 &&
           (to & static_cast<std::uint8_t>(receiver)) != 0 && !(between_two && sender == receiver);
  }
};

/// A row for every type of message.
std::span<const permission> permissions();

/// The role of an address; nothing: no host of this cluster has it.
std::optional<role> role_of(const cluster& c, address a);

/// May `self` accept or forward this frame? The reason names both hosts and the type.
expected<void> may_arrive(const cluster& c, address self, const envelope& e);

/// May this client act on a job of that owner?
bool may_act_on(const runtime::caller& who, const std::string& owner);
/// The error for a client that may not; `what`: "cancel it", ...
reason not_theirs(const runtime::caller& who, job_id job, const std::string& owner,
                  const char* what);

/// The error for a client that is no operator; `what`: "change the cluster", ...
reason operators_only(const runtime::caller& who, const char* what);

/// Checks every frame that a host receives: refused frames are counted, and logged once a minute
/// per sender. Not thread-safe.
class frame_guard {
 public:
  frame_guard() = default;
  frame_guard(const runtime::host& h, shared_cluster c)
      : clock_{h.clock}, self_{h.self}, cluster_{std::move(c)} {}

  bool admits(const envelope& e);
  std::uint64_t refused() const { return refused_; }

 private:
  std::shared_ptr<const runtime::clock> clock_;
  address self_ = 0;
  shared_cluster cluster_;
  runtime::log_limiter limiter_;
  std::uint64_t refused_ = 0;
};

}  // namespace troupe::actors
