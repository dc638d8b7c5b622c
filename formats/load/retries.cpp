#include <algorithm>
#include <cmath>

#include "formats/load/key_reader.hpp"
#include "formats/load/part_readers.hpp"
#include "messages/admission/retries.hpp"

namespace troupe::formats {
namespace {

using admission::max_exit_status;

/// "2" or "64-78".
void read_statuses(map_reader& map, const value& v, std::vector<std::int32_t>& out) {
  const auto whole = [](std::string_view text) -> std::optional<std::int32_t> {
    const auto x = parse_number(text);
    if (!x || *x != std::floor(*x) || *x < 1 || *x > max_exit_status) return {};
    return static_cast<std::int32_t>(*x);
  };
  const std::string_view text = v.what == value::kind::scalar ? v.text : "";
  const auto dash = text.find('-', 1);
  const auto first = whole(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : whole(text.substr(dash + 1));
  if (!first || !last || *first > *last)
    return map.fail("unless_exit",
                    "found {}, expected exit statuses from 1 to {}: numbers, or ranges like "
                    "\"64-78\"",
                    describe(v), max_exit_status);
  for (auto status = *first; status <= *last; ++status)
    if (std::ranges::find(out, status) == out.end()) out.push_back(status);
}

void read_rule(map_reader& keys, retry_rule& r) {
  read_keys(keys, admission::retry_keys(), r);
  if (!keys.find("attempts")) r.attempts = 3;
  // A longer first delay than usual needs no second key.
  if (!keys.find("max_delay_s")) r.max_delay_s = std::max(r.max_delay_s, r.delay_s);
  if (const auto* all = keys.list("unless_exit"))
    for (const auto& v : all->items) read_statuses(keys, v, r.unless_exit);
  std::vector<std::string> on;
  if (!keys.read("on", on)) return;
  if (on.empty())
    keys.fail("on", "found an empty list, expected words; without the key: {}",
              "exit, signal, start_failed, rank_wait");
  for (const auto& word : on) {
    const auto& known = admission::retry_words();
    if (std::ranges::find(known, word) == known.end())
      return keys.fail("on", "found '{}', expected {}{}", shown(word), fmt::join(known, ", "),
                       hint(word, known));
    r.on.push_back(static_cast<end_word>(std::ranges::find(end_words, word) - end_words.begin()));
  }
}

}  // namespace

void read_retries(map_reader& map, job_spec& job) {
  const auto* v = map.find("retries");
  if (!v) return;
  const auto* elastic = map.find("elastic");
  if (elastic && elastic->has("retries"))
    return map.fail("retries", "retries and elastic.retries are one; give retries");
  auto& r = job.program.retries.emplace();
  if (v->what == value::kind::map)
    map.section("retries", [&](map_reader& keys) { read_rule(keys, r); });
  else
    map.read_whole<std::uint32_t>("retries", r.attempts, 0, admission::max_retries);
}

}  // namespace troupe::formats
