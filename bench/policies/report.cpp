#include "policies/report.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::bench {

using cli::duration_text;
using studies::policy_result;

namespace {

constexpr double max_p99 = 1.2;      // of the best
constexpr double max_restarts = 3;   // of a job, on average
constexpr double max_failed = 0.05;  // of the jobs; who fails more has less work to do

bool finished(const policy_result& r, job_id job) {
  const auto at = r.record->jobs().find(job);
  return at != r.record->jobs().end() && at->second.state == job_state::finished;
}

std::vector<double> completions(const policy_result& r, const std::set<job_id>& of) {
  std::vector<double> out;
  for (const auto job : of) out.push_back(r.record->jobs().at(job).completion_s());
  return out;
}

/// The jobs that all of these finish.
std::set<job_id> common_jobs(const std::vector<const policy_result*>& all) {
  std::set<job_id> out;
  for (const auto& [id, j] : all.front()->record->jobs())
    if (std::ranges::all_of(all, [&](const auto* r) { return finished(*r, id); })) out.insert(id);
  return out;
}

std::string over(double ratio) {
  return fmt::format("{:+.1f} %", 100 * (ratio - 1));
}

using contestants = std::vector<contestant>;

const contestant* find_troupe(const contestants& all) {
  const auto at = std::ranges::find(all, "troupe", &contestant::policy);
  return at == all.end() ? nullptr : &*at;
}

/// The mean of the seeds.
template <class F>
double mean_of(const contestant& x, F value) {
  std::vector<double> all;
  for (const auto& r : x.by_seed) all.push_back(static_cast<double>(value(r)));
  return statistics::mean(all);
}

double restarts_of(const contestant& x) {
  return mean_of(x, [](const policy_result& r) { return r.restarts_per_job; });
}
double failed(const contestant& x) {
  return mean_of(x, [](const policy_result& r) { return r.jobs - r.finished; });
}
bool sheds_load(const contest& c, const contestant& x) {
  return failed(x) > max_failed * static_cast<double>(c.jobs);
}

/// The best of the others that do the whole work: below 1 and troupe is not first.
struct margins {
  double jct = 1e9, p99 = 1e9;
  std::string jct_of, p99_of;
};
margins margins_of(const contest& c, const contestants& all) {
  margins m;
  const auto* troupe = find_troupe(all);
  for (const auto& x : all) {
    if (troupe == nullptr || &x == troupe || sheds_load(c, x)) continue;
    const auto s = beside(x, *troupe);
    if (s.jct < m.jct) m.jct = s.jct, m.jct_of = x.policy;
    if (s.p99 < m.p99) m.p99 = s.p99, m.p99_of = x.policy;
  }
  return m;
}

/// Who is faster on the jobs that it finishes, but fails many.
std::string shedders_of(const contest& c) {
  std::string out;
  const auto* troupe = find_troupe(c.contestants);
  for (const auto& x : c.contestants) {
    if (troupe == nullptr || !sheds_load(c, x)) continue;
    const auto s = beside(x, *troupe);
    if (s.jct < 1)
      out += fmt::format("{}{} {} ({:.0f} failed)", out.empty() ? "" : ", ", x.policy, over(s.jct),
                         failed(x));
  }
  return out.empty() ? "-" : out;
}

std::vector<double> common_means(const contest& c, const contestant& x) {
  std::vector<double> means;
  for (std::size_t s = 0; s < x.by_seed.size(); ++s) {
    std::vector<const policy_result*> of_seed;
    for (const auto& y : c.contestants) of_seed.push_back(&y.by_seed[s]);
    means.push_back(statistics::mean(completions(x.by_seed[s], common_jobs(of_seed))));
  }
  return means;
}

std::string with_pipelines_table(const contest& c) {
  const auto* troupe = find_troupe(c.with_pipelines);
  if (!troupe) return {};
  cli::table t{
      {"all with pipelines", "JCT", "against troupe", "p99", "against troupe", "restarts"}};
  for (const auto& x : c.with_pipelines) {
    const auto s = beside(x, *troupe);
    t.row({x.policy, duration_text(mean_of(x, [](const auto& r) { return r.average_jct_s; })),
           over(s.jct), duration_text(mean_of(x, [](const auto& r) { return r.p99_jct_s; })),
           over(s.p99), fmt::format("{:.2f}", restarts_of(x))});
  }
  return "\n" + t.text();
}

std::string table_of(const contest& c) {
  cli::table t{{"policy", "JCT, common", "JCT", "against troupe", "p99", "against troupe",
                "restarts", "failed", "unfinished", "decision p99", "longest"}};
  const auto* troupe = find_troupe(c.contestants);
  std::vector<std::pair<double, const contestant*>> order;
  for (const auto& x : c.contestants) order.emplace_back(troupe ? beside(x, *troupe).jct : 0, &x);
  std::ranges::stable_sort(order, {}, [](const auto& x) { return x.first; });
  for (const auto& [_, x] : order) {
    const auto s = troupe ? beside(*x, *troupe) : standing{};
    const double p99_us =
        std::ranges::max(x->by_seed, {}, &policy_result::decision_p99_us).decision_p99_us;
    const double longest_us =
        std::ranges::max(x->by_seed, {}, &policy_result::decision_max_us).decision_max_us;
    t.row({x->policy, duration_text(statistics::mean(common_means(c, *x))),
           duration_text(mean_of(*x, [](const auto& r) { return r.average_jct_s; })), over(s.jct),
           duration_text(mean_of(*x, [](const auto& r) { return r.p99_jct_s; })), over(s.p99),
           fmt::format("{:.2f}", restarts_of(*x)),
           fmt::format("{:.3g}", mean_of(*x, [](const auto& r) { return r.failed; })),
           fmt::format("{:.3g}",
                       mean_of(*x, [](const auto& r) { return r.jobs - r.finished - r.failed; })),
           duration_text(p99_us * 1e-6), duration_text(longest_us * 1e-6)});
  }
  auto text =
      fmt::format("\n{}: {} jobs, {} seeds\n\n{}", c.name, c.jobs,
                  c.contestants.empty() ? 0 : c.contestants.front().by_seed.size(), t.text());
  text += with_pipelines_table(c);
  for (const auto& sentence : c.left_out) text += sentence + "\n";
  return text;
}

}  // namespace

