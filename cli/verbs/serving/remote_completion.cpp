#include "cli/verbs/serving/remote_completion.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"
#include "web/http/http_client.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

tl::unexpected<reason> unreadable(const std::string& url) {
  return refuse(reason::kind::malformed,
                fmt::format("{}: its answer is not one of OpenAI's API", url));
}

/// The sentence of an error document; empty: it has none.
// Any server with OpenAI's API may answer, so nothing of its documents is taken for granted.
std::string sentence_in(const std::string& body) {
  const auto d = json::parse(body, nullptr, false);
  if (!d.is_object() || !d.contains("error") || !d["error"].is_object()) return {};
  const auto message = d["error"].value("message", json{});
  return message.is_string() ? message.get<std::string>() : std::string{};
}

tl::unexpected<reason> refused_by(const std::string& url, const web::client_answer& a) {
  const auto sentence = sentence_in(a.body);
  return refuse(
      a.status < 500 ? reason::kind::refused : reason::kind::unavailable,
      fmt::format("{} answers {}{}{}", url, a.status, sentence.empty() ? "" : ": ", sentence));
}

/// Collects the events of a stream of one choice.
class event_reader {
 public:
  event_reader(bool chat, const std::function<void(std::string_view)>& show)
      : chat_{chat}, show_{show} {}

  /// False: no more is needed.
  // Pieces of the connection end anywhere, also inside a line or a character.
  bool take(std::string_view bytes) {
    rest_ += bytes;
    for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n')) {
      const auto line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      if (line.starts_with("data: ") && !take_event(line.substr(6))) return false;
    }
    return true;
  }

  bool is_whole() const { return whole_; }
  const std::string& error() const { return error_; }

  json document() const {
    const auto counted = [&](const char* key) { return usage_.value(key, json{}); };
    return {{"text", text_},
            {"tokens", tokens_},
            {"logprobs", log_probabilities_},
            {"prompt_tokens", counted("prompt_tokens")},
            {"completion_tokens", counted("completion_tokens")},
            {"finish_reason", finish_},
            {"ttft_ms", 1e3 * first_s_},
            {"where", where_}};
  }

 private:
  bool take_event(const std::string& text) {
    if (text == "[DONE]") {
      whole_ = true;
      return false;
    }
    const auto d = json::parse(text, nullptr, false);
    if (!d.is_object()) return true;
    // A stream's status is 200 before its first token: later errors are events.
    if (d.contains("error")) {
      error_ = sentence_in(text);
      return false;
    }
    if (d.contains("usage") && d["usage"].is_object()) usage_ = d["usage"];
    if (d.contains("choices") && d["choices"].is_array())
      for (const auto& c : d["choices"])
        if (c.is_object()) take_choice(c);
    return true;
  }

  void take_choice(const json& c) {
    const auto& has_text = chat_ && c.contains("delta") ? c["delta"] : c;
    const auto key = chat_ ? "content" : "text";
    if (has_text.contains(key) && has_text[key].is_string())
      add_text(has_text[key].get<std::string>());
    if (c.contains("token_ids") && c["token_ids"].is_array())
      for (const auto& t : c["token_ids"]) tokens_.push_back(t);
    if (c.contains("logprobs") && c["logprobs"].is_object()) take_log_probabilities(c["logprobs"]);
    if (c.contains("finish_reason") && c["finish_reason"].is_string()) finish_ = c["finish_reason"];
    if (c.contains("where")) where_ = c["where"];
  }

  void take_log_probabilities(const json& l) {
    const auto key = chat_ ? "content" : "token_logprobs";
    if (!l.contains(key) || !l[key].is_array()) return;
    // By the log probabilities, which come with the token: its text may be held back until a
    // character is whole.
    if (!l[key].empty() && log_probabilities_.empty()) first_s_ = since_.s();
    for (const auto& t : l[key])
      log_probabilities_.push_back(chat_ && t.is_object() ? t.value("logprob", json{}) : t);
  }

  void add_text(const std::string& fresh) {
    text_ += fresh;
    if (!fresh.empty()) show_(fresh);
  }

  const bool chat_;
  const std::function<void(std::string_view)>& show_;
  const runtime::stopwatch since_;
  std::string rest_, text_, error_;
  json tokens_ = json::array(), log_probabilities_ = json::array();
  json usage_ = json::object(), finish_, where_;
  double first_s_ = 0;
  bool whole_ = false;
};

