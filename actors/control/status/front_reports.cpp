#include "actors/control/status/front_reports.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/address.hpp"

namespace troupe::actors {

namespace {

bool decodes(const ledger& book, const reported_decoder& d) {
  const auto* l = book.lease(d.state.lease);
  const auto* j = l ? book.job(l->granted.job) : nullptr;
  TROUPE_INVARIANT(!l || !l->granted.parts.empty(), "a lease has GPUs of a node");
  return j && j->spec->serve && l->granted.parts.front().node == d.node;
}

}  // namespace

/// A front is believed about its own completions; which decoders exist follows from the ledger.
void front_reports::take(const cluster& c, const ledger& book, address from, front_report r,
                         double now_s) {
  if (!is_front(c, from)) return;
  auto& known = all_[front_of(from)];
  if (std::pair{r.incarnation, r.sequence} <=
      std::pair{known.report.incarnation, known.report.sequence})
    return;
  std::set<lease_id> listed;  // each once: what is kept is bounded by the leases
  std::erase_if(r.decoders, [&](const reported_decoder& d) {
    return !decodes(book, d) || !listed.insert(d.state.lease).second;
  });
  known = {std::move(r), now_s};
}

std::vector<front_status> front_reports::list(const cluster& c, double now_s) const {
  // As nodes: a host that is silent for so long has lost its contact.
  const double limit_s = c.settings.lease_s + 2 * c.settings.heartbeat_s;
  std::vector<front_status> result;
  for (std::uint32_t f = 0; f < c.fronts.size(); ++f) {
    if (c.fronts[f].removed) continue;
    front_status s{c.fronts[f].name, false, {}};
    if (const auto* known = find_in(all_, f)) {
      s.present = now_s - known->at_s <= limit_s;
      s.report = known->report;
    }
    result.push_back(std::move(s));
  }
  return result;
}

}  // namespace troupe::actors
