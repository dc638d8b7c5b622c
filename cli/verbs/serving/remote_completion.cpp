#include "cli/verbs/serving/remote_completion.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "cli/verbs/serving/event_stream.hpp"
#include "cli/verbs/serving/server_error.hpp"
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

tl::unexpected<reason> refused_by(const std::string& url, const web::client_answer& a) {
  const auto sentence = sentence_of_error(a.body);
  return refuse(
      a.status < 500 ? reason::kind::refused : reason::kind::unavailable,
      fmt::format("{} answers {}{}{}", url, a.status, sentence.empty() ? "" : ": ", sentence));
}

/// Collects an answer of one choice: a stream's events, or a whole document.
class answer_reader {
 public:
  answer_reader(bool chat, const std::function<void(std::string_view)>& show)
      : chat_{chat}, show_{show} {}

  /// False: no more is needed.
  bool take(std::string_view bytes) {
    if (!any_event_) raw_ += bytes;
    return events_.take(bytes);
  }
  // Servers that cannot stream answer with a document, and some end a stream without [DONE].
  void end() {
    events_.end();
    if (!any_event_ && error_.empty() && !is_whole()) take_document(raw_);
  }

  bool has_choice() const { return done_ || has_choice_; }
  bool is_whole() const { return done_ || finish_.is_string(); }
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
  bool take_event(const event_stream::event& e) {
    any_event_ = true;
    raw_.clear();
    if (e.data == "[DONE]") {
      done_ = true;
      return false;
    }
    if (e.kind == "error") return fail(e.data);
    return take_document(e.data);
  }

  bool take_document(const std::string& text) {
    const auto d = json::parse(text, nullptr, false);
    if (!d.is_object()) return true;
    // A stream's status is 200 before its first token: later errors are events.
    const auto given = [&](const char* key) { return d.contains(key) && !d[key].is_null(); };
    if (given("error") || d.value("object", json{}) == "error" ||
        (given("detail") && !given("choices")))
      return fail(text);
    if (d.contains("usage") && d["usage"].is_object()) usage_ = d["usage"];
    if (d.contains("choices") && d["choices"].is_array())
      for (const auto& c : d["choices"])
        if (c.is_object()) take_choice(c);
    return true;
  }

  bool fail(const std::string& text) {
    error_ = sentence_of_error(text);
    if (error_.empty()) error_ = "the server reports an error without a text";
    return false;
  }

  void take_choice(const json& c) {
    has_choice_ = true;
    const auto* part = &c;
    // A whole answer has a message instead.
    for (const char* key : {"delta", "message"})
      if (chat_ && c.contains(key)) part = &c[key];
    const auto& has_text = *part;
    const auto key = chat_ ? "content" : "text";
    if (has_text.is_object() && has_text.contains(key) && has_text[key].is_string())
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
    if (fresh.empty()) return;
    if (first_s_ == 0) first_s_ = since_.s();
    show_(fresh);
  }

  const bool chat_;
  const std::function<void(std::string_view)>& show_;
  const runtime::stopwatch since_;
  event_stream events_{[this](const event_stream::event& e) { return take_event(e); }};
  std::string raw_, text_, error_;
  json tokens_ = json::array(), log_probabilities_ = json::array();
  json usage_ = json::object(), finish_, where_;
  double first_s_ = 0;
  bool done_ = false, any_event_ = false, has_choice_ = false;
};

/// Only what was asked for: servers refuse keys that they do not know. Of one of ours the answer is
/// that of `infer --alone`, with the tokens and their probabilities.
json body_of(const remote_prompt& p, const std::string& model, bool ours) {
  json d{{"model", model}, {"stream", true}};
  const auto set = [&](const char* key, bool given, const auto& value) {
    if (given || ours) d[key] = value;
  };
  const auto& how = p.what.how;
  set("max_tokens", p.given.max_tokens, p.what.max_tokens);
  set("temperature", p.given.temperature, how.temperature);
  set("top_p", p.given.top_p, how.top_p);
  set("top_k", p.given.top_k, how.top_k);
  set("seed", p.given.seed, how.seed);
  if (!p.stops.empty()) d["stop"] = p.stops;
  if (ours) {
    d["stream_options"] = {{"include_usage", true}};
    d["return_token_ids"] = true;
    // A completion has 0: the chosen token's own probability, without alternatives.
    d["logprobs"] = p.chat ? json(true) : json(0);
  }
  if (p.chat)
    d["messages"] = json::array({{{"role", "user"}, {"content", p.text}}});
  else if (p.tokens.empty())
    d["prompt"] = p.text;
  else
    d["prompt"] = p.tokens;
  return d;
}

