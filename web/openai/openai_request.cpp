#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "messages/base/whole_number.hpp"
#include "web/openai/openai.hpp"

namespace troupe::web::openai {

namespace {

using nlohmann::json;

constexpr std::uint32_t max_stops = 4, max_top_logprobs = 20, max_logprobs = 5;
constexpr std::size_t max_biases = 1024;

tl::unexpected<problem> invalid(const std::string& param, const std::string& what) {
  return tl::unexpected<problem>{
      {400, fmt::format("'{}' {}", param, what), "invalid_request_error", param}};
}

tl::unexpected<problem> unreadable(std::string sentence) {
  return tl::unexpected<problem>{{400, std::move(sentence)}};
}

// The depth is limited while parsing, not afterwards: a small body can nest deeply enough to
// exhaust the stack of a function that walks over its values.
parsed<void> read(std::string_view body, json& to) {
  bool too_deep = false;
  const auto watch = [&](int depth, json::parse_event_t event, json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    // The depth of a value that opens is that of what contains it.
    if (opens && depth >= deepest_json) too_deep = true;
    return !too_deep;
  };
  to = json::parse(body.begin(), body.end(), watch, false);
  if (too_deep)
    return unreadable(fmt::format("the body is nested deeper than {} levels", deepest_json));
  if (to.is_discarded()) return unreadable("the body is not JSON in UTF-8");
  if (!to.is_object()) return unreadable("the body is not a JSON object");
  return {};
}

/// Reads one body into a request; keeps the first problem.
class reader {
 public:
  reader(const json& d, bool chat) : d_{d} { r_.chat = chat; }

  parsed<request> run() {
    for (auto step :
         {&reader::refuse_unsupported, &reader::read_model, &reader::read_input,
          &reader::read_lengths, &reader::read_sampling, &reader::read_stops, &reader::read_stream,
          &reader::read_log_probabilities, &reader::read_extensions, &reader::check_together})
      if (auto ok = (this->*step)(); !ok) return tl::unexpected{ok.error()};
    return r_;
  }

 private:
  using checked = parsed<void>;

  /// The value of a key; null: it is not there, or JSON's null.
  const json* find(const std::string& key) const {
    const auto it = d_.find(key);
    return it == d_.end() || it->is_null() ? nullptr : &*it;
  }

  checked flag(const std::string& key, bool& to) const {
    const auto* v = find(key);
    if (!v) return {};
    if (!v->is_boolean()) return invalid(key, "must be true or false");
    to = v->get<bool>();
    return {};
  }

  /// `to`: a double, or an optional one. Without the key it stays as it is.
  template <class T>
  checked number(const std::string& key, double low, double high, T& to) const {
    const auto* v = find(key);
    if (!v) return {};
    if (!v->is_number()) return invalid(key, "must be a number");
    const auto n = v->get<double>();
    if (!(n >= low && n <= high))
      return invalid(key, fmt::format("must be between {} and {}", low, high));
    to = n;
    return {};
  }

  // 1.0 is not an integer here: the parser keeps how a number was written.
  checked integer(const std::string& key, std::uint32_t low, std::uint32_t high,
                  std::optional<std::uint32_t>& to) const {
    const auto* v = find(key);
    if (!v) return {};
    if (!v->is_number_integer()) return invalid(key, "must be an integer");
    const bool negative = !v->is_number_unsigned() && v->get<std::int64_t>() < 0;
    const auto n = negative ? 0 : v->get<std::uint64_t>();
    if (negative || n < low || n > high)
      return invalid(key, fmt::format("must be between {} and {}", low, high));
    to = static_cast<std::uint32_t>(n);
    return {};
  }

  /// Values that ask for nothing are accepted: clients send them.
  static bool asks_for_nothing(const std::string& key, const json& v) {
    if (v.is_boolean()) return !v.get<bool>();
    if (v.is_number()) return v.get<double>() == 0;
    if (v.is_string())
      return v == "" || ((key == "tool_choice" || key == "function_call") && v == "none");
    if (key == "modalities") return v == json::array({"text"});
    if (key == "response_format") return v.is_object() && v.value("type", json{}) == "text";
    return v.empty();
  }

  // A key that would change the answer and is not supported is an error by name, since ignoring it
  // would give another answer than was asked for. All other unknown keys are ignored: clients send
  // keys of newer versions.
  checked refuse_unsupported() {
    for (const char* key :
         {"tools", "tool_choice", "functions", "function_call", "suffix", "response_format",
          "modalities", "audio", "prediction", "web_search_options"})
      if (const auto* v = find(key); v && !asks_for_nothing(key, *v) && !is_excluded(key))
        return invalid(key, "is not supported");
    return {};
  }
  /// Tools that may not be called.
  bool is_excluded(std::string_view key) const {
    const auto is_none = [&](const char* choice) {
      const auto* v = find(choice);
      return v && *v == "none";
    };
    return (key == "tools" && is_none("tool_choice")) ||
           (key == "functions" && is_none("function_call"));
  }

