#include "planners/replicas/ascending_order.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::planners {

namespace {

using microbatch = std::pair<std::uint32_t, std::uint32_t>;  // of a pipeline: its order is ours
using moment = std::uint64_t;

constexpr moment forward_takes = 1, backward_takes = 2;

struct place {
  std::vector<microbatch> own;      // ascending
  std::size_t begun = 0, done = 0;  // forwards that have begun, backwards that have begun
  moment free_at = 0;
  std::vector<replica_step> steps;
};

/// When the outputs of forwards and backwards are there.
using outputs = std::map<microbatch, moment>;

class execution {
 public:
  execution(const stage_works& work, const std::vector<std::uint32_t>& in_flight)
      : in_flight_{in_flight}, forwards_(work.size()), backwards_(work.size()) {
    TROUPE_INVARIANT(work.size() == in_flight.size(), "each stage has a limit of micro-batches");
    for (const auto& of_stage : work) {
      auto& replicas = stages_.emplace_back();
      for (const auto& shares : of_stage) {
        auto& r = replicas.emplace_back();
        for (const auto& s : in_order(shares))
          for (auto m = s.first; m < s.end(); ++m) r.own.emplace_back(s.pipeline, m);
        left_ += 2 * r.own.size();
      }
    }
  }

  /// In each moment every replica that is free begins what it can.
  void run() {
    for (moment now = 0; left_ > 0; ++now) {
      std::size_t before = left_;
      bool busy = false;
      for (std::size_t s = 0; s < stages_.size(); ++s)
        for (auto& r : stages_[s]) {
          if (r.free_at <= now) begin(s, r, now);
          busy = busy || r.free_at > now;
        }
      TROUPE_INVARIANT(busy || left_ < before,
                       "the smallest micro-batch that is not done can always go on");
    }
  }

  std::vector<std::vector<std::vector<replica_step>>> steps() const {
    std::vector<std::vector<std::vector<replica_step>>> all;
    for (const auto& of_stage : stages_) {
      auto& replicas = all.emplace_back();
      for (const auto& r : of_stage) replicas.push_back(r.steps);
    }
    return all;
  }

 private:
  static bool has(const outputs& all, const microbatch& m, moment now) {
    const auto at = all.find(m);
    return at != all.end() && at->second <= now;
  }

  void begin(std::size_t stage, place& r, moment now) {
    const bool last = stage + 1 == stages_.size();
    if (r.done < r.begun) {
      const auto& m = r.own[r.done];
      if (has(forwards_[stage], m, now) && (last || has(backwards_[stage + 1], m, now))) {
        ++r.done;
        return take(r, m, true, backwards_[stage], now + backward_takes);
      }
    }
    if (r.begun == r.own.size() || r.begun - r.done >= std::max(1U, in_flight_[stage])) return;
    const auto& m = r.own[r.begun];
    if (stage > 0 && !has(forwards_[stage - 1], m, now)) return;
    ++r.begun;
    take(r, m, false, forwards_[stage], now + forward_takes);
  }

  void take(place& r, const microbatch& m, bool backward, outputs& made, moment end) {
    r.steps.push_back({m.first, m.second, backward});
    r.free_at = end;
    made[m] = end;
    --left_;
  }

  const std::vector<std::uint32_t>& in_flight_;
  std::vector<std::vector<place>> stages_;
  std::vector<outputs> forwards_, backwards_;  // by stage
  std::size_t left_ = 0;                       // steps that have not begun
};

}  // namespace

std::vector<std::vector<std::vector<replica_step>>> ascending_order(
    const stage_works& work, const std::vector<std::uint32_t>& in_flight) {
  execution e{work, in_flight};
  e.run();
  return e.steps();
}

}  // namespace troupe::planners
