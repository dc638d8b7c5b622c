#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "messages/base/whole_number.hpp"
#include "text/json/json_file.hpp"
#include "web/openai/request_parts.hpp"

namespace troupe::web::openai {

namespace {

using nlohmann::json;

constexpr std::uint32_t max_top_logprobs = 20, max_logprobs = 5;
constexpr auto any_number = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t max_biases = 1024, max_stop_tokens = 128;
constexpr std::size_t max_stop_bytes = 1024, max_stops_bytes = 64 << 10;

tl::unexpected<problem> unreadable(std::string sentence) {
  return tl::unexpected<problem>{{400, std::move(sentence)}};
}

// Depth and values are counted before the body is parsed: a small one can nest deeply enough to
// exhaust the stack of a function that walks over its values, and a value of two bytes takes
// sixteen.
parsed<void> read(std::string_view body, json& to) {
  constexpr std::size_t max_values = 2'000'000;
  const auto size = gpu::extent_of(body);
  if (size.depth > deepest_json)
    return unreadable(fmt::format("the body is nested deeper than {} levels", deepest_json));
  if (size.values > max_values)
    return unreadable(fmt::format("the body has more than {} values", max_values));
  to = json::parse(body.begin(), body.end(), nullptr, false);
  if (to.is_discarded()) return unreadable("the body is not JSON in UTF-8");
  if (!to.is_object()) return unreadable("the body is not a JSON object");
  return {};
}

/// Reads one body into a request; keeps the first problem.
class reader {
 public:
  reader(const json& d, std::string_view body, bool chat) : d_{d}, body_{body} { r_.chat = chat; }

  tokenize_request with_texts(request r, bool& ok) const {
    bool texts = false;
    ok = flag("return_token_strs", texts).has_value();
    return {std::move(r), texts};
  }
  static bool is_list_of_tokens(const json& v) { return v == json::array() || is_tokens(v); }

