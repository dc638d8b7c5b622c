#include "actors/training_log.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe::actors {

namespace {

bool comes_after(const training_report& r, const training_report& known) {
  return std::pair{r.lease, r.sequence} > std::pair{known.lease, known.sequence};
}

/// Numbers of each stage are left out: they are many, and come again with the next report.
training_report without_stages(training_report r) {
  r.measured.clear();
  r.most_held.clear();
  return r;
}

}  // namespace

std::optional<training_report> training_log::to_keep(const training_report& r) const {
  const auto* known = of(r.job);
  const bool says_more =
      !r.iterations.empty() || !r.news.empty() || r.saved > saved(r.job, r.lease);
  if (!says_more || (known && !comes_after(r, *known))) return {};
  return without_stages(r);
}

std::vector<training_report> training_log::snapshot() const {
  std::vector<training_report> result;
  for (const auto& [id, r] : jobs_) result.push_back(without_stages(r));
  return result;
}

void training_log::add(const training_report& r) {
  auto& known = jobs_[r.job];
  if (!comes_after(r, known)) return;
  auto iterations = std::move(known.iterations);
  auto news = std::move(known.news);
  // A later lease goes on from a checkpoint: what came after that is done again.
  if (!r.iterations.empty())
    std::erase_if(iterations, [first = r.iterations.front().iteration](const auto& i) {
      return i.iteration >= first;
    });
  iterations.insert(iterations.end(), r.iterations.begin(), r.iterations.end());
  news.insert(news.end(), r.news.begin(), r.news.end());
  known = r;
  known.iterations = std::move(iterations);
  known.news = std::move(news);
}

const training_report* training_log::of(job_id job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second;
}

std::uint64_t training_log::reached(job_id job, lease_id lease) const {
  const auto* r = of(job);
  return r && r->lease < lease && !r->iterations.empty() ? r->iterations.back().iteration : 0;
}

double training_log::took_s(job_id job, lease_id lease) const {
  const auto* r = of(job);
  if (!r || r->lease >= lease || r->iterations.empty()) return 0;
  std::vector<double> all;
  for (const auto& i : r->iterations) all.push_back(i.end_s - i.begin_s);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

std::uint64_t training_log::saved(job_id job, lease_id lease) const {
  const auto* r = of(job);
  return r && r->lease == lease ? r->saved : 0;
}

}  // namespace troupe::actors
