#include "simulation/undisturbed.hpp"

#include <fmt/format.h>

#include "gpu/device/simulated_tensor.hpp"
#include "gpu/device/simulated_values.hpp"

namespace troupe::simulation {

namespace {

using gpu::hash_of;
using of = gpu::simulated_kind;

template <class... T>
std::uint64_t digest_of(of kind, T... more) {
  return hash_of({static_cast<std::uint64_t>(kind), std::uint64_t{more}...});
}

/// In their order, beginning with the first.
std::uint64_t sum_of(const std::vector<std::uint64_t>& all) {
  auto sum = all.front();
  for (std::size_t i = 1; i < all.size(); ++i) sum = gpu::sum_of_digests(sum, all[i]);
  return sum;
}

}  // namespace

undisturbed::undisturbed(const stage_setup& one, std::vector<std::uint32_t> microbatches)
    : microbatches_{std::move(microbatches)},
      stages_{one.stages},
      first_{one.first_iteration},
      seed_{one.how.seed},
      tied_{one.model.tied_head && one.stages > 1},
      sums_{one.costs.gradient_bytes > 0} {
  weights start(microbatches_.size());
  for (auto& p : start)
    for (std::uint32_t s = 0; s < stages_; ++s)
      p.push_back(digest_of(of::initial, seed_, s, first_));
  completed_.push_back(std::move(start));
}

std::uint64_t undisturbed::digest(std::uint32_t pipeline, std::uint32_t stage,
                                  std::uint64_t iteration) {
  while (completed_.size() <= iteration - first_) run(first_ + completed_.size() - 1);
  return completed_[iteration - first_].at(pipeline).at(stage);
}

/// The iteration that follows that number of them: forwards and backwards of every micro-batch, the
/// sums, the update.
void undisturbed::run(std::uint64_t iteration) {
  auto now = completed_.back();
  weights gradients(now.size(), std::vector<std::uint64_t>(stages_));
  std::uint64_t n = 0;  // over all pipelines
  for (std::size_t p = 0; p < now.size(); ++p) {
    std::vector<std::vector<std::uint64_t>> more(stages_);
    for (std::uint32_t m = 0; m < microbatches_[p]; ++m, ++n) {
      std::vector<std::uint64_t> in{digest_of(of::data, seed_, iteration, n)};
      for (std::uint32_t s = 0; s + 1 < stages_; ++s)
        in.push_back(digest_of(of::activation, now[p][s], in[s]));
      auto back = digest_of(of::loss, now[p].back(), in.back(), iteration, n);
      for (auto s = stages_; s-- > 0;) {
        more[s].push_back(digest_of(of::contribution, now[p][s], in[s], back));
        back = digest_of(of::gradient, now[p][s], back);
      }
    }
    for (std::uint32_t s = 0; s < stages_; ++s) gradients[p][s] = sum_of(more[s]);
  }
  // The two ends' gradients of a tied embedding are added in each pipeline, then over pipelines.
  const auto last = stages_ - 1;
  std::vector<std::uint64_t> of_first, tied_sums;
  for (const auto& g : gradients) {
    tied_sums.push_back(
        gpu::sum_of_digests(digest_of(of::tied, g[0]), digest_of(of::tied, g[last])));
    of_first.push_back(hash_of({g[0], tied_sums.back()}));
  }
  for (std::size_t p = 0; p < now.size(); ++p)
    for (std::uint32_t s = 0; s < stages_; ++s) {
      std::vector<std::uint64_t> all;
      for (const auto& g : gradients) all.push_back(g[s]);
      auto total = sums_ ? sum_of(all) : gradients[p][s];
      if (tied_ && sums_ && (s == 0 || s == last)) {
        const bool alone = now.size() == 1;
        const auto both = sum_of(of_first), tied = alone ? tied_sums[0] : both;
        total = digest_of(of::joined, s == 0 && !alone ? both : total, tied);
      }
      now[p][s] = digest_of(of::updated, now[p][s], total, iteration);
    }
  completed_.push_back(std::move(now));
}

void weights_oracle::on_weights(const job_spec* job, const stage_setup& s, std::uint64_t iteration,
                                std::uint64_t digest) {
  std::vector<std::uint32_t> microbatches(s.pipelines, s.microbatches);
  // A training that people have moved has other pipelines than its job's groups, and equal ones.
  if (s.share && job && job->pipeline.groups) {
    microbatches.clear();
    for (const auto& g : *job->pipeline.groups)
      microbatches.insert(microbatches.end(), g.pipelines, g.microbatches);
  }
  if (microbatches.size() != s.pipelines) return;
  auto& run = runs_.try_emplace({s.name.lease, s.incarnation}, s, microbatches).first->second;
  ++compared_;
  if (!wrong_.empty() || run.digest(s.name.pipeline, s.name.stage, iteration) == digest) return;
  wrong_ = fmt::format(
      "stage {} of pipeline {} of lease {} has other weights after iteration {} "
      "than an undisturbed training",
      s.name.stage, s.name.pipeline, s.name.lease, iteration);
}

}  // namespace troupe::simulation
