// Jobs that Troupe's policy knows from one decision to the next, against a look at the list.

#include <catch2/catch.hpp>

#include <memory>
#include <set>
#include <vector>

#include "messages/base/invariant.hpp"
#include "messages/base/random.hpp"
#include "planners/troupe/known_jobs.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// A list of jobs as the scheduler has it, which notes each change.
class noted_list {
 public:
  explicit noted_list(random_source& r) : random_{r} {}

  void change() {
    const auto id = static_cast<job_id>(1 + random_.below(60));
    if (random_.chance(0.4)) {
      views_.erase(id);
    } else {
      job_view j;
      j.id = id;
      j.number = ++numbers_;
      j.spec = spec_;
      j.submitted_s = static_cast<double>(numbers_);
      if (random_.chance(0.5)) j.where = {{static_cast<node_index>(id), 1}};
      if (random_.chance(0.2)) j.where.push_back({static_cast<node_index>(id + 1), 2});
      views_.insert_or_assign(id, std::move(j));
    }
    changes_.note(id);
  }
  /// As with another cluster.
  void begin_anew() {
    views_.clear();
    changes_.note_all(++numbers_);
  }
  snapshot show(bool with_changes) const {
    snapshot s{0, cluster_, idle_, no_jobs, views_};
    if (with_changes) s.changes = &changes_;
    return s;
  }
  const job_views& views() const { return views_; }

 private:
  inline static std::uint64_t numbers_ = 0;
  random_source& random_;
  cluster cluster_;
  idle_index idle_{cluster_};
  std::shared_ptr<const job_spec> spec_ = std::make_shared<const job_spec>();
  job_views views_;
  view_changes changes_{++numbers_};
};

}  // namespace

TEST_CASE("a policy that follows the changes of a list knows the jobs of the list") {
  random_source r{57};
  for (int run = 0; run < 30; ++run) {
    known_jobs known;
    noted_list one{r}, other{r};
    std::size_t made = 0;
    for (int decision = 0; decision < 60; ++decision) {
      auto& list = r.chance(0.1) ? other : one;  // of another controller
      if (r.chance(0.05)) list.begin_anew();
      const auto changes = r.chance(0.05) ? 3000 : r.below(6);  // the first is more than are kept
      for (std::size_t i = 0; i < changes; ++i) list.change();
      const auto s = list.show(r.chance(0.8));
      std::set<std::uint64_t> before;
      for (const auto& k : known.all()) before.insert(k.number);
      known.follow(s, s.running, [&](const job_view& j) {
        ++made;
        // It is not known. Slow invariants make all of them once more.
        if (!checks_slow_invariants()) CHECK_FALSE(before.contains(j.number));
        return known_job{j};
      });
      REQUIRE(known.size() == list.views().size());
      auto at = list.views().begin();
      for (const auto& k : known.all()) {
        REQUIRE(k.view == &at->second);
        REQUIRE(k.as_contender.job == &at->second);
        REQUIRE(k.number == at->second.number);
        const auto& where = at->second.where;
        REQUIRE(k.only == (where.size() == 1 ? where.front() : node_share{}));
        ++at;
      }
    }
    CHECK(made > 0);
  }
}
