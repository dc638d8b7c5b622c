#include "web/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <mutex>
#include <utility>

namespace troupe::web {

namespace {

using namespace prometheus;

constexpr std::array<const char*, 5> outcomes{"finished", "cancelled", "declined", "invalid",
                                              "failed"};

// vLLM's, so that its dashboards fit.
const Histogram::BucketBoundaries first_token_s{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                                0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                                20,    40,    80,   160,  640,  2560};
const Histogram::BucketBoundaries next_token_s{
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};

Counter& counter(Registry& r, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(r).Add({});
}

}  // namespace

struct metrics::families {
  Registry registry;
  Family<Counter>& requests = BuildCounter()
                                  .Name("troupe_requests_total")
                                  .Help("Requests to generate, by what became of them")
                                  .Register(registry);
  std::array<Counter*, outcomes.size()> by_outcome{};
  Counter& prompt_tokens =
      counter(registry, "troupe_prompt_tokens_total", "Tokens of the prompts of accepted requests");
  Counter& generation_tokens =
      counter(registry, "troupe_generation_tokens_total", "Tokens that were generated");
  Histogram& first_token = BuildHistogram()
                               .Name("troupe_time_to_first_token_seconds")
                               .Help("From a request to the first token of each of its choices")
                               .Register(registry)
                               .Add({}, first_token_s);
  Histogram& next_token = BuildHistogram()
                              .Name("troupe_time_per_output_token_seconds")
                              .Help("Between two tokens of a choice")
                              .Register(registry)
                              .Add({}, next_token_s);
  Family<Gauge>& pages = BuildGauge()
                             .Name("troupe_kv_pages")
                             .Help("Pages of the cache of keys and values, 64 positions each")
                             .Register(registry);
  Gauge& used = pages.Add({{"state", "used"}});
  Gauge& free = pages.Add({{"state", "free"}});
  Family<Gauge>& sequences = BuildGauge()
                                 .Name("troupe_sequences")
                                 .Help("Choices that are generated or wait for it")
                                 .Register(registry);
  Gauge& running = sequences.Add({{"state", "running"}});
  Gauge& waiting = sequences.Add({{"state", "waiting"}});
  std::mutex writing;

  families() {
    for (std::size_t i = 0; i < outcomes.size(); ++i)
      by_outcome[i] = &requests.Add({{"outcome", outcomes[i]}});
  }
};

metrics::metrics(std::function<generator_state()> state)
    : state_{std::move(state)}, families_{std::make_unique<families>()} {}
metrics::~metrics() = default;

void metrics::count(outcome o) {
  families_->by_outcome[static_cast<std::size_t>(o)]->Increment();
}

void metrics::prompt_tokens(std::uint64_t n) {
  families_->prompt_tokens.Increment(static_cast<double>(n));
}

void metrics::first_token(double s) {
  families_->generation_tokens.Increment();
  families_->first_token.Observe(s);
}

void metrics::next_token(double s) {
  families_->generation_tokens.Increment();
  families_->next_token.Observe(s);
}

std::string metrics::text() const {
  const std::lock_guard hold{families_->writing};
  const auto s = state_();
  families_->used.Set(s.pages_used);
  families_->free.Set(s.pages_free);
  families_->running.Set(s.running);
  families_->waiting.Set(s.waiting);
  return TextSerializer{}.Serialize(families_->registry.Collect());
}

}  // namespace troupe::web
