#include <array>
#include <cmath>

#include "messages/admission.hpp"
#include "messages/admission_problems.hpp"
#include "messages/served_bytes.hpp"

namespace troupe::admission {

namespace {

constexpr std::array<std::string_view, 4> packing_rules{"whole", "look-ahead", "chunked",
                                                        "resumable"};
/// A model that generates text, and the folder of its files.
problem check_served(const served_model_files& m, bool has_files) {
  if (!is_name(m.name))
    return fmt::format("found the name '{}', expected at most 64 letters, digits, '.', '_' and '-'",
                       shown(m.name));
  if (has_files && (m.folder.empty() || m.folder.front() != '/' || m.folder.size() > 4095))
    return fmt::format("found the folder '{}', expected an absolute path, the same on every node",
                       shown(m.folder));
  if (auto p = check_model(m.shape)) return p;
  if (m.shape.family == "gpt" || m.shape.family == "llama") return {};
  return fmt::format("'{}' is of family {}, which generates no text; expected gpt or llama",
                     shown(m.name), m.shape.family);
}

/// One sequence of the longest context must fit into the cache.
problem check_cache(const serving& s) {
  const auto& m = s.model.shape;
  const auto positions = s.context > 0 ? s.context : m.sequence;
  const double needed_gb = cache_page_bytes(m) * cache_pages_of(positions) / bytes_per_gb;
  if (s.kv_gb >= needed_gb) return {};
  return fmt::format("found {}, expected at least {:.4g}: what one sequence of {} positions takes",
                     s.kv_gb, std::ceil(needed_gb * 1e4) / 1e4, positions);
}

}  // namespace

std::optional<objection> objection_to(const serving& s) {
  const auto& m = s.model.shape;
  return first_of(
      [&] { return at_key("model", check_served(s.model, true)); },
      [&] { return at_key("kv_gb", not_above_0(s.kv_gb, max_kv_gb)); },
      [&] { return at_key("context", out_of_range(s.context, 0, m.sequence)); },
      [&] { return at_key("kv_gb", check_cache(s)); },
      [&] {
        return at_key("most_running", out_of_range(s.most_running, 1, max_running_sequences));
      },
      [&] {
        return at_key("most_sequences",
                      out_of_range(s.most_sequences, s.most_running, max_sequences));
      },
      [&] { return at_key("ttft_s", not_above_0(s.ttft_s, max_ttft_s)); },
      [&] {
        return at_key("fallback", s.bubbles || s.fallback
                                      ? problem{}
                                      : "without prefill in bubbles, the decoder has to "
                                        "prefill by itself");
      });
}

std::optional<objection> objection_to(const bubble_lending& b, bool has_files) {
  return first_of(
      [&] {
        // A study names the model elsewhere, or only says how long a prefill takes.
        const bool none = !has_files && b.model == served_model_files{};
        return at_key("model", none ? problem{} : check_served(b.model, has_files));
      },
      [&] { return at_key("memory_gb", not_above_0(b.memory_gb, max_kv_gb)); },
      [&] { return at_key("depth", out_of_range(b.depth, 0, max_guests)); },
      [&] { return at_key("rule", not_one_of(b.rule, packing_rules)); },
      [&] { return at_key("look_ahead", out_of_range(b.look_ahead, 1, max_look_ahead)); },
      [&] { return at_key("chunk", out_of_range(b.chunk, 1, max_chunk)); },
      [&] { return at_key("op_ms", out_of_range(b.op_ms, 0, 1e6)); },
      [&] { return at_key("guard_ms", out_of_range(b.guard_ms, 0, 1e6)); },
      [&] { return at_key("delay_budget", out_of_range(b.delay_budget, 0, 1)); });
}

}  // namespace troupe::admission
