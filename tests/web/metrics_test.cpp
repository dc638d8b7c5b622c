#include "web/openai/metrics.hpp"

#include <catch2/catch.hpp>

using namespace troupe::web;
using Catch::Contains;

namespace {

sequence_place in_bubbles() {
  sequence_place p;
  p.prefill.bubbles = true, p.prefill.yields = 3;
  p.prefill.promised_s = 0.1, p.prefill.prefill_s = 0.2, p.prefill.transfer_s = 0.004;
  return p;
}

}  // namespace

TEST_CASE("prompts are counted by where they were computed, and why not in bubbles") {
  metrics m{[] { return generator_state{}; }};
  m.prefilled(in_bubbles());
  m.prefilled(in_bubbles());
  sequence_place here;
  m.prefilled(here);
  here.prefill.declined.text = "queue_full";
  m.prefilled(here);
  here.prefill.declined.text = "a sentence, with \"what\" ever in it";
  m.prefilled(here);
  const auto text = m.text();
  CHECK_THAT(text, Contains("troupe_prefills_total{where=\"bubbles\"} 2\n"));
  CHECK_THAT(text, Contains("troupe_prefills_total{where=\"decoder\"} 3\n"));
  CHECK_THAT(text, Contains("troupe_declined_total{reason=\"queue_full\"} 1\n"));
  CHECK_THAT(text, Contains("troupe_declined_total{reason=\"other\"} 1\n"));
  CHECK_THAT(text, Contains("troupe_prefill_yields_total 6\n"));
  CHECK_THAT(text, Contains("troupe_kv_transfer_seconds_count 2\n"));
  CHECK_THAT(text, Contains("troupe_prefill_predicted_ratio_sum 4\n"));
}

TEST_CASE("what a generator counts of its cache is shown, and a counter never falls") {
  generator_state s;
  s.pages_used = 3, s.pages_free = 9, s.pages_cached = 4;
  s.set_back = 2, s.computed_prompt = 100, s.cached_prompt = 64;
  metrics m{[&] { return s; }};
  const auto text = m.text();
  CHECK_THAT(text, Contains("troupe_kv_pages{state=\"free\"} 9\n"));
  CHECK_THAT(text, Contains("troupe_kv_pages{state=\"cached\"} 4\n"));
  CHECK_THAT(text, Contains("troupe_set_back_total 2\n"));
  CHECK_THAT(text, Contains("troupe_prompt_positions_total{source=\"computed\"} 100\n"));
  CHECK_THAT(text, Contains("troupe_prompt_positions_total{source=\"cached\"} 64\n"));
  CHECK(m.text() == text);
  // One of several models is not served any more.
  s.computed_prompt = 50;
  CHECK_THAT(m.text(), Contains("{source=\"computed\"} 100\n"));
}

TEST_CASE("a choice's further attempts are retries, and requests have a time to their end") {
  metrics m{[] { return generator_state{}; }};
  m.choice_ended(1);
  m.choice_ended(3);
  m.request_ended(2);
  CHECK_THAT(m.text(), Contains("troupe_retries_total 2\n"));
  CHECK_THAT(m.text(), Contains("troupe_e2e_request_seconds_sum 2\n"));
  CHECK_THAT(m.text(), Contains("troupe_e2e_request_seconds_bucket{le=\"2\"} 1\n"));
}

TEST_CASE("requests are counted by model and by what became of them") {
  metrics m{[] { return generator_state{}; }};
  m.add_model("scribe");
  m.count(outcome::finished, "scribe");
  m.count(outcome::finished, "scribe");
  m.count(outcome::invalid, "");
  const auto text = m.text();
  CHECK_THAT(text, Contains("troupe_requests_total{model=\"scribe\",outcome=\"finished\"} 2\n"));
  CHECK_THAT(text, Contains("troupe_requests_total{model=\"scribe\",outcome=\"failed\"} 0\n"));
  CHECK_THAT(text, Contains("troupe_requests_total{model=\"\",outcome=\"invalid\"} 1\n"));
}
