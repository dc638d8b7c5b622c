#pragma once

#include <cstdint>
#include <utility>

#include "messages/base/reason.hpp"
#include "messages/domain/address.hpp"
#include "messages/wire/prefill.hpp"
#include "messages/wire/serving_leases.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// Who may lend bubbles and who may ask for prefills in a datacenter, by the cluster controller's
/// statement, and which of their messages are well-formed. A class apart from the prefill
/// controller because this is where the wire is not trusted: what has passed here is used without
/// further checks.
class prefill_permissions {
 public:
  prefill_permissions() = default;
  prefill_permissions(shared_cluster c, std::uint32_t datacenter)
      : cluster_{std::move(c)}, datacenter_{datacenter} {}

  /// The controller's statement. False: it is older than the last one; nothing changes.
  bool state(const serving_leases& s);
  /// Without a statement every message is refused, and none of the refusals is worth a line.
  bool has_statement() const { return leases_.epoch > 0; }

  /// The trainer of a lease, which alone speaks for it, and that for its own nodes and model.
  expected<void> may_offer(address from, const bubble_offer& o) const;
  /// An offer that was allowed before still is.
  bool is_lent(const bubble_offer& o) const;
  expected<void> may_request(address from, const prefill_request& r) const;

  /// A node of this datacenter.
  bool is_local(address a) const;
  /// Groups in this datacenter, with the timetable of each guest's stage and finite times.
  bool is_valid(const bubble_offer& o) const;
  /// From the decoder that it names, of a prompt whose tokens are its body.
  bool is_valid(address from, const prefill_request& r, std::size_t body_bytes) const;

 private:
  const lending_lease* lease_of(const bubble_offer& o) const;

  shared_cluster cluster_;
  std::uint32_t datacenter_ = 0;
  serving_leases leases_;  // the last statement
};

}  // namespace troupe::actors
