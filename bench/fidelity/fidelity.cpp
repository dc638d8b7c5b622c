// bench_fidelity [FILE...] [--runs] [--json]: the cost model against published training times, and
// the memory model against published peaks. Without FILE every row of the tree
// (tests/planners/published_runs.csv, tests/planners/published, published_memory.csv); with FILE
// the rows of these files, in the columns of published_runs.csv or one of the other forms of
// tests/planners/published/README.md. An error is predicted / published - 1. `--runs` prints every
// run, `--json` one document.

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fidelity_tables.hpp"
#include "formats/load/load.hpp"
#include "judged_runs.hpp"

namespace troupe::bench {
namespace {

using nlohmann::json;

struct wish {
  std::vector<std::string> files;
  bool runs = false, as_json = false;
};

[[noreturn]] void bad(const std::string& why) {
  fmt::print(stderr, "{}\n", why);
  std::exit(2);
}

template <class T>
T value_of(expected<T> x) {
  if (!x) bad(x.error().text);
  return std::move(*x);
}

wish wish_of(int argc, char** argv) {
  wish w;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json")
      w.as_json = true;
    else if (word == "--runs")
      w.runs = true;
    else if (word.starts_with("-"))
      bad(fmt::format("found '{}', expected files, --runs or --json", word));
    else
      w.files.push_back(word);
  }
  return w;
}

std::vector<harness::published_run> runs_of(const wish& w, const std::string& root) {
  if (w.files.empty()) return value_of(harness::load_all_runs(root));
  std::vector<harness::published_run> all;
  for (const auto& file : w.files) {
    const auto more =
        value_of(harness::load_any_runs(file, root + "/tests/planners/published/models.csv"));
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

json groups_of(const grouped_runs& groups, const char* word) {
  auto all = json::array();
  for (const auto& [key, runs] : groups) {
    const auto s = harness::summary_of(errors_of(runs));
    all.push_back({{"source", key.first},
                   {word, key.second},
                   {"runs", s.runs},
                   {"median", s.median},
                   {"bias", s.bias},
                   {"worst", s.worst},
                   {"rank_correlation", rank_correlation_of(runs)}});
  }
  return all;
}

json document_of(const judgement& j) {
  auto runs = json::array(), peaks = json::array(), unsaid = json::array();
  for (const auto& x : j.runs)
    runs.push_back({{"name", harness::name_of(x.run)},
                    {"source", x.run.source},
                    {"set", x.run.set},
                    {"kind", harness::kind_name_of(x.run)},
                    {"measured_s", x.run.iteration_s},
                    {"predicted_s", x.predicted_s},
                    {"error", x.error()}});
  for (const auto& x : j.peaks)
    peaks.push_back({{"name", harness::name_of(x.run)},
                     {"source", x.run.source},
                     {"kind", harness::kind_name_of(x.run)},
                     {"lora_rank", x.run.lora_rank},
                     {"measured_bytes", x.run.peak_bytes},
                     {"predicted_bytes", x.predicted_bytes},
                     {"error", x.error()}});
  for (const auto& x : j.unsaid)
    unsaid.push_back({{"name", harness::name_of(x.run)},
                      {"source", x.run.source},
                      {"kind", harness::kind_name_of(x.run)},
                      {"reason", x.reason}});
  return {{"runs", runs},
          {"kinds", groups_of(by_source_and_kind(j), "kind")},
          {"gpus", groups_of(by_source_and_gpu(j), "gpu")},
          {"sources", groups_of(by_source_and_set(j), "set")},
          {"memory", peaks},
          {"unsaid", unsaid}};
}

void compare(const wish& w) {
  const std::string root = TROUPE_BENCH_SOURCE;
  const auto catalogue = value_of(formats::load_catalogue(root + "/configs/gpus.yaml"));
  const auto j = judge(runs_of(w, root), catalogue);
  if (w.as_json) {
    fmt::print("{}\n", document_of(j).dump(1));
    return;
  }
  print_summaries(j);
  if (w.runs || !w.files.empty()) print_runs(j);
  print_ratios(j);
  print_peaks(j);
  print_unsaid(j);
  if (w.files.empty())
    print_readings(
        value_of(harness::load_published_memory(root + "/tests/planners/published_memory.csv")));
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  troupe::bench::compare(troupe::bench::wish_of(argc, argv));
}
