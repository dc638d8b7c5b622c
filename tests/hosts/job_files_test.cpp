#include <catch2/catch.hpp>

#include <cmath>

#include "actors/control/ledger/elastic_attempts.hpp"
#include "formats/load/load.hpp"
#include "harness/scratch.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;

// `troupe status JOB --job-file`: a job's file with what was measured.

TEST_CASE("a job's file with any measured speeds and times is read back, and admitted") {
  const test::scratch where;
  const auto given = formats::load_job(where.write(
      "job.yaml",
      "name: j\nmodel: gpt2-124m\nglobal_batch: 8\ncommand: [python3, a.py]\nelastic: {}\n"));
  REQUIRE(given);
  random_source random{11};
  const auto up_to = [&](double low, double high) {
    return low * std::pow(high / low, random.uniform());
  };
  std::size_t kept = 0;
  for (int i = 0; i < 400; ++i) {
    auto spec = *given;
    spec.global_batch = 1 + static_cast<std::uint32_t>(random.below(100'000'000));
    elastic_record r;
    lease_record l;
    l.granted.at_s = 1000;
    l.granted.how.data_parallel = 1 + static_cast<std::uint32_t>(random.below(8));
    l.granted.parts = {{0, 1, std::vector<std::uint16_t>(l.granted.how.data_parallel)}};
    l.revoked = true;
    l.outcome = lease_outcome::preempted;
    l.revoked_s = 1000 + up_to(1e-9, 1e15);
    // From what no machine does to what no job may take.
    l.program = program_end{40, false, up_to(1e-15, 1e14), up_to(1e-12, 1e16), 40};
    add_attempt(r, spec, l, "A100-40GB", *l.revoked_s + up_to(1e-12, 1e14), 40);
    kept += r.costs.rates.size();
    auto& e = *spec.program.elastic;
    e.rates = r.costs.rates;
    e.start_s = median_of(r.costs.starts_s);
    e.save_s = median_of(r.costs.saves_s);
    const auto text = formats::job_text(spec);
    const auto again = formats::load_job(where.write("again.yaml", text));
    INFO(text);
    REQUIRE(again);
    CHECK(again->program.elastic == spec.program.elastic);
    CHECK(admission::admit(*again));
  }
  CHECK(kept > 100);  // of steps that could be
  CHECK(kept < 400);
}
