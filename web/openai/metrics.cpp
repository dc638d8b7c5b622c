#include "web/openai/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
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

const Histogram::BucketBoundaries whole_s{0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const Histogram::BucketBoundaries transfer_s{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                             0.1,   0.25,   0.5,   1,    2.5};
const Histogram::BucketBoundaries ratios{0.25, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 8, 16};

Family<Counter>& counters(Registry& r, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(r);
}

Family<Gauge>& gauges(Registry& r, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(r);
}

Counter& counter(Registry& r, const char* name, const char* help) {
  return counters(r, name, help).Add({});
}

Histogram& histogram(Registry& r, const char* name, const char* help,
                     const Histogram::BucketBoundaries& buckets) {
  return BuildHistogram().Name(name).Help(help).Register(r).Add({}, buckets);
}

/// The reason of a prompt that was not computed in bubbles, as a label: labels must have few
/// values, so only the planner's words are kept, and sentences are one value.
std::string label_of(const std::string& declined) {
  constexpr std::size_t longest = 40;
  const bool word = !declined.empty() && declined.size() <= longest &&
                    declined.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
  return word ? declined : "other";
}

/// To a sum that is counted elsewhere. A sum of several models is smaller once one of them is gone,
/// which a counter does not show.
void raise(Counter& c, std::uint64_t to) {
  c.Increment(std::max(0.0, static_cast<double>(to) - c.Value()));
}

}  // namespace

// Everything is registered once, so that a metric is shown from the start with 0, and a dashboard
// can tell no events from no metric.
struct metrics::families {
  Registry registry;
  Family<Counter>& requests =
      counters(registry, "troupe_requests_total", "Requests to generate, by outcome");
  Counter& prompt_tokens =
      counter(registry, "troupe_prompt_tokens_total", "Prompt tokens of accepted requests");
  Counter& generation_tokens =
      counter(registry, "troupe_generation_tokens_total", "Generated tokens");
  Histogram& first_token =
      histogram(registry, "troupe_time_to_first_token_seconds",
                "Time to first token in seconds, of each choice", first_token_s);
  Histogram& next_token = histogram(registry, "troupe_time_per_output_token_seconds",
                                    "Inter-token latency of a choice, in seconds", next_token_s);
  Histogram& whole = histogram(registry, "troupe_e2e_request_seconds",
                               "From a request to the last token of all of its choices", whole_s);
  Family<Counter>& prefills = counters(registry, "troupe_prefills_total",
                                       "Prompts of choices, by where they were computed");
  Counter& in_bubbles = prefills.Add({{"where", "bubbles"}});
  Counter& by_decoders = prefills.Add({{"where", "decoder"}});
  Family<Counter>& declined = counters(registry, "troupe_declined_total",
                                       "Prompts that were to be computed in bubbles, and were not");
  Counter& yields = counter(registry, "troupe_prefill_yields_total",
                            "Suspensions of prefills in bubbles for their trainings");
  Histogram& transfer =
      histogram(registry, "troupe_kv_transfer_seconds",
                "From the end of a prefill in bubbles until its decoder had the cache", transfer_s);
  Histogram& predicted = histogram(registry, "troupe_prefill_predicted_ratio",
                                   "Time of a prefill in bubbles over the promised one", ratios);
  Counter& retries =
      counter(registry, "troupe_retries_total", "Retries of choices after a lost decoder");
  Family<Gauge>& pages = gauges(registry, "troupe_kv_pages",
                                "Pages of the cache of keys and values, 64 positions each");
  Gauge& used = pages.Add({{"state", "used"}});
  Gauge& free = pages.Add({{"state", "free"}});
  Gauge& cached = pages.Add({{"state", "cached"}});
  Counter& set_back =
      counter(registry, "troupe_set_back_total",
              "Choices whose pages were taken for older ones, and that were computed again");
  Family<Counter>& prompt_positions =
      counters(registry, "troupe_prompt_positions_total",
               "Positions of prompts: computed here, or cached, which another prompt had computed");
  Counter& computed_prompt = prompt_positions.Add({{"source", "computed"}});
  Counter& cached_prompt = prompt_positions.Add({{"source", "cached"}});
  Family<Gauge>& sequences =
      gauges(registry, "troupe_sequences", "Choices that are being generated, or wait");
  Gauge& running = sequences.Add({{"state", "running"}});
  Gauge& waiting = sequences.Add({{"state", "waiting"}});
  std::mutex writing;

  std::mutex mutex;              // of the requests' counters
  std::set<std::string> models;  // that are served
  Counter& requests_of(const std::string& model, outcome o) {
    return requests.Add({{"model", model}, {"outcome", outcomes[static_cast<std::size_t>(o)]}});
  }
};

metrics::metrics(std::function<generator_state()> state)
    : state_{std::move(state)}, families_{std::make_unique<families>()} {}
metrics::~metrics() = default;

void metrics::add_model(const std::string& model) {
  const std::lock_guard hold{families_->mutex};
  families_->models.insert(model);
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    families_->requests_of(model, static_cast<outcome>(i));
}

// A counter of zero is shown for each outcome of a served model, so that rates have a beginning.
void metrics::remove_model(const std::string& model) {
  const std::lock_guard hold{families_->mutex};
  if (families_->models.erase(model) == 0) return;
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    families_->requests.Remove(&families_->requests_of(model, static_cast<outcome>(i)));
}

// Names come from clients. Only those of served models become labels: otherwise every invented name
// would be a time series for ever.
void metrics::count(outcome o, const std::string& model) {
  const std::lock_guard hold{families_->mutex};
  families_->requests_of(families_->models.contains(model) ? model : std::string{}, o).Increment();
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

// A ratio of 1 means that the prefill took as long as was promised; it needs a promise.
void metrics::prefilled(const sequence_place& where) {
  auto& f = *families_;
  const auto& p = where.prefill;
  (p.bubbles ? f.in_bubbles : f.by_decoders).Increment();
  if (!p.declined.text.empty()) f.declined.Add({{"reason", label_of(p.declined.text)}}).Increment();
  if (!p.bubbles) return;
  f.yields.Increment(p.yields);
  f.transfer.Observe(p.transfer_s);
  if (p.promised_s > 0) f.predicted.Observe(p.prefill_s / p.promised_s);
}

void metrics::choice_ended(std::uint32_t attempts) {
  if (attempts > 1) families_->retries.Increment(attempts - 1);
}

void metrics::request_ended(double s) {
  families_->whole.Observe(s);
}

// Gauges are set at each reading; two readers at a time must not mix their values.
std::string metrics::text() const {
  const std::lock_guard hold{families_->writing};
  const auto s = state_();
  families_->used.Set(s.pages_used);
  families_->free.Set(s.pages_free);
  families_->cached.Set(s.pages_cached);
  raise(families_->set_back, s.set_back);
  raise(families_->computed_prompt, s.computed_prompt);
  raise(families_->cached_prompt, s.cached_prompt);
  families_->running.Set(s.running);
  families_->waiting.Set(s.waiting);
  return TextSerializer{}.Serialize(families_->registry.Collect());
}

}  // namespace troupe::web
