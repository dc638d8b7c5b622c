#include "actors/training/trainer/ordered_sums.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;

TEST_CASE("a record has the same losses, norms and values whatever the order of the reports") {
  constexpr std::uint32_t pipelines = 5, stages = 4;
  random_source r{3};
  std::vector<stage_report> reports;
  for (std::uint32_t p = 0; p < pipelines; ++p)
    for (std::uint32_t s = 0; s < stages; ++s) {
      stage_report report;
      report.name = {1, p, s};
      report.squared_norm = r.uniform();
      auto& worker = report.worker.emplace();
      if (s + 1 == stages) {
        report.loss = r.uniform();
        worker.values = {{"accuracy", r.uniform(), r.uniform()}, {"other", r.uniform(), 1}};
      }
      reports.push_back(report);
    }
  std::vector<iteration_record> made;
  for (int round = 0; round < 50; ++round) {
    ordered_sums sums;
    for (const auto& report : reports) sums.add(report);
    sums.add_to(made.emplace_back(), std::vector<double>(pipelines, pipelines));
    for (std::size_t i = reports.size(); i > 1; --i) std::swap(reports[i - 1], reports[r.below(i)]);
  }
  REQUIRE(made.front().program);
  CHECK(made.front().program->values.size() == 2);
  CHECK(made.front().loss > 0);
  CHECK(std::ranges::count(made, made.front()) == 50);
}

TEST_CASE("a record's loss is the mean of the pipelines', its norm that of pipeline 0") {
  ordered_sums sums;
  for (std::uint32_t p = 0; p < 2; ++p)
    for (std::uint32_t s = 0; s < 2; ++s) {
      stage_report report;
      report.name = {1, p, s};
      report.squared_norm = p == 0 ? 8 : 100;
      report.loss = s == 1 ? 1 + 2 * p : 0;
      sums.add(report);
    }
  iteration_record record;
  sums.add_to(record, {2, 2});
  CHECK(record.loss == 2);
  CHECK(record.gradient_norm == 4);
}
