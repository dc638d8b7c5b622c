#include "planners/serving/scheduled_policy.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/policy/checked_policy.hpp"
#include "planners/policy/with_exact_gpus.hpp"
#include "planners/policy/with_reservation.hpp"
#include "planners/policy/with_trainings.hpp"
#include "planners/policy/wrapped_policy.hpp"
#include "planners/serving/with_serving.hpp"

namespace troupe::planners {

namespace {

/// Each wrapper looks through all jobs for those that it is there for, at every decision and again
/// for decide_again_s. Where none is, which is so in most simulations, the policy is asked
/// directly: the scheduler knows it from the changes of jobs (snapshot::all_plain), and without
/// that it takes one look.
class scheduled_policy final : public wrapped_policy {
 public:
  explicit scheduled_policy(const std::shared_ptr<const policy>& own)
      : wrapped_policy{with_torch_nodes(
            with_serving(with_reservation(with_exact_gpus(with_trainings(own)))))},
        own_{own} {}

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    return asked(s).decide(s, random);
  }
  double decide_again_s(const snapshot& s) const override { return asked(s).decide_again_s(s); }
  /// The policy's own answer.
  bool places(const job_spec& job, bool pipelines) const override {
    return own_->places(job, pipelines);
  }

 private:
  const policy& asked(const snapshot& s) const {
    const auto are_plain = [this](const job_views& jobs) {
      return std::ranges::all_of(jobs,
                                 [this](const auto& entry) { return is_plain(entry.second); });
    };
    const auto may_miss_torch = [](const auto& entry) { return needs_torch(*entry.second.spec); };
    if (!s.without_torch.empty() && std::ranges::any_of(s.waiting, may_miss_torch)) return inner();
    if (s.all_plain) return *own_;
    return are_plain(s.waiting) && are_plain(s.running) && are_plain(s.moving) ? *own_ : inner();
  }
  /// No wrapper does anything about it.
  bool is_plain(const job_view& j) const {
    return !j.facts().has_own_rules && own_->places(*j.spec, j.training);
  }

  std::shared_ptr<const policy> own_;
};

}  // namespace

std::shared_ptr<const policy> as_scheduled(std::shared_ptr<const policy> own) {
  auto who = fmt::format("the policy '{}'", own->name());
  return std::make_shared<const scheduled_policy>(
      std::make_shared<const checked_policy>(std::move(own), std::move(who)));
}

}  // namespace troupe::planners
