#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/layout.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/sample.hpp"
#include "planners/scene.hpp"
#include "planners/search/job_space/cost_model_times.hpp"
#include "planners/search/job_space/find_pipelines.hpp"
#include "planners/search/job_space/searched_placement.hpp"
#include "planners/search/space/space_bound.hpp"
#include "planners/search/space/space_search.hpp"

// Trainings in the search for pipelines: programs' layers by their profile, on nodes of unequal
// speeds, in datacenters that their sums may span.

using namespace troupe;
using namespace troupe::planners;
using Catch::Contains;

namespace {

constexpr double no_time = std::numeric_limits<double>::infinity();

model program_layers(std::size_t n) {
  model m;
  m.name = "program";
  m.family = "layers";
  m.tied_head = false;
  m.layers = static_cast<std::uint32_t>(n);
  for (std::size_t i = 0; i < n; ++i)
    m.operators.push_back({std::to_string(i) + "-Layer", 1e9, 1e5, 1000, 4000, 8e5, false});
  return m;
}

/// A CPU's, where a layer takes `seconds_each` forward, and as long again, and twice as long back.
device_profile profile_with(const model& m, const std::vector<double>& seconds_each) {
  device_profile p;
  p.device = "a made-up core";
  p.kind = "cpu";
  p.date = "2026-12-02T12:00:00Z";
  const auto times = [](double s) { return part_times{s, s, 2 * s, 0.1 * s, 0.05 * s, 0, 0}; };
  layers_profile entry{m.name, layers_key(m), 1, 0, {}};
  for (const std::uint32_t rows : {1, 2}) {
    layers_point point{rows, {}, times(0), {}, times(1e-4)};
    for (std::size_t i = 0; i < m.operators.size(); ++i)
      point.layers.push_back({m.operators[i].name, times(rows * seconds_each[i])});
    entry.points.push_back(std::move(point));
  }
  p.programs = {entry};
  return p;
}

job_spec program_job(const model& m, const std::vector<double>& seconds_each, std::uint32_t batch) {
  auto job = sample::job(m, batch);
  job.objective = "fastest";
  auto& t = job.train.emplace();
  t.device = "cpu";
  t.schedule = "megatron";
  t.program.emplace().file = "/program.py";
  t.profile = {profile_with(m, seconds_each)};
  return job;
}

/// Nodes of one core each; `speeds` by datacenter.
cluster cores(const std::vector<std::vector<double>>& speeds, double wan_gbps = 10) {
  cluster c;
  c.name = "cores";
  c.gpus = {sample::gpu("T4", 16, 65)};
  for (std::uint32_t d = 0; d < speeds.size(); ++d) {
    c.datacenters.push_back({"dc" + std::to_string(d), {}});
    for (const double speed : speeds[d]) {
      node n{"n" + std::to_string(c.nodes.size()), d, 0, 1, sample::pcie, sample::ethernet};
      n.emulate_speed = speed;
      c.nodes.push_back(std::move(n));
    }
    for (std::uint32_t other = 0; other < d; ++other) c.wan.push_back({other, d, 4, wan_gbps});
  }
  return c;
}

placed_plan searched(const cluster& c, const job_spec& job) {
  planning_budget budget;
  auto p = place_by_search(c, idle_index{c}, job, widest_space(), budget);
  if (!p) FAIL(p.error().text);
  CHECK(fits(c, idle_index{c}, p->how, p->where));
  return std::move(*p);
}

std::vector<std::uint32_t> cut_of(const plan& how) {
  std::vector<std::uint32_t> out;
  for (const auto& s : how.stages) out.push_back(s.count);
  return out;
}

/// Pieces of the only pipeline's stages, by node.
std::vector<std::uint32_t> pieces_by_node(const cluster& c, const placed_plan& p) {
  const auto nodes = nodes_of_stages(c, p.where, p.how).value();
  std::vector<std::uint32_t> out(c.nodes.size());
  for (std::size_t s = 0; s < nodes.size(); ++s) out[nodes[s]] = p.how.stages[s].count;
  return out;
}

/// Micro-batches by the node of each one-stage pipeline.
std::vector<std::uint32_t> shares_by_node(const cluster& c, const placed_plan& p) {
  const auto nodes = nodes_of_stages(c, p.where, p.how).value();
  std::vector<std::uint32_t> out(c.nodes.size());
  std::size_t k = 0;
  for (const auto& g : groups_of(p.how))
    for (std::uint32_t i = 0; i < g.pipelines; ++i, k += g.stages.size())
      out[nodes[k]] = g.microbatches;
  return out;
}

/// Every plan on nodes of one core: cuts, pipelines on nodes in every order, shares of the
/// micro-batches, rows. Shares `evaluate` alone with the search.
class every_program_plan {
 public:
  every_program_plan(const cluster& c, const job_spec& job, bool one_datacenter)
      : c_{c}, job_{job}, one_{one_datacenter} {}