json body_of(const remote_prompt& p, const std::string& model) {
  json d{{"model", model},
         {"max_tokens", p.what.max_tokens},
         {"temperature", p.what.how.temperature},
         {"top_p", p.what.how.top_p},
         {"top_k", p.what.how.top_k},
         {"seed", p.what.how.seed},
         {"stream", true},
         {"stream_options", {{"include_usage", true}}},
         // Extension of this server; others ignore it, and the list stays empty.
         {"return_token_ids", true}};
  if (!p.stops.empty()) d["stop"] = p.stops;
  if (p.chat) {
    d["messages"] = json::array({{{"role", "user"}, {"content", p.text}}});
    d["logprobs"] = true;
    return d;
  }
  // 0: the chosen token's own probability, without alternatives.
  d["logprobs"] = 0;
  if (p.tokens.empty())
    d["prompt"] = p.text;
  else
    d["prompt"] = p.tokens;
  return d;
}

expected<json> models_of(const web::server_place& at, const remote_prompt& p) {
  const auto a = web::ask(at, {"GET", "/v1/models", {}, p.key});
  if (!a) return refuse(a.error());
  if (a->status != 200) return refused_by(p.url, *a);
  const auto d = json::parse(a->body, nullptr, false);
  if (!d.is_object() || !d.contains("data") || !d["data"].is_array()) return unreadable(p.url);
  return d["data"];
}

/// The name of the only model. A `serve` job that was just submitted is given some seconds to load.
expected<std::string> only_model(const web::server_place& at, const remote_prompt& p) {
  // A script may submit the job and ask in the next line.
  constexpr double load_s = 10, every_s = 0.1;
  expected<json> models = json::array();
  runtime::wait_until([&] { return !(models = models_of(at, p)) || !models->empty(); }, load_s,
                      every_s);
  if (!models) return refuse(models.error());
  if (models->empty())
    return refuse(reason::kind::unavailable, fmt::format("{} serves no model", p.url));
  if (models->size() != 1 || !(*models)[0].is_object())
    return refuse(reason::kind::invalid,
                  fmt::format("{} has {} models: give --model NAME", p.url, models->size()));
  return (*models)[0].value("id", std::string{});
}

}  // namespace

expected<json> complete_remotely(const remote_prompt& p,
                                 const std::function<void(std::string_view)>& show) {
  auto at = web::parse_url(p.url);
  if (!at) return refuse(at.error());
  // Both forms are in use: OpenAI's clients want the base address with /v1.
  if (at->prefix.ends_with("/v1")) at->prefix.resize(at->prefix.size() - 3);
  auto model = p.model;
  if (model.empty()) {
    auto found = only_model(*at, p);
    if (!found) return refuse(found.error());
    model = std::move(*found);
  }
  event_reader events{p.chat, show};
  const auto a =
      web::ask(*at,
               {"POST", p.chat ? "/v1/chat/completions" : "/v1/completions",
                body_of(p, model).dump(-1, ' ', false, json::error_handler_t::replace), p.key},
               [&](std::string_view bytes) { return events.take(bytes); });
  if (!a) return refuse(a.error());
  if (a->status != 200) return refused_by(p.url, *a);
  if (!events.error().empty()) return refuse(reason::kind::unavailable, events.error());
  // Without [DONE] the connection has ended early, so the text may be incomplete.
  if (!events.is_whole()) return unreadable(p.url);
  return events.document();
}

expected<std::string> url_of_front(const std::string& state) {
  std::error_code none;
  // Sorted: the same front is asked every time.
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator{state, none})
    if (const auto file = entry.path() / "url"; fs::exists(file, none)) files.insert(file);
  for (const auto& file : files) {
    std::ifstream in{file};
    std::string url;
    if (std::getline(in, url) && !url.empty()) return url;
  }
  return refuse(reason::kind::invalid,
                fmt::format("{}: no front runs here: give --url, or --alone and --model", state));
}

}  // namespace troupe::cli
