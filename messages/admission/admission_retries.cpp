#include <algorithm>

#include "messages/admission/admission_problems.hpp"
#include "messages/admission/retries.hpp"

// `retries:`: after which ends a job is repeated, how often and when.

namespace troupe::admission {

const key_table<retry_rule>& retry_keys() {
  using t = retry_rule;
  static const key_table<t> rows{
      {"attempts", &t::attempts, range{0, max_retries}},
      {"delay_s", &t::delay_s, range{0, max_retry_delay_s}},
      {"max_delay_s", &t::max_delay_s, range{0, max_retry_delay_s}},
      {"on"},
      {"unless_exit"},
  };
  return rows;
}

const std::vector<std::string>& retry_words() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> all;
    for (const auto w : {end_word::exit, end_word::signal, end_word::start_failed,
                         end_word::rank_wait, end_word::out_of_memory})
      all.emplace_back(to_string(w));
    return all;
  }();
  return words;
}

namespace {

problem check_on(const retry_rule& r) {
  for (const auto w : r.on)
    if (static_cast<std::size_t>(w) >= end_words.size()) return "on: found an unknown word";
  for (const auto w : r.on)
    if (auto p = not_one_of(to_string(w), retry_words())) return inside("on", std::move(p));
  auto sorted = r.on;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return fmt::format("on: found '{}' twice", to_string(*twice));
  return {};
}

problem check_unless_exit(const retry_rule& r) {
  if (r.unless_exit.size() > max_exit_statuses)
    return fmt::format("unless_exit: found {} exit statuses, expected at most {}",
                       r.unless_exit.size(), max_exit_statuses);
  for (const auto status : r.unless_exit)
    if (auto p = out_of_range(status, {1, max_exit_status}))
      return inside("unless_exit", std::move(p));
  return {};
}

problem check_delays(const retry_rule& r) {
  if (r.delay_s <= r.max_delay_s) return {};
  return fmt::format("delay_s: found {:g}, expected at most max_delay_s ({:g})", r.delay_s,
                     r.max_delay_s);
}

}  // namespace

std::optional<objection> objection_to_retries(const job_spec& job) {
  if (!job.program.retries) return {};
  const auto& r = *job.program.retries;
  if (job.program.elastic && job.program.elastic->retries != elastic{}.retries)
    return failure("retries", "retries and elastic.retries are one; give retries");
  return at_key("retries", first_of([&] { return first_invalid_inside(retry_keys(), r); },
                                    [&] { return check_delays(r); }, [&] { return check_on(r); },
                                    [&] { return check_unless_exit(r); }));
}

}  // namespace troupe::admission