  checked read_model() {
    const auto* v = find("model");
    if (!v) return invalid("model", "is missing");
    if (!v->is_string()) return invalid("model", "must be a string");
    r_.model = v->get<std::string>();
    return {};
  }

  checked read_input() { return r_.chat ? read_messages() : read_prompts(); }

  // Numbers of 32 bits; whether the model has such tokens is checked with the model.
  static bool is_tokens(const json& v) {
    return v.is_array() && !v.empty() && std::all_of(v.begin(), v.end(), [](const json& t) {
             return t.is_number_unsigned() &&
                    t.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
           });
  }
  static bool add_prompt(const json& v, std::vector<prompt>& to) {
    if (v.is_string())
      to.emplace_back(v.get<std::string>());
    else if (is_tokens(v))
      to.emplace_back(v.get<tokens>());
    else
      return false;
    return true;
  }

  // A prompt is a text or tokens, and a request has one of them or a list. A list of numbers is one
  // prompt, so it is tried first.
  checked read_prompts() {
    const auto* v = find("prompt");
    if (!v) return invalid("prompt", "is missing");
    if (add_prompt(*v, r_.prompts)) return {};
    const bool list = v->is_array() && !v->empty() && v->size() <= max_choices;
    if (!list || !std::all_of(v->begin(), v->end(),
                              [&](const json& one) { return add_prompt(one, r_.prompts); }))
      return invalid("prompt",
                     fmt::format("must be a string, a list of token numbers, or a list of 1 to {} "
                                 "of these",
                                 max_choices));
    return {};
  }

  /// Text, or a list of parts that are text.
  static parsed<std::string> content_of(const json& m, const std::string& at) {
    const auto it = m.find("content");
    const auto key = at + ".content";
    if (it == m.end() || it->is_null()) return invalid(key, "is missing");
    if (it->is_string()) return it->get<std::string>();
    if (!it->is_array()) return invalid(key, "must be a string or a list of parts");
    std::string text;
    for (const auto& part : *it) {
      if (!part.is_object() || part.value("type", json{}) != "text")
        return invalid(key, "has a part that is not text, which is not supported");
      const auto words = part.value("text", json{});
      if (!words.is_string()) return invalid(key, "has a part without a text");
      text += words.get<std::string>();
    }
    return text;
  }

  // `developer` is the newer name of `system`; chat templates know the older one. Messages of tools
  // are refused: their answers need a format that is not supported.
  checked read_messages() {
    const auto* v = find("messages");
    if (!v) return invalid("messages", "is missing");
    if (!v->is_array() || v->empty()) return invalid("messages", "must be a list, not empty");
    for (std::size_t i = 0; i < v->size(); ++i) {
      const auto& m = (*v)[i];
      const auto at = fmt::format("messages[{}]", i);
      if (!m.is_object()) return invalid(at, "must be an object");
      const auto role = m.value("role", json{});
      const bool known = role == "user" || role == "assistant" || role == "system";
      if (!known && role != "developer")
        return invalid(at + ".role", "must be system, developer, user or assistant");
      if (m.contains("tool_calls") && !m["tool_calls"].empty())
        return invalid(at + ".tool_calls", "is not supported");
      auto text = content_of(m, at);
      if (!text) return tl::unexpected{text.error()};
      r_.messages.push_back({known ? role.get<std::string>() : "system", std::move(*text)});
    }
    return {};
  }

  // max_completion_tokens is the newer name of max_tokens, and takes precedence.
  checked read_lengths() {
    constexpr auto any = std::numeric_limits<std::uint32_t>::max();
    std::optional<std::uint32_t> n;
    // A completion may ask for its prompt alone.
    auto ok = integer("max_tokens", r_.chat ? 1 : 0, any, r_.max_tokens);
    if (ok) ok = integer("max_completion_tokens", 1, any, r_.max_tokens);
    if (ok) ok = integer("n", 1, max_choices, n);
    r_.n = n.value_or(1);
    return ok;
  }

