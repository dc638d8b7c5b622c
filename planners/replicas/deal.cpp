#include "planners/replicas/deal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::planners {

namespace {

constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();
// As many ways to deal whole pipelines are looked at.
constexpr int max_ways = 100'000;
constexpr double rounding = 1e-9;  // of a time

class dealing {
 public:
  dealing(const std::vector<replica>& replicas, const dealt_pipelines& of)
      : replicas_{replicas}, of_{of}, loads_(replicas.size(), 0) {
    for (const auto m : of.microbatches) {
      holders_.emplace_back(m, nobody);
      lost_by_.emplace_back(m, nobody);
    }
  }

  expected<std::vector<std::vector<share>>> run() {
    for (std::size_t r = 0; r < replicas_.size(); ++r)
      if (auto ok = keep(r); !ok) return refuse(ok.error());
    if (std::ranges::none_of(replicas_, &replica::present))
      return refuse(reason::kind::infeasible, "no replica of the stage is left");
    auto groups = lost();
    // Those whose arithmetic is left have no choice of it: they come first.
    for (const bool left : {true, false})
      for (auto& [arithmetic, of_it] : groups) {
        const auto takers = takers_of(arithmetic);
        if (takers.has_same != left) continue;
        of_.whole ? deal_whole(of_it, takers.replicas) : deal_single(of_it, takers.replicas);
      }
    return result();
  }

 private:
  using ranges = std::vector<share>;
  struct candidates {
    std::vector<std::size_t> replicas;
    bool has_same = false;
  };

  expected<void> keep(std::size_t r) {
    const auto& one = replicas_[r];
    for (const auto& s : one.work) {
      if (s.pipeline >= holders_.size() || s.end() > of_.microbatches[s.pipeline])
        return refuse(reason::kind::invalid,
                      "a replica has micro-batches {} to {} of pipeline {}, which there are not",
                      s.first, s.end(), s.pipeline);
      for (auto m = s.first; m < s.end(); ++m) {
        auto& holder = (one.present ? holders_ : lost_by_)[s.pipeline][m];
        if (one.present && holder != nobody)
          return refuse(reason::kind::invalid, "two replicas have micro-batch {} of pipeline {}", m,
                        s.pipeline);
        holder = r;
        if (one.present) ++loads_[r];
      }
    }
    return {};
  }

  /// All that nobody has who is present, by the arithmetic that it had; if nobody ever had it, any.
  std::map<std::string, ranges> lost() const {
    std::map<std::string, ranges> all;
    const auto arithmetic_of = [&](std::size_t r) {
      const auto present = std::ranges::find_if(replicas_, &replica::present);
      return r == nobody ? present->arithmetic : replicas_[r].arithmetic;
    };
    for (std::uint32_t p = 0; p < holders_.size(); ++p)
      for (std::uint32_t m = 0; m < holders_[p].size(); ++m) {
        if (holders_[p][m] != nobody) continue;
        auto& r = all[arithmetic_of(lost_by_[p][m])];
        if (!r.empty() && r.back().pipeline == p && r.back().end() == m)
          ++r.back().count;
        else
          r.push_back({p, m, 1});
      }
    return all;
  }

  candidates takers_of(const std::string& arithmetic) const {
    candidates same{{}, true}, any;
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      if (!replicas_[r].present) continue;
      any.replicas.push_back(r);
      if (replicas_[r].arithmetic == arithmetic) same.replicas.push_back(r);
    }
    return same.replicas.empty() ? any : same;
  }

  double time_of(std::size_t r, std::uint64_t load) const {
    return static_cast<double>(load) / replicas_[r].speed;
  }
  double slowest() const {
    double end = 0;
    for (std::size_t r = 0; r < replicas_.size(); ++r) end = std::max(end, time_of(r, loads_[r]));
    return end;
  }
  bool is_home(std::size_t r, std::uint32_t pipeline) const {
    return of_.homes.empty() || of_.homes[pipeline] == replicas_[r].datacenter;
  }

  void give(std::size_t r, const share& what) {
    for (auto m = what.first; m < what.end(); ++m) {
      TROUPE_INVARIANT(holders_[what.pipeline][m] == nobody,
                       "a micro-batch is dealt to one replica");
      holders_[what.pipeline][m] = r;
    }
    loads_[r] += what.count;
  }

  // ---- single micro-batches

