#include "actors/control/ledger/training_history.hpp"

#include <algorithm>

#include "messages/admission/measured.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::actors {

namespace {

bool comes_after(const training_report& r, const training_report& known) {
  return std::pair{r.lease, r.sequence} > std::pair{known.lease, known.sequence};
}

/// Without the numbers of single stages: there are many, and the next report repeats them.
training_report without_stages(training_report r) {
  r.measured.clear();
  r.max_in_flight.clear();
  r.timeline.reset();
  if (r.program) r.program->peak_bytes.clear();
  return r;
}

std::size_t tasks_of(const training_report& r) {
  std::size_t n = 0;
  if (r.timeline)
    for (const auto& s : r.timeline->stages) n += 1 + s.devices.size() + s.tasks.size();
  return n;
}

}  // namespace

/// A job that resumed from a checkpoint repeats iterations: the curve shows the last time of each.
void append(training_report& known, const training_report& newer) {
  // They are ordered: only the last ones can be repeated.
  if (!newer.iterations.empty())
    while (!known.iterations.empty() &&
           known.iterations.back().iteration >= newer.iterations.front().iteration)
      known.iterations.pop_back();
  auto iterations = std::move(known.iterations);
  auto events = std::move(known.events);
  iterations.insert(iterations.end(), newer.iterations.begin(), newer.iterations.end());
  events.insert(events.end(), newer.events.begin(), newer.events.end());
  known = newer;
  known.iterations = std::move(iterations);
  known.events = std::move(events);
}

void training_history::history::forget_from(std::uint64_t iteration) {
  const auto drop = [iteration](auto& all) {
    while (!all.empty() && all.back().what.iteration >= iteration) all.pop_back();
  };
  drop(exact);
  if (exact.empty()) drop(older);
}

void training_history::history::add(const iteration_record& i) {
  exact.push_back({++position, i});
  if (exact.size() <= exact_iterations) return;
  const auto oldest = exact.front();
  exact.pop_front();
  if (!older.empty() && oldest.what.iteration % stride != 0) return;
  older.push_back(oldest);
  if (older.size() <= exact_iterations) return;
  // Doubling halves what is older than the exact part, so its number is bounded while it still
  // covers the whole training evenly.
  stride *= 2;
  const auto first = older.front().what.iteration;
  std::erase_if(older, [this, first](const auto& x) {
    return x.what.iteration != first && x.what.iteration % stride != 0;
  });
}

/// Durable entries are expensive, and most reports repeat what is known.
std::optional<training_report> training_history::to_keep(const training_report& r) const {
  const auto* known = of(r.job);
  const bool adds = !r.iterations.empty() || !r.events.empty() || r.saved > saved(r.job, r.lease);
  if (!adds || (known && !comes_after(r, known->newest))) return {};
  return without_stages(r);
}

std::vector<training_report> training_history::snapshot() const {
  std::vector<training_report> result;
  for (const auto& [id, h] : jobs_) result.push_back(without_stages(since(id, 0)->first));
  return result;
}

void training_history::add(const training_report& r) {
  auto& h = jobs_[r.job];
  if (!comes_after(r, h.newest)) return;
  h.newest = r;
  if (tasks_of(r) > max_tasks) h.newest.timeline.reset();
  h.newest.iterations.clear();
  h.newest.events.clear();
  if (!r.iterations.empty()) h.forget_from(r.iterations.front().iteration);
  for (const auto& i : r.iterations) h.add(i);
  for (const auto& sentence : r.events) h.events.emplace_back(++h.position, sentence);
  while (h.events.size() > max_events) h.events.pop_front();
}

void training_history::ended(job_id job) {
  if (!jobs_.contains(job) || std::ranges::find(ended_, job) != ended_.end()) return;
  ended_.push_back(job);
  if (ended_.size() <= kept_ended) return;
  jobs_.erase(ended_.front());
  ended_.pop_front();
}

std::optional<std::pair<training_report, std::uint64_t>> training_history::since(
    job_id job, std::uint64_t after) const {
  const auto* h = of(job);
  if (!h) return {};
  if (after > h->position) after = 0;  // a position given by an earlier controller
  std::pair<training_report, std::uint64_t> result{h->newest, h->position};
  auto& iterations = result.first.iterations;
  for (const auto& i : h->older)
    if (i.position > after) iterations.push_back(i.what);
  for (const auto& i : h->exact)
    if (i.position > after) iterations.push_back(i.what);
  for (const auto& [position, sentence] : h->events)
    if (position > after) result.first.events.push_back(sentence);
  return result;
}

std::optional<training_report> training_history::recent(job_id job) const {
  constexpr std::ptrdiff_t few = 20;
  const auto* h = of(job);
  if (!h) return {};
  auto result = h->newest;
  const auto count = std::min<std::ptrdiff_t>(few, std::ssize(h->exact));
  for (auto i = h->exact.end() - count; i != h->exact.end(); ++i)
    result.iterations.push_back(i->what);
  return result;
}

const training_history::history* training_history::before(job_id job, lease_id lease) const {
  const auto* h = of(job);
  return h && h->newest.lease < lease && !h->empty() ? h : nullptr;
}

std::uint64_t training_history::reached(job_id job, lease_id lease) const {
  const auto* h = before(job, lease);
  if (!h) return 0;
  return h->exact.empty() ? h->older.back().what.iteration : h->exact.back().what.iteration;
}

double training_history::median_iteration_s(job_id job, lease_id lease) const {
  const auto* h = before(job, lease);
  if (!h) return 0;
  std::vector<double> all;
  const auto add = [&](const numbered_iteration& i) {
    if (const double s = i.what.end_s - i.what.begin_s; admission::is_time(s)) all.push_back(s);
  };
  std::ranges::for_each(h->older, add);
  std::ranges::for_each(h->exact, add);
  return statistics::median(std::move(all));
}

std::uint64_t training_history::saved(job_id job, lease_id lease) const {
  const auto* h = of(job);
  return h && h->newest.lease == lease ? h->newest.saved : 0;
}

}  // namespace troupe::actors