  double best_s() {
    const auto pieces = static_cast<std::uint32_t>(job_.model.operators.size());
    for (std::uint32_t bits = 0; bits < 1U << (pieces - 1); ++bits) {
      firsts_ = {0};
      bool whole = true;
      for (std::uint32_t i = 1; i < pieces; ++i) {
        if (!(bits >> (i - 1) & 1U)) continue;
        firsts_.push_back(i);
        whole = whole && !job_.model.operators[i].glued;
      }
      if (!whole) continue;
      for (rows_ = 1; rows_ <= job_.global_batch; ++rows_) {
        // As the search: none beyond twice what was measured.
        if (job_.global_batch % rows_ != 0 || rows_ > 4) continue;
        const auto stages = firsts_.size();
        if (job_.pipeline.stages > 0 && stages != job_.pipeline.stages) continue;
        for (std::uint32_t n = 1; n * stages <= c_.nodes.size(); ++n) {
          pipelines_ = n;
          nodes_.clear();
          used_.assign(c_.nodes.size(), false);
          seat();
        }
      }
    }
    return best_;
  }
  std::size_t valued() const { return valued_; }

 private:
  void seat() {
    if (nodes_.size() == pipelines_ * firsts_.size()) {
      shares_.clear();
      share(job_.global_batch / rows_);
      return;
    }
    for (node_index n = 0; n < c_.nodes.size(); ++n) {
      if (used_[n]) continue;
      if (one_ && !nodes_.empty() && c_.nodes[n].datacenter != c_.nodes[nodes_[0]].datacenter)
        continue;
      used_[n] = true;
      nodes_.push_back(n);
      seat();
      nodes_.pop_back();
      used_[n] = false;
    }
  }
  void share(std::uint32_t left) {
    if (shares_.size() + 1 == pipelines_) {
      shares_.push_back(left);
      value();
      shares_.pop_back();
      return;
    }
    for (std::uint32_t m = 1; m + pipelines_ - shares_.size() - 1 <= left; ++m) {
      shares_.push_back(m);
      share(left - m);
      shares_.pop_back();
    }
  }
  void value() {
    std::vector<pipeline_group> groups;
    allocation where;
    for (std::uint32_t p = 0; p < pipelines_; ++p) {
      pipeline_group g{1, shares_[p], {}};
      for (std::uint32_t s = 0; s < firsts_.size(); ++s) {
        const auto end = s + 1 < firsts_.size()
                             ? firsts_[s + 1]
                             : static_cast<std::uint32_t>(job_.model.operators.size());
        const auto n = nodes_[p * firsts_.size() + s];
        g.stages.push_back({firsts_[s], end - firsts_[s], 1, 0U, 0, c_.nodes[n].datacenter});
        where.push_back({n, 1});
      }
      groups.push_back(std::move(g));
    }
    auto job = job_;
    job.pipeline.rows = rows_;
    const auto made = plan_of_groups(c_, idle_index{c_}, job, groups, rows_, &where);
    if (!made || !fits(c_, idle_index{c_}, made->how, made->where)) return;
    ++valued_;
    best_ = std::min(best_, job_.global_batch / made->how.samples_per_s);
  }