  /// How many more micro-batches each replica may take until the earliest end that there is. That
  /// end is found by giving one after another to whom it delays least.
  std::vector<std::uint64_t> rooms(const ranges& all,
                                   const std::vector<std::size_t>& takers) const {
    auto loads = loads_;
    auto left = troupe::sum_of(all, [](const share& s) { return std::uint64_t{s.count}; });
    double end = slowest();
    for (; left > 0; --left) {
      const auto r = *std::ranges::min_element(
          takers, {}, [&](std::size_t i) { return time_of(i, loads[i] + 1); });
      end = std::max(end, time_of(r, ++loads[r]));
    }
    std::vector<std::uint64_t> room(replicas_.size(), 0);
    for (const auto r : takers)
      room[r] =
          static_cast<std::uint64_t>(std::floor(end * replicas_[r].speed + rounding)) - loads_[r];
    return room;
  }

  bool holds_all_before(std::size_t r, const share& s) const {
    const auto& of = holders_[s.pipeline];
    return std::all_of(of.begin(), of.begin() + s.first, [r](std::size_t h) { return h == r; });
  }

  /// The longest part that one replica can take as one piece comes first, at home if possible. What
  /// is no piece goes to whom it delays least.
  void deal_single(ranges& all, const std::vector<std::size_t>& takers) {
    auto room = rooms(all, takers);
    for (;;) {
      std::optional<std::tuple<bool, std::uint64_t, double>> best;
      std::size_t taker = nobody;
      share* range = nullptr;
      for (auto& s : all)
        for (const auto r : takers) {
          const auto n = std::min<std::uint64_t>(room[r], s.count);
          if (n == 0) continue;
          const std::tuple rank{is_home(r, s.pipeline), holds_all_before(r, s) ? n : 0,
                                -time_of(r, loads_[r] + 1)};
          if (!best || rank > *best) best = rank, taker = r, range = &s;
        }
      if (!best) return;
      const auto piece = std::get<1>(*best);
      const auto n = static_cast<std::uint32_t>(std::max<std::uint64_t>(piece, 1));
      give(taker, {range->pipeline, range->first, n});
      room[taker] -= n;
      range->first += n, range->count -= n;
    }
  }

  // ---- whole pipelines

  using cost = std::pair<double, int>;  // the end of the slowest, parts that are not at home
  struct found {
    std::optional<cost> best{};
    std::vector<std::size_t> to{};
    int ways = 0;
  };

  void deal_whole(ranges& all, const std::vector<std::size_t>& takers) {
    std::ranges::stable_sort(all, std::greater<>{}, &share::count);
    found f;
    std::vector<std::size_t> to;
    search(all, takers, {slowest(), 0}, to, f);
    for (std::size_t i = 0; i < all.size(); ++i) give(f.to[i], all[i]);
  }

  /// Depth first, the largest part first, and first to whom it delays least: the first way that is
  /// found is a good one, and those that cannot be better are left out.
  void search(const ranges& all, const std::vector<std::size_t>& takers, const cost& so_far,
              std::vector<std::size_t>& to, found& f) {
    if (f.best && (so_far >= *f.best || ++f.ways > max_ways)) return;
    if (to.size() == all.size()) {
      f.best = so_far;
      f.to = to;
      return;
    }
    const auto& s = all[to.size()];
    std::vector<std::tuple<double, bool, std::size_t>> choices;
    for (const auto r : takers)
      choices.emplace_back(time_of(r, loads_[r] + s.count), !is_home(r, s.pipeline), r);
    std::ranges::sort(choices);
    for (const auto& [end, away, r] : choices) {
      loads_[r] += s.count;
      to.push_back(r);
      search(all, takers, {std::max(so_far.first, end), so_far.second + away}, to, f);
      to.pop_back();
      loads_[r] -= s.count;
    }
  }

  std::vector<std::vector<share>> result() const {
    std::vector<std::vector<share>> work(replicas_.size());
    for (std::uint32_t p = 0; p < holders_.size(); ++p)
      for (std::uint32_t m = 0; m < holders_[p].size(); ++m)
        work[holders_[p][m]].push_back({p, m, 1});
    for (auto& w : work) w = in_order(std::move(w));
    return work;
  }

  const std::vector<replica>& replicas_;
  const dealt_pipelines& of_;
  std::vector<std::vector<std::size_t>> holders_, lost_by_;  // by pipeline and micro-batch
  std::vector<std::uint64_t> loads_;                         // micro-batches, by replica
};

}  // namespace

expected<std::vector<std::vector<share>>> deal(const std::vector<replica>& replicas,
                                               const dealt_pipelines& of) {
  return dealing{replicas, of}.run();
}

}  // namespace troupe::planners