standing beside(const contestant& x, const contestant& troupe) {
  double mine = 0, its = 0;
  std::vector<double> tails;
  for (std::size_t s = 0; s < x.by_seed.size(); ++s) {
    const auto both = common_jobs({&x.by_seed[s], &troupe.by_seed[s]});
    if (both.empty()) continue;
    const auto a = completions(x.by_seed[s], both), b = completions(troupe.by_seed[s], both);
    its += statistics::mean(a);
    mine += statistics::mean(b);
    tails.push_back(statistics::quantile(a, 0.99) / statistics::quantile(b, 0.99));
  }
  return {mine > 0 ? its / mine : 1, statistics::mean(tails)};
}

std::string text_of(std::vector<contest> all) {
  std::ranges::stable_sort(all, {},
                           [](const contest& c) { return margins_of(c, c.contestants).jct; });
  cli::table t{{"pair", "next best JCT", "over troupe's", "best p99", "over troupe's", "restarts",
                "all with pipelines: next best", "over troupe's", "ahead, with failed jobs"}};
  std::size_t first = 0, tails = 0, equal = 0, still = 0;
  for (const auto& c : all) {
    const auto m = margins_of(c, c.contestants), e = margins_of(c, c.with_pipelines);
    const auto* troupe = find_troupe(c.contestants);
    const double restarts = troupe ? restarts_of(*troupe) : 0;
    first += m.jct >= 1;
    tails += m.p99 * max_p99 >= 1;
    equal += e.jct >= 1;
    still += restarts <= max_restarts;
    t.row({c.name, m.jct_of, over(m.jct), m.p99_of, over(m.p99), fmt::format("{:.2f}", restarts),
           e.jct_of, over(e.jct), shedders_of(c)});
  }
  auto text = fmt::format(
      "Of {} pairs, troupe has the lowest average JCT in {}, and in {} if all policies have its "
      "plan "
      "space (data x tensor x pipeline); a 99th percentile within {} of the best in {}; at most {} "
      "restarts a job in {}.\nEach comparison is over the jobs that both policies finish, with "
      "policies that finish {:.0f} % of all or more.\n\"common\": over the jobs that all policies "
      "finish. Means over seeds.\n\n{}",
      all.size(), first, equal, max_p99, tails, max_restarts, still, 100 * (1 - max_failed),
      t.text());
  for (const auto& c : all) text += table_of(c);
  return text;
}

}  // namespace troupe::bench
