#include <catch2/catch.hpp>

#include <functional>
#include <string>

#include "formats/load/load.hpp"
#include "harness/scratch.hpp"
#include "messages/admission/admission.hpp"
#include "messages/admission/retries.hpp"

using namespace troupe;
using Catch::Matchers::Contains;

namespace {

expected<job_spec> with_retries(const std::string& retries, const std::string& more = "") {
  const test::scratch where;
  return formats::load_job(where.write(
      "job.yaml", "name: j\ncommand: [python3, a.py]\n" + more + "retries: " + retries + "\n"));
}

std::string refused(const std::function<void(retry_rule&)>& change) {
  auto job = with_retries("3");
  REQUIRE(job);
  change(*job->program.retries);
  const auto ok = admission::admit(*job);
  return ok ? "" : ok.error().text;
}

}  // namespace

TEST_CASE("retries are a number, or a map whose every key is read into its field") {
  auto job = with_retries("4");
  REQUIRE(job);
  CHECK(*job->program.retries == retry_rule{4, 10, 600, {}, {}});
  job = with_retries("{}");
  REQUIRE(job);
  CHECK(*job->program.retries == retry_rule{3, 10, 600, {}, {}});
  job = with_retries(
      "{attempts: 9, delay_s: 0.5, max_delay_s: 60, on: [signal, rank_wait, out_of_memory], "
      "unless_exit: [2, \"64-66\", 65]}");
  REQUIRE(job);
  CHECK(*job->program.retries ==
        retry_rule{9,
                   0.5,
                   60,
                   {end_word::signal, end_word::rank_wait, end_word::out_of_memory},
                   {2, 64, 65, 66}});
  CHECK(with_retries("{delay_s: 3600}")->program.retries->max_delay_s == 3600);
}

TEST_CASE("invalid retries are refused with what was found and expected") {
  const std::pair<const char*, const char*> all[] = {
      {"-1", "retries: found '-1', expected"},
      {"1.5", "whole number"},
      {"many", "retries: found"},
      {"5000", "from 0 to 1000"},
      {"{attempts: 5000}", "retries.attempts: found '5000'"},
      {"{delay_s: -1}", "retries.delay_s: found '-1'"},
      {"{delay_s: 1e9}", "retries.delay_s: found"},
      {"{delay_s: 20, max_delay_s: 5}", "delay_s: found 20, expected at most max_delay_s (5)"},
      {"{on: [exits]}",
       "found 'exits', expected exit, signal, start_failed, rank_wait, "
       "out_of_memory; did you mean 'exit'?"},
      {"{on: [cancelled]}", "found 'cancelled', expected exit"},
      {"{on: []}", "found an empty list"},
      {"{on: [exit, exit]}", "on: found 'exit' twice"},
      {"{unless_exit: [0]}", "expected exit statuses from 1 to 255"},
      {"{unless_exit: [256]}", "found '256', expected exit statuses"},
      {"{unless_exit: [\"78-64\"]}", "found the text '78-64', expected exit statuses"},
      {"{unless_exit: [\"64-\"]}", "found the text '64-', expected exit statuses"},
      {"{unless_exit: [[1]]}", "expected exit statuses"},
      {"{times: 3}", "unknown key 'times'"}};
  for (const auto& [keys, text] : all) {
    INFO(keys);
    const auto job = with_retries(keys);
    REQUIRE_FALSE(job);
    CHECK_THAT(job.error().text, Contains(text));
  }
  const auto both = with_retries("2", "elastic: {retries: 3}\n");
  REQUIRE_FALSE(both);
  CHECK_THAT(both.error().text, Contains("job.yaml:4: ") &&
                                    Contains("retries and elastic.retries are one; give retries"));
  CHECK(with_retries("2", "elastic: {}\n"));
}

TEST_CASE("the controller refuses the retries that no file could have, whoever sends them") {
  CHECK(refused([](retry_rule&) {}).empty());
  CHECK_THAT(refused([](retry_rule& r) { r.attempts = 1001; }), Contains("attempts: found 1001"));
  CHECK_THAT(refused([](retry_rule& r) { r.delay_s = -1; }), Contains("delay_s: found -1"));
  CHECK_THAT(refused([](retry_rule& r) { r.max_delay_s = 1e12; }), Contains("max_delay_s: found"));
  CHECK_THAT(refused([](retry_rule& r) { r.on = {end_word::time_limit}; }),
             Contains("on: found 'time_limit', expected one of exit, signal"));
  CHECK_THAT(refused([](retry_rule& r) { r.on = {static_cast<end_word>(200)}; }),
             Contains("on: found an unknown word"));
  CHECK_THAT(refused([](retry_rule& r) { r.unless_exit.assign(257, 1); }),
             Contains("unless_exit: found 257 exit statuses, expected at most 256"));
  CHECK_THAT(refused([](retry_rule& r) { r.unless_exit = {-9}; }), Contains("found -9"));
  auto both = with_retries("3", "elastic: {}\n");
  REQUIRE(both);
  both->program.elastic->retries = 5;
  CHECK_THAT(admission::admit(*both).error().text, Contains("give retries"));
}

TEST_CASE("the file that is written for a job with retries reads as the same job") {
  for (const auto* retries :
       {"0", "3", "{}", "{attempts: 1, delay_s: 0}", "{delay_s: 900}", "{max_delay_s: 20}",
        "{attempts: 7, delay_s: 1000, max_delay_s: 2000, on: [exit], unless_exit: [\"1-255\"]}"}) {
    INFO(retries);
    const auto job = with_retries(retries);
    REQUIRE(job);
    const auto written = formats::job_text(*job);
    INFO(written);
    const test::scratch where;
    const auto again = formats::load_job(where.write("job.yaml", written));
    if (!again) FAIL(again.error().text);
    CHECK(*again == *job);
  }
}