  parsed<request> run() {
    for (auto step : {&reader::refuse_unsupported, &reader::read_model, &reader::read_input,
                      &reader::read_lengths, &reader::read_sampling, &reader::read_stops,
                      &reader::read_stream, &reader::read_log_probabilities,
                      &reader::read_extensions, &reader::read_template, &reader::check_together})
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
    if (key == "web_search_options") return false;  // {} asks for a search with all defaults
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
    return refuse_known_extensions(d_);
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

  checked read_input() {
    if (!r_.chat) return read_prompts();
    const auto* v = find("messages");
    if (!v) return invalid("messages", "is missing");
    auto all = read_messages(*v, body_);
    if (!all) return tl::unexpected{all.error()};
    r_.messages = std::move(*all);
    return {};
  }

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

  // max_completion_tokens is the newer name of max_tokens, and takes precedence.
  checked read_lengths() {
    std::optional<std::uint32_t> n;
    // A completion may ask for its prompt alone.
    auto ok = integer("max_tokens", r_.chat ? 1 : 0, any_number, r_.max_tokens);
    if (ok) ok = integer("max_completion_tokens", 1, any_number, r_.max_tokens);
    if (ok) ok = integer("n", 1, max_choices, n);
    r_.n = n.value_or(1);
    return ok;
  }

  // Seeds are any integers; a negative one is used by its bits.
  checked read_sampling() {
    auto ok = number("temperature", 0, 2, r_.how.temperature);
    if (ok) ok = number("top_p", 0, 1, r_.how.top_p);
    if (ok) ok = read_top_k();
    if (ok) ok = number("min_p", 0, 1, r_.how.min_p);
    // The bounds keep a logit finite.
    if (ok) ok = number("repetition_penalty", 1e-6, 1e6, r_.how.repetition_penalty);
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

  /// -1: all, as in vLLM.
  checked read_top_k() {
    if (const auto* v = find("top_k"); v && *v == -1 && v->is_number_integer()) {
      r_.how.top_k = 0;
      return {};
    }
    return integer("top_k", 0, std::numeric_limits<std::uint32_t>::max(), r_.how.top_k);
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

  // Any number: the time to search for them does not grow with it, but each choice keeps a copy.
  checked read_stops() {
    if (auto ok = read_stop_tokens(); !ok) return ok;
    const auto* v = find("stop");
    if (!v) return {};
    const auto good = [](const json& one) {
      return one.is_string() && one != "" &&
             one.get_ref<const std::string&>().size() <= max_stop_bytes;
    };
    if (good(*v))
      r_.stops = {v->get<std::string>()};
    else if (v->is_array() && std::all_of(v->begin(), v->end(), good))
      r_.stops = v->get<std::vector<std::string>>();
    else
      return invalid("stop", fmt::format("must be a string, or a list of strings, none empty or "
                                         "longer than {} bytes",
                                         max_stop_bytes));
    std::size_t bytes = 0;
    for (const auto& one : r_.stops) bytes += one.size();
    if (bytes <= max_stops_bytes) return {};
    return invalid("stop", fmt::format("must have at most {} bytes in all", max_stops_bytes));
  }
  checked read_stop_tokens() {
    const auto* v = find("stop_token_ids");
    if (!v || *v == json::array()) return {};
    if (!is_tokens(*v) || v->size() > max_stop_tokens)
      return invalid("stop_token_ids",
                     fmt::format("must be a list of at most {} token numbers", max_stop_tokens));
    r_.stop_tokens = v->get<tokens>();
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
    if (const auto each = v->value("continuous_usage_stats", json{});
        each != false && !each.is_null())
      return invalid("stream_options.continuous_usage_stats", "is not supported");
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

  // The keys that decide how a prompt is made of a text, or of messages.
  checked read_template() {
    bool special = true;
    if (auto ok = flag("add_special_tokens", special); !ok) return ok;
    if (find("add_special_tokens")) r_.adds_special = special;
    if (!r_.chat) {
      for (const char* key : {"chat_template_kwargs", "continue_final_message"})
        if (const auto* v = find(key); v && !v->empty() && *v != false)
          return invalid(key, "is of chats");
      return {};
    }
    auto ok = flag("continue_final_message", r_.continues);
    r_.asks_for_answer = !r_.continues;
    if (ok) ok = flag("add_generation_prompt", r_.asks_for_answer);
    if (!ok) return ok;
    if (r_.continues && r_.asks_for_answer)
      return invalid("continue_final_message", "and 'add_generation_prompt' exclude each other");
    return read_variables();
  }
  checked read_variables() {
    const auto* v = find("chat_template_kwargs");
    if (v && !v->is_object()) return invalid("chat_template_kwargs", "must be an object");
    for (const char* key : {"messages", "tools", "documents", "add_generation_prompt",
                            "continue_final_message", "chat_template"})
      if (v && v->contains(key))
        return invalid("chat_template_kwargs",
                       fmt::format("has '{}', which is not a template's own name", key));
    if (v && !v->empty()) {
      auto text = ordered_object(body_, "chat_template_kwargs");
      if (!text) return tl::unexpected{text.error()};
      r_.template_names = std::move(*text);
    }
    // Templates that know it write it.
    const auto* effort = find("reasoning_effort");
    if (!effort) return {};
    if (!effort->is_string()) return invalid("reasoning_effort", "must be a string");
    auto all = nlohmann::ordered_json::parse(r_.template_names.empty() ? "{}" : r_.template_names);
    if (all.contains("reasoning_effort")) return {};
    all["reasoning_effort"] = effort->get<std::string>();
    r_.template_names = all.dump();
    return {};
  }

  // best_of is accepted where it asks for nothing: as many candidates as choices.
  checked check_together() {
    if (auto ok = flag("echo", r_.echo); !ok) return ok;
    if (r_.chat && r_.echo) return invalid("echo", "is of completions");
    std::optional<std::uint32_t> min_tokens;
    if (auto ok = integer("min_tokens", 0, r_.max_tokens.value_or(any_number), min_tokens); !ok)
      return ok;
    r_.min_tokens = min_tokens.value_or(0);
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
  const std::string_view body_;
  request r_;
};

}  // namespace

// As vLLM has it: the model may be left out, where there is one.
parsed<tokenize_request> parse_tokenize(std::string_view body) {
  json d;
  if (auto ok = read(body, d); !ok) return tl::unexpected{ok.error()};
  if (!d.contains("model")) d["model"] = "";
  const reader one{d, body, d.contains("messages")};
  auto asked = reader{one}.run();
  if (!asked) return tl::unexpected{asked.error()};
  if (!asked->chat &&
      (asked->prompts.size() != 1 || !std::holds_alternative<std::string>(asked->prompts[0])))
    return invalid("prompt", "must be a string");
  bool ok = true;
  auto made = one.with_texts(std::move(*asked), ok);
  if (!ok) return invalid("return_token_strs", "must be true or false");
  return made;
}

parsed<detokenize_request> parse_detokenize(std::string_view body) {
  json d;
  if (auto ok = read(body, d); !ok) return tl::unexpected{ok.error()};
  const auto model = d.value("model", json(""));
  if (!model.is_string()) return invalid("model", "must be a string");
  if (!d.contains("tokens") || !reader::is_list_of_tokens(d["tokens"]))
    return invalid("tokens", "must be a list of token numbers");
  return detokenize_request{model.get<std::string>(), d["tokens"].get<tokens>()};
}

parsed<request> parse(std::string_view body, bool chat) {
  json d;
  if (auto ok = read(body, d); !ok) return tl::unexpected{ok.error()};
  return reader{d, body, chat}.run();
}

}  // namespace troupe::web::openai