  // Seeds are any integers; a negative one is used by its bits.
  checked read_sampling() {
    auto ok = number("temperature", 0, 2, r_.how.temperature);
    if (ok) ok = number("top_p", 0, 1, r_.how.top_p);
    if (ok) ok = integer("top_k", 0, std::numeric_limits<std::uint32_t>::max(), r_.how.top_k);
    if (ok) ok = number("min_p", 0, 1, r_.how.min_p);
    if (ok) ok = number("frequency_penalty", -2, 2, r_.frequency_penalty);
    if (ok) ok = number("presence_penalty", -2, 2, r_.presence_penalty);
    if (ok) ok = read_bias();
    const auto* seed = find("seed");
    if (!ok || !seed) return ok;
    if (!seed->is_number_integer()) return invalid("seed", "must be an integer");
    r_.seed = seed->is_number_unsigned() ? seed->get<std::uint64_t>()
                                         : static_cast<std::uint64_t>(seed->get<std::int64_t>());
    return {};
  }

  /// {"50256": -100}: token numbers, as strings, and what is added to their logits.
  checked read_bias() {
    const auto* v = find("logit_bias");
    if (!v) return {};
    const auto bad = [] {
      return invalid("logit_bias", fmt::format("must be an object of at most {} token numbers with "
                                               "numbers between -100 and 100",
                                               max_biases));
    };
    if (!v->is_object() || v->size() > max_biases) return bad();
    for (const auto& [name, bias] : v->items()) {
      const auto token = whole_number<std::uint32_t>(name);
      if (!token || !bias.is_number()) return bad();
      const auto b = bias.get<double>();
      if (!(b >= -100 && b <= 100)) return bad();
      r_.bias.push_back({*token, b});
    }
    return {};
  }

  // At most four, as in OpenAI's API: each is searched for in every piece of text.
  checked read_stops() {
    const auto* v = find("stop");
    if (!v) return {};
    const auto good = [](const json& one) { return one.is_string() && one != ""; };
    if (good(*v))
      r_.stops = {v->get<std::string>()};
    else if (v->is_array() && v->size() <= max_stops && std::all_of(v->begin(), v->end(), good))
      r_.stops = v->get<std::vector<std::string>>();
    else
      return invalid("stop", "must be a string, or a list of at most 4 strings, none empty");
    return {};
  }

  // stream_options without stream would be ignored, which its author does not expect.
  checked read_stream() {
    if (auto ok = flag("stream", r_.stream); !ok) return ok;
    const auto* v = find("stream_options");
    if (!v) return {};
    if (!v->is_object()) return invalid("stream_options", "must be an object");
    if (!r_.stream) return invalid("stream_options", "is only allowed with 'stream'");
    const auto usage = v->value("include_usage", json{});
    if (!usage.is_null() && !usage.is_boolean())
      return invalid("stream_options.include_usage", "must be true or false");
    r_.include_usage = usage == true;
    return {};
  }

  // Completions have `logprobs` as a number of tokens, chats a flag and a number beside it.
  checked read_log_probabilities() {
    if (!r_.chat) return integer("logprobs", 0, max_logprobs, r_.top_logprobs);
    bool wanted = false;
    if (auto ok = flag("logprobs", wanted); !ok) return ok;
    if (find("top_logprobs") && !wanted)
      return invalid("top_logprobs", "is only allowed with 'logprobs'");
    if (wanted) r_.top_logprobs = 0;
    return integer("top_logprobs", 0, max_top_logprobs, r_.top_logprobs);
  }

  checked read_extensions() {
    constexpr double longest_ms = 3'600'000;
    double ttft_ms = 0;
    auto ok = flag("return_token_ids", r_.token_numbers);
    if (ok) ok = flag("ignore_eos", r_.ignores_end);
    if (ok) ok = number("ttft_ms", 0, longest_ms, ttft_ms);
    r_.ttft_s = ttft_ms / 1e3;
    const auto* v = find("priority");
    if (!ok || !v) return ok;
    if (!v->is_number_integer() || v->get<std::int64_t>() < -1000 || v->get<std::int64_t>() > 1000)
      return invalid("priority", "must be an integer between -1000 and 1000");
    r_.priority = v->get<std::int32_t>();
    return {};
  }

  // best_of is accepted where it asks for nothing: as many candidates as choices.
  checked check_together() {
    if (!r_.chat)
      if (auto ok = flag("echo", r_.echo); !ok) return ok;
    std::optional<std::uint32_t> best_of;
    if (auto ok = integer("best_of", 1, max_choices, best_of); !ok) return ok;
    if (best_of && *best_of != r_.n)
      return invalid(
          "best_of",
          fmt::format("is not supported: found {}, expected {}, the value of 'n'", *best_of, r_.n));
    if (!r_.chat && r_.n * r_.prompts.size() > max_choices)
      return invalid("n", fmt::format("times the prompts is more than {} choices", max_choices));
    return {};
  }

  const json& d_;
  request r_;
};

}  // namespace

parsed<request> parse(std::string_view body, bool chat) {
  json d;
  if (auto ok = read(body, d); !ok) return tl::unexpected{ok.error()};
  return reader{d, chat}.run();
}

}  // namespace troupe::web::openai
