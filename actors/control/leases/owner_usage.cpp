#include "actors/control/leases/owner_usage.hpp"

#include <utility>

#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"

namespace troupe::actors {

namespace {

constexpr double bytes_a_mib = 1 << 20;

std::uint64_t bytes_of(const job_accepted& e) {
  return encode(journal_entry{e}).size();
}

}  // namespace

void owner_usage::count(const ledger& book, const std::string& name, owner& o) {
  const auto before = std::exchange(o.jobs, {});
  o.bytes = 0;
  for (const auto& [id, j] : book.jobs()) {
    if (j.members || is_final(j.state) || j.owner != name) continue;
    const auto* known = find_in(before, id);
    const auto bytes = known ? *known : bytes_of({id, j.request, j.submitted_s, *j.spec, j.owner});
    o.bytes += bytes;
    o.jobs.emplace(id, bytes);
  }
  o.counted = true;
}

expected<void> owner_usage::add(const ledger& book, const job_accepted& e, double limit_mib) {
  auto& o = owners_[e.owner];
  const auto bytes = bytes_of(e);
  const auto exceeds = [&] {
    return static_cast<double>(o.bytes + bytes) > limit_mib * bytes_a_mib;
  };
  constexpr std::size_t many = 1000;
  const bool mostly_ended = o.jobs.size() > 2 * book.unfinished() + many;
  if (!o.counted || exceeds() || mostly_ended) count(book, e.owner, o);
  if (exceeds())
    return refuse(reason::kind::refused,
                  "the unfinished jobs of {} take {:.3f} MiB in the controller, and this one would "
                  "take {:.3f} MiB more: expected at most {:g} MiB together (settings: owner_mib); "
                  "submit it when some of them have ended, or with a shorter command or "
                  "environment",
                  e.owner.empty() ? "this user" : e.owner,
                  static_cast<double>(o.bytes) / bytes_a_mib,
                  static_cast<double>(bytes) / bytes_a_mib, limit_mib);
  o.bytes += bytes;
  o.jobs.emplace(e.job, bytes);
  return {};
}

}  // namespace troupe::actors