  const cluster& c_;
  const job_spec& job_;
  bool one_;
  double best_ = no_time;
  std::size_t valued_ = 0;
  std::vector<std::uint32_t> firsts_, shares_;
  std::uint32_t rows_ = 1, pipelines_ = 1;
  std::vector<node_index> nodes_;
  std::vector<bool> used_;
};

job_spec twelve_layers(std::uint32_t batch = 12) {
  const auto m = program_layers(12);
  auto job = program_job(m, std::vector<double>(12, 0.01), batch);
  job.pipeline.recompute = false;
  return job;
}

decision start_of_one(const cluster& c, std::string_view policy, const job_spec& job,
                      const std::function<void(job_view&)>& last = {}) {
  const auto by = with_trainings(make_policy(policy));
  scene_of_policies::scene s{c};
  s.by = by.get();
  auto& j = s.add(1, job);
  if (last) last(j);
  random_source r{1};
  const auto decisions = by->decide(s.view(), r);
  REQUIRE(decisions.size() == 1);
  REQUIRE(decisions[0].what == decision::kind::start);
  return decisions[0];
}

}  // namespace

TEST_CASE("a program's layers are cut by its profile and by its nodes' speeds") {
  auto job = twelve_layers();
  job.pipeline.stages = 2, job.pipeline.data_parallel = 1;
  const auto c = cores({{0.5, 1}});
  CHECK(pieces_by_node(c, searched(c, job)) == std::vector<std::uint32_t>{4, 8});

  // A longer layer counts by its time: 0.42 s in the slower stage, for 0.45 s or more.
  std::vector<double> seconds(12, 0.01);
  seconds[0] = seconds[1] = 0.05;
  auto skewed = program_job(job.model, seconds, 12);
  skewed.pipeline = job.pipeline;
  const auto cut = searched(c, skewed);
  const double best = every_program_plan{c, skewed, false}.best_s();
  CHECK(skewed.global_batch / cut.how.samples_per_s <= 1.02 * best);
  const auto pieces = pieces_by_node(c, cut);
  CHECK((pieces[0] == 7 || pieces[0] == 6));
  CHECK(nodes_of_stages(c, cut.where, cut.how).value() == std::vector<node_index>{1, 0});

  // Glued ones stay together.
  for (std::uint32_t i = 1; i < 9; ++i) job.model.operators[i].glued = true;
  auto glued = program_job(job.model, std::vector<double>(12, 0.01), 12);
  glued.pipeline = job.pipeline;
  CHECK(pieces_by_node(c, searched(c, glued)) == std::vector<std::uint32_t>{3, 9});
}

TEST_CASE("pipelines of a program get shares by node speed, also across two datacenters") {
  auto job = twelve_layers();
  job.pipeline.stages = 1, job.pipeline.data_parallel = 2, job.pipeline.rows = 1;
  for (const bool apart : {false, true}) {
    const auto c = apart ? cores({{0.5}, {1}}) : cores({{0.5, 1}});
    const auto p = searched(c, job);
    REQUIRE(p.how.groups);
    CHECK(p.how.data_parallel == 2);
    CHECK(shares_by_node(c, p) == std::vector<std::uint32_t>{4, 8});
  }
}

