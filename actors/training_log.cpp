#include "actors/training_log.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

void training_log::add(const training_report& r) {
  auto& known = jobs_[r.job];
  if (std::pair{r.lease, r.sequence} <= std::pair{known.lease, known.sequence}) return;
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

std::uint64_t training_log::saved(job_id job, lease_id lease) const {
  const auto* r = of(job);
  return r && r->lease == lease ? r->saved : 0;
}

}  // namespace troupe::actors
