// Frenzy (docs/planners/has.md): MARP's plans, placed by HAS, for every waiting job in turn.

#include <fmt/format.h>

#include "planners/has.hpp"
#include "planners/policy.hpp"
#include "planners/queue_order.hpp"

namespace troupe::planners {
namespace {

// Lists of plans by what is known of them in this pass. Only ever asked, never walked: the order of
// pointers reaches no output.
class verdicts {
 public:
  enum verdict : std::uint8_t { unknown, servable, refused };
  using list = const std::vector<plan>*;

  verdict& of(list l) {
    if (2 * used_ >= slots_.size()) grow();
    auto& s = slot_of(slots_, l);
    if (s.key == nullptr) {
      s.key = l;
      ++used_;
    }
    return s.value;
  }

 private:
  struct slot {
    list key = nullptr;
    verdict value = unknown;
  };
  static slot& slot_of(std::vector<slot>& slots, list l) {
    auto i = (reinterpret_cast<std::uintptr_t>(l) >> 4) * 0x9e3779b97f4a7c15ULL >> 32;
    for (;; ++i) {
      auto& s = slots[i % slots.size()];
      if (s.key == l || s.key == nullptr) return s;
    }
  }
  void grow() {
    std::vector<slot> larger(slots_.size() * 2);
    for (const auto& s : slots_) {
      if (s.key != nullptr) slot_of(larger, s.key) = s;
    }
    slots_ = std::move(larger);
  }
  std::vector<slot> slots_ = std::vector<slot>(64);
  std::size_t used_ = 0;
};

class frenzy : public policy {
 public:
  std::string_view name() const override { return "frenzy"; }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    if (s.idle.total_idle() == 0) return out;
    verdicts known;
    auto jobs = worth_a_look(s, known, out);
    by_priority(jobs);
    const idle_index* idle = &s.idle;
    std::optional<idle_index> rest;  // a copy, from the first start on
    for (const auto* j : jobs) {
      if (idle->total_idle() == 0) break;
      auto& verdict = known.of(j->plans.get());
      if (j->bytes_floor == 0 && verdict == verdicts::refused) continue;  // idle only shrinks
      const auto i = first_servable(*idle, *j->plans, j->bytes_floor);
      if (!i) {
        if (j->bytes_floor == 0) verdict = verdicts::refused;
        continue;
      }
      const auto& how = (*j->plans)[*i];
      out.push_back(
          {decision::kind::start, j->id, how, best_fit(*idle, how.gpus(), how.bytes_per_gpu), {}});
      if (!rest) idle = &rest.emplace(s.idle);
      take(*rest, out.back().where);
    }
    return out;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting.find(job);
    if (it == s.waiting.end())
      return {reason::kind::unknown, fmt::format("job {} does not wait", job)};
    if (!it->second.plans) return {reason::kind::infeasible, "there is no plan for it"};
    auto choice = has(s.cluster, s.idle, *it->second.plans, it->second.bytes_floor);
    if (!choice) return choice.error();
    const auto& how = (*it->second.plans)[choice->plan];
    return {
        reason::kind::insufficient,
        fmt::format(
            "needs {} GPUs of at least {:.1f} GB; {} are idle, and jobs before it come first",
            how.gpus(), how.bytes_per_gpu / bytes_per_gb, s.idle.idle_above(how.bytes_per_gpu))};
  }

 private:
  // The jobs that the idle GPUs could serve, if each were alone, in order of arrival; gives up on
  // those that no plan is left for. Most of a long queue is turned away here, by one look at a
  // pointer.
  static std::vector<const job_view*> worth_a_look(const snapshot& s, verdicts& known,
                                                   std::vector<decision>& out) {
    std::vector<const job_view*> jobs;
    const std::vector<plan>* last = nullptr;
    auto verdict = verdicts::unknown;
    for (const auto& [id, j] : s.waiting) {
      if (!j.plans || j.plans->empty() || j.bytes_floor > 0) {
        const auto left = !j.plans ? false : std::ranges::any_of(*j.plans, [&](const plan& p) {
          return p.bytes_per_gpu > j.bytes_floor;
        });
        if (left) {
          jobs.push_back(&j);
        } else {
          const auto plans = j.plans ? std::span<const plan>(*j.plans) : std::span<const plan>();
          out.push_back({decision::kind::give_up,
                         id,
                         {},
                         {},
                         has(s.cluster, s.idle, plans, j.bytes_floor).error()});
        }
        continue;
      }
      if (j.plans.get() != last) {
        last = j.plans.get();
        auto& v = known.of(last);
        if (v == verdicts::unknown) {
          v = first_servable(s.idle, *last) ? verdicts::servable : verdicts::refused;
        }
        verdict = v;
      }
      if (verdict == verdicts::servable) jobs.push_back(&j);
    }
    return jobs;
  }
};

}  // namespace

std::unique_ptr<policy> make_frenzy() {
  return std::make_unique<frenzy>();
}

}  // namespace troupe::planners
