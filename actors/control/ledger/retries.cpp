#include "actors/control/ledger/retries.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "messages/base/random.hpp"
#include "messages/domain/serving.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::actors {

std::optional<retry_rule> retry_rule_of(const job_spec& spec) {
  const auto work = facts_of(spec);
  if (work.restarts_after_failure) return {};  // max_restarts limits what a decoder does, too
  if (spec.program.retries) return spec.program.retries;
  if (work.elastic) return retry_rule{spec.program.elastic->retries, 0, 0, {}, {}};
  return {};
}

retry_rule not_started_rule() {
  return {0, 1, 60, {}, {}};
}

bool is_repeated_after(const retry_rule& rule, end_word why,
                       std::optional<std::int32_t> exit_code) {
  constexpr std::array usual{end_word::exit, end_word::signal, end_word::start_failed,
                             end_word::rank_wait};
  const bool on = rule.on.empty() ? std::ranges::find(usual, why) != usual.end()
                                  : std::ranges::find(rule.on, why) != rule.on.end();
  const auto& never = rule.unless_exit;
  return on && !(exit_code && std::ranges::find(never, *exit_code) != never.end());
}

double backoff_s(const retry_rule& rule, std::uint32_t k, job_id job) {
  constexpr std::uint32_t max_doublings = 60;
  const double doubled =
      std::ldexp(rule.delay_s, static_cast<int>(std::min(std::max(k, 1u) - 1, max_doublings)));
  random_source of{job * 0x9e3779b97f4a7c15ULL + k};
  return std::min(doubled, rule.max_delay_s) * (1 + 0.1 * of.uniform());
}

std::string end_text(end_word why, std::optional<std::int32_t> exit_code) {
  if (why == end_word::exit && exit_code) return fmt::format("exit {}", *exit_code);
  if (why == end_word::signal && exit_code) return fmt::format("signal {}", *exit_code - 128);
  return std::string{to_string(why)};
}

}  // namespace troupe::actors
