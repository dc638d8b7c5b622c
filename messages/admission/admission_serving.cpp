#include <cmath>
#include <set>
#include <string>

#include "messages/admission/admission.hpp"
#include "messages/admission/admission_problems.hpp"
#include "messages/domain/served_bytes.hpp"

namespace troupe::admission {

// The part of the check that concerns served models: decoders, and trainings that lend their
// bubbles to one.
namespace {

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

/// Each has a name of its own, which is not the model's: requests choose by it.
problem check_adapters(const serving& s) {
  if (!s.adapters) return {};
  constexpr std::size_t max_adapters = 1000;
  if (s.adapters->size() > max_adapters)
    return fmt::format("found {}, expected at most {}", s.adapters->size(), max_adapters);
  std::set<std::string> names{s.model.name};
  for (const auto& a : *s.adapters) {
    if (!is_name(a.name))
      return fmt::format(
          "found the name '{}', expected at most 64 letters, digits, '.', '_' and '-'",
          shown(a.name));
    if (!names.insert(a.name).second)
      return fmt::format(
          "found the name '{}' twice, expected one that neither the model nor another "
          "adapter has",
          a.name);
    if (a.folder.empty() || a.folder.front() != '/' || a.folder.size() > 4095)
      return fmt::format("found the folder '{}', expected an absolute path, the same on every node",
                         shown(a.folder));
  }
  return {};
}

}  // namespace

// The order is that of dependence: the context's limit is the model's, the cache's that of the
// context.
std::optional<objection> objection_to(const serving& s) {
  return first_of(
      [&] { return at_key("model", check_served(s.model, true)); },
      [&] { return first_invalid(serve_keys(), s); },
      [&] {
        return at_key("context",
                      out_of_range(s.context, {0, static_cast<double>(s.model.shape.sequence)}));
      },
      [&] { return at_key("kv_gb", check_cache(s)); },
      [&] { return at_key("adapters", check_adapters(s)); },
      [&] {
        return at_key(
            "max_sequences",
            out_of_range(s.max_sequences, {static_cast<double>(s.max_running), max_sequences}));
      },
      [&] {
        return at_key("fallback", s.bubbles || s.fallback
                                      ? problem{}
                                      : "without prefill in bubbles, the decoder has to "
                                        "prefill by itself");
      });
}

// A lending training refers to a served model by the same files as its decoder, as guests load the
// same weights.
std::optional<objection> objection_to(const bubble_lending& b, bool has_files) {
  return first_of(
      [&] {
        // A study names the model elsewhere, or only says how long a prefill takes.
        const bool none = !has_files && b.model == served_model_files{};
        return at_key("model", none ? problem{} : check_served(b.model, has_files));
      },
      [&] { return first_invalid(bubble_keys(), b); });
}

}  // namespace troupe::admission