expected<json> models_of(const web::server_place& at, const remote_prompt& p,
                         double patience_s = 600) {
  const auto a = web::ask(at, {"GET", "/v1/models", {}, p.key, patience_s});
  if (!a) return refuse(a.error());
  if (a->status != 200) return refused_by(p.url, *a);
  const auto d = json::parse(a->body, nullptr, false);
  if (!d.is_object() || !d.contains("data") || !d["data"].is_array()) return unreadable(p.url);
  return d["data"];
}

// A `serve` job that was just submitted is given some seconds to load: a script may submit it and
// ask in the next line.
constexpr double load_s = 10, every_s = 0.1;

/// The server's model, where it has one alone.
expected<json> only_model(const web::server_place& at, const remote_prompt& p) {
  expected<json> models = json::array();
  runtime::wait_until([&] { return !(models = models_of(at, p)) || !models->empty(); }, load_s,
                      every_s);
  if (!models) return refuse(models.error());
  if (models->empty())
    return refuse(reason::kind::unavailable, fmt::format("{} serves no model", p.url));
  if (models->size() != 1 || !(*models)[0].is_object())
    return refuse(reason::kind::invalid,
                  fmt::format("{} has {} models: give --model NAME", p.url, models->size()));
  return (*models)[0];
}

/// The model by its name, if the server has a list of its models.
json named_model(const web::server_place& at, const remote_prompt& p) {
  constexpr double patience_s = 10;  // some servers have no such list
  if (const auto models = models_of(at, p, patience_s))
    for (const auto& m : *models)
      if (m.is_object() && m.value("id", json{}) == p.model) return m;
  return {{"id", p.model}};
}

}  // namespace

expected<json> complete_remotely(const remote_prompt& p,
                                 const std::function<void(std::string_view)>& show) {
  auto at = web::parse_url(p.url);
  if (!at) return refuse(at.error());
  // Both forms are in use: OpenAI's clients want the base address with /v1.
  if (at->prefix.ends_with("/v1")) at->prefix.resize(at->prefix.size() - 3);
  const auto found = p.model.empty() ? only_model(*at, p) : named_model(*at, p);
  if (!found) return refuse(found.error());
  const auto model = found->value("id", json{});
  if (!model.is_string()) return unreadable(p.url);
  const bool ours = found->value("owned_by", json{}) == "troupe";
  std::optional<answer_reader> reader;
  const web::client_request asked{"POST", p.chat ? "/v1/chat/completions" : "/v1/completions",
                                  body_of(p, model.get<std::string>(), ours)
                                      .dump(-1, ' ', false, json::error_handler_t::replace),
                                  p.key};
  const auto ask = [&] {
    reader.emplace(p.chat, show);
    return web::ask(*at, asked, [&](std::string_view bytes) { return reader->take(bytes); });
  };
  auto a = ask();
  const auto is_over = [&] { return !a || a->status != 503 || p.model.empty(); };
  if (!is_over()) runtime::wait_until([&] { return a = ask(), is_over(); }, load_s, every_s);
  if (!a) return refuse(a.error());
  if (a->status != 200) return refused_by(p.url, *a);
  reader->end();
  if (!reader->error().empty())
    return refuse(reason::kind::unavailable, fmt::format("{}: {}", p.url, reader->error()));
  if (!reader->has_choice()) return unreadable(p.url);
  // Without [DONE] and a reason the connection has ended early, so the text may be incomplete.
  if (!reader->is_whole())
    return refuse(
        reason::kind::unavailable,
        fmt::format("{}: its answer ends without a finish_reason and without [DONE]", p.url));
  return reader->document();
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