TEST_CASE("a program that sums by torch keeps its pipelines in one datacenter, and says why") {
  auto job = twelve_layers();
  const auto c = cores({{1, 1}, {1, 1}});
  CHECK(why_one_datacenter(job).empty());
  const auto over_both = searched(c, job);
  CHECK(over_both.where.size() == 4);
  job.train->program->gradients = "torch";
  CHECK_THAT(why_one_datacenter(job), Contains("`gradients: torch` cannot sum across"));
  const auto in_one = searched(c, job);
  REQUIRE(in_one.where.size() == 2);
  CHECK(c.nodes[in_one.where[0].node].datacenter == c.nodes[in_one.where[1].node].datacenter);
  CHECK(in_one.how.samples_per_s < over_both.how.samples_per_s);
  // No datacenter has two nodes.
  job.pipeline.data_parallel = 2;
  planning_budget budget;
  const auto thin = cores({{1}, {1}});
  CHECK_FALSE(place_by_search(thin, idle_index{thin}, job, widest_space(), budget));
  job.train->program->gradients = "host";
  CHECK(place_by_search(thin, idle_index{thin}, job, widest_space(), budget));
}

TEST_CASE("a program's plan is the fastest of all plans on nodes of unequal speeds") {
  random_source rng{61};
  std::size_t judged = 0, several = 0, speeds_differ = 0, of_torch = 0, quick = 0;
  for (int i = 0; i < 120; ++i) {
    const auto m0 = program_layers(2 + rng.below(3));
    auto m = m0;
    std::vector<double> seconds;
    for (auto& op : m.operators) {
      seconds.push_back(0.002 + 0.02 * rng.uniform());
      op.glued = rng.chance(0.15);
      op.parameters = 1e4 + 3e5 * rng.uniform();
      op.output_bytes = 1000 + 1e5 * rng.uniform();
    }
    m.operators[0].glued = false;
    auto job = program_job(m, seconds, std::vector<std::uint32_t>{3, 4, 5, 6}[rng.below(4)]);
    const bool torch = rng.chance(0.3);
    if (torch) job.train->program->gradients = "torch";
    std::vector<std::vector<double>> speeds(1 + rng.below(2));
    const auto nodes = 1 + rng.below(4);
    const std::vector<double> some = {1, 1, 0.5, 0.3};
    for (std::size_t n = 0; n < nodes; ++n)
      speeds[rng.below(speeds.size())].push_back(some[rng.below(4)]);
    const auto c = cores(speeds, 0.05 + 2 * rng.uniform());
    const idle_index all{c};
    const auto times = cost_model_times::of(c, all, job, widest_space());
    REQUIRE(times);
    const auto& p = (*times)->problem();
    every_program_plan oracle{c, job, torch};
    const double best = oracle.best_s();
    CAPTURE(i, m.operators.size(), nodes, speeds.size(), torch, oracle.valued(), best);
    planning_budget budget;
    const auto found = search_space(p, **times, 1, budget);
    REQUIRE(found.plans.empty() == !(best < no_time));
    if (found.plans.empty()) continue;
    ++judged;
    several += speeds.size() > 1 ? 1 : 0;
    speeds_differ += (*times)->has_speeds() ? 1 : 0;
    of_torch += torch ? 1 : 0;
    // The order of unlike pipelines in one datacenter is worth a message of stages that agree.
    constexpr double message_s = 3e-5;
    if (found.exact) CHECK(found.plans[0].score <= best + message_s);
    CHECK(found.plans[0].score >= best * (1 - 1e-9));
    planning_budget steps{400'000};
    CHECK(score_bound(p, **times, no_time, steps) <= best * (1 + 1e-9));
    auto without = p;
    without.exact_plans = 0;
    planning_budget again;
    const auto looked_for = search_space(without, **times, 1, again);
    REQUIRE(!looked_for.plans.empty());
    CHECK(looked_for.plans[0].score >= best * (1 - 1e-9));
    quick += looked_for.plans[0].score <= best + message_s ? 1 : 0;
  }
  CHECK(judged > 110);
  CHECK(several > 30);
  CHECK(speeds_differ > 60);
  CHECK(of_torch > 20);
  INFO(quick << " of " << judged << " without enumeration");
  CHECK(quick * 100 >= judged * 90);
}

TEST_CASE("the default policy cuts a fastest program by its nodes, the others by Algorithm 1") {
  auto job = twelve_layers();
  job.pipeline.stages = 2, job.pipeline.data_parallel = 1;
  const auto c = cores({{0.5, 1}});
  const auto own = start_of_one(c, "troupe", job);
  CHECK(pieces_by_node(c, {own.how, own.where}) == std::vector<std::uint32_t>{4, 8});
  CHECK(cut_of(start_of_one(c, "frenzy", job).how) == std::vector<std::uint32_t>{6, 6});
  job.objective = "efficient";
  CHECK(cut_of(start_of_one(c, "troupe", job).how) == std::vector<std::uint32_t>{6, 6});
}

TEST_CASE("the search also cuts a built-in model unless its job file fixes the cut") {
  auto job = sample::job(sample::gpt("small", 256, 6, 4, 128, 1000), 12);
  job.objective = "fastest";
  job.train.emplace().device = "cpu";
  job.train->schedule = "megatron";
  job.pipeline.stages = 2, job.pipeline.data_parallel = 1;
  const auto c = cores({{1, 0.25}});
  const auto found = start_of_one(c, "troupe", job);
  CHECK(found.how.stages[0].count != found.how.stages[1].count);
  job.pipeline.cut = {6, 6};
  CHECK_FALSE(is_searched(job));
  CHECK(cut_of(start_of_one(c, "troupe", job).how) == std::vector<std::uint32_t>{6, 6});
}

TEST_CASE("a later attempt of a searched program keeps its rows and its list of shares") {
  auto job = twelve_layers();
  job.pipeline.stages = 1, job.pipeline.data_parallel = 2;
  const auto c = cores({{0.5, 1}});
  const auto shares_after = [&](std::uint32_t first, std::uint32_t second) {
    const auto d = start_of_one(c, "troupe", job, [&](job_view& j) {
      j.progress.attempts = 1;
      j.rows = 1, j.data_parallel = 2;
      if (first != second)
        for (const auto m : {first, second}) j.groups.push_back({1, m, {{0, 12, 1, 0U, 1e6, 0U}}});
    });
    CHECK(d.how.rows == 1);
    return shares_by_node(c, {d.how, d.where});
  };
  // By node: 4 and 8 would be the fastest. 3 and 9 are nearly so, in whatever order of the
  // pipelines; 6 and 6 take half as long again.
  CHECK(shares_after(9, 3) == std::vector<std::uint32_t>{3, 9});
  CHECK(shares_after(3, 9) == std::vector<std::uint32_t>{3, 9});
  CHECK(shares_after(6, 6) == std::vector<std::uint32_t>{4, 8});
}

TEST_CASE("stages get nodes of their speed where the layout can give them, and else no plan") {
  auto c = cores({{1, 0.5}});
  for (auto& n : c.nodes) n.gpus = 2;
  const idle_index idle{c};
  const gpu_kinds kinds{c, idle, twelve_layers()};
  REQUIRE(kinds.size() == 2);
  const kind_seat fast{0, 0, 1}, slow{1, 0, 1};
  CHECK(allocation_of(c, idle, kinds, {slow, fast}) == allocation{{1, 1}, {0, 1}});
  CHECK(allocation_of(c, idle, kinds, {fast, fast, slow, slow}) == allocation{{0, 2}, {1, 2}});
  // The layout fills a node before it goes on to the next one.
  CHECK_FALSE(allocation_of(c, idle, kinds, {fast, slow, fast, slow}));
  CHECK_FALSE(allocation_of(c, idle, kinds, {fast, fast, fast}));
  // On GPUs nothing emulates a speed.
  auto on_gpus = twelve_layers();
  on_gpus.train->device = "cuda";
  CHECK_FALSE(gpu_kinds{c, idle, on_gpus}.has_speeds());
}
