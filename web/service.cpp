#include "web/service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace troupe::web {

namespace {

using openai::problem;

constexpr std::uint32_t default_completion_tokens = 16;
constexpr std::string_view models_path = "/v1/models/";

tl::unexpected<problem> no(problem p) {
  return tl::unexpected<problem>{std::move(p)};
}

tl::unexpected<problem> wrong(std::string sentence, std::string param, std::string code = {}) {
  return no({400, std::move(sentence), "invalid_request_error", std::move(param), std::move(code)});
}

http_answer answer_of(const problem& p, http_fields fields = {}) {
  return {p.status, "application/json", openai::to_json(p), std::move(fields)};
}

/// Nothing, or JSON with or without parameters. Browsers send other types to other origins without
/// asking.
bool is_json(const std::string& content_type) {
  auto type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type.empty() || type == "application/json";
}

bool generates(const std::string& path) {
  return path == "/v1/completions" || path == "/v1/chat/completions";
}

bool is_known(const std::string& path) {
  return generates(path) || path == "/health" || path == "/metrics" || path == "/v1/models" ||
         path.starts_with(models_path);
}

}  // namespace

service::service(served_model model, std::unique_ptr<gpu::inference_device> device,
                 const batch_limits& limits, std::optional<api_keys> keys,
                 const runtime::clock& clock, std::uint64_t seed)
    : model_{std::move(model)},
      keys_{std::move(keys)},
      clock_{clock},
      started_{static_cast<std::int64_t>(clock.wall_s())},
      random_{seed},
      metrics_{[this] { return loop_.state(); }},
      loop_{std::move(device), model_.words, limits} {}

service::~service() = default;

void service::handle(const http_request& r, std::shared_ptr<http_reply> reply) {
  const auto fail = [&](int status, std::string sentence, http_fields fields = {}) {
    reply->whole(answer_of({status, std::move(sentence)}, std::move(fields)));
  };
  if (!is_known(r.path)) return fail(404, fmt::format("there is nothing at '{}'", r.path));
  const bool posts = generates(r.path);
  const http_fields allow{{"Allow", posts ? "POST, OPTIONS" : "GET, HEAD, OPTIONS"}};
  if (r.method == "OPTIONS") return reply->whole({204, {}, {}, allow});
  if (posts ? r.method != "POST" : r.method != "GET" && r.method != "HEAD")
    return fail(405, fmt::format("'{}' does not take {}", r.path, r.method), allow);
  if (keys_ && r.path != "/health" && !keys_->allows(r.authorization))
    return reply->whole(answer_of({401,
                                   "give an API key: 'Authorization: Bearer KEY'",
                                   "invalid_request_error",
                                   {},
                                   "invalid_api_key"},
                                  {{"WWW-Authenticate", "Bearer"}}));
  if (!posts) return reply->whole(get(r.path));
  generate(r, r.path == "/v1/chat/completions", reply);
}

http_answer service::get(const std::string& path) const {
  if (path == "/health") return {200, "application/json", R"({"status":"ok"})", {}};
  if (path == "/metrics") return {200, "text/plain; version=0.0.4", metrics_.text(), {}};
  if (path == "/v1/models")
    return {200, "application/json", openai::models_json(model_.name, started_), {}};
  const auto name = path.substr(models_path.size());
  if (name == model_.name)
    return {200, "application/json", openai::model_json(model_.name, started_), {}};
  return answer_of({404, fmt::format("there is no model '{}'; there is '{}'", name, model_.name),
                    "invalid_request_error", "model", "model_not_found"});
}

void service::generate(const http_request& r, bool chat, const std::shared_ptr<http_reply>& reply) {
  auto ok = is_json(r.content_type)
                ? start(r, chat, reply)
                : no({415, "the body must be JSON: 'Content-Type: application/json'"});
  if (ok) return;
  http_fields fields;
  if (!r.request_id.empty()) fields.emplace_back("X-Request-Id", r.request_id);
  const bool later = ok.error().status == 429;
  if (later) fields.emplace_back("Retry-After", "1");
  metrics_.count(later ? outcome::declined : outcome::invalid);
  reply->whole(answer_of(ok.error(), std::move(fields)));
}

openai::parsed<void> service::start(const http_request& r, bool chat,
                                    const std::shared_ptr<http_reply>& reply) {
  const auto asked = openai::parse(r.body, chat);
  if (!asked) return no(asked.error());
  if (asked->model != model_.name)
    return no({404, fmt::format("there is no model '{}'; there is '{}'", asked->model, model_.name),
               "invalid_request_error", "model", "model_not_found"});
  const auto prompts = prompts_of(*asked);
  if (!prompts) return no(prompts.error());
  const auto max_tokens = max_tokens_of(*asked, *prompts);
  if (!max_tokens) return no(max_tokens.error());
  answer::question q;
  q.head = {
      fmt::format("{}-{:016x}{:016x}", chat ? "chatcmpl" : "cmpl", random_.next(), random_.next()),
      model_.name, static_cast<std::int64_t>(clock_.wall_s()), chat};
  q.stream = asked->stream;
  q.include_usage = asked->include_usage;
  q.log_probabilities = asked->top_logprobs.has_value();
  if (!r.request_id.empty()) q.fields.emplace_back("X-Request-Id", r.request_id);
  for (std::size_t i = 0; i < prompts->size(); ++i) {
    q.prompt_tokens += (*prompts)[i].size();
    const auto prefix = asked->echo ? text_of(*asked, *prompts, i) : std::string{};
    q.prefixes.insert(q.prefixes.end(), asked->n, prefix);
  }
  const auto prompt_tokens = q.prompt_tokens;
  const auto to = std::make_shared<answer>(std::move(q), model_.words, reply, metrics_, clock_);
  auto ids = submit(*asked, *prompts, *max_tokens, to);
  if (!ids) return no(ids.error());
  metrics_.prompt_tokens(prompt_tokens);
  reply->when_gone([this, to, all = std::move(*ids)] {
    loop_.cancel(all);
    to->gone();
  });
  return {};
}

openai::parsed<std::vector<std::uint32_t>> service::tokens_of(const openai::prompt& p) const {
  auto tokens =
      std::holds_alternative<openai::tokens>(p) ? std::get<openai::tokens>(p) : openai::tokens{};
  if (const auto* text = std::get_if<std::string>(&p)) {
    if (!model_.words)
      return wrong("the model has no tokenizer: give 'prompt' as token numbers", "prompt");
    tokens = model_.words->encode_prompt(*text);
  }
  if (tokens.empty()) return wrong("'prompt' needs at least one token", "prompt");
  for (const auto t : tokens)
    if (t >= model_.model.vocabulary)
      return wrong(fmt::format("'prompt': token {} is beyond the model's vocabulary of {}", t,
                               model_.model.vocabulary),
                   "prompt");
  return tokens;
}

openai::parsed<service::prompt_list> service::prompts_of(const openai::request& r) const {
  if (r.chat && !model_.words)
    return wrong("the model has no tokenizer, which a chat needs", "messages");
  if (r.chat) return prompt_list{gpu::chat_prompt(*model_.words, model_.format, r.messages)};
  prompt_list all;
  for (const auto& p : r.prompts) {
    auto tokens = tokens_of(p);
    if (!tokens) return no(tokens.error());
    all.push_back(std::move(*tokens));
  }
  return all;
}

openai::parsed<std::uint32_t> service::max_tokens_of(const openai::request& r,
                                                     const prompt_list& prompts) const {
  std::size_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, p.size());
  const auto pages = loop_.state();
  const std::size_t most =
      std::min<std::size_t>(model_.model.positions,
                            std::size_t{pages.pages_used + pages.pages_free} * gpu::tile_positions);
  const std::size_t rest = most > longest ? most - longest : 1;
  const auto n =
      r.max_tokens.value_or(r.chat ? static_cast<std::uint32_t>(rest) : default_completion_tokens);
  if (longest + n > most)
    return wrong(fmt::format("the prompt's {} tokens and {} new ones are more than the {} that "
                             "the model can hold here",
                             longest, n, most),
                 r.chat ? "messages" : "prompt", "context_length_exceeded");
  return n;
}

std::string service::text_of(const openai::request& r, const prompt_list& prompts,
                             std::size_t i) const {
  if (const auto* text = std::get_if<std::string>(&r.prompts[i])) return *text;
  return model_.words ? model_.words->decode(prompts[i]) : std::string{};
}

openai::parsed<std::vector<std::uint64_t>> service::submit(const openai::request& asked,
                                                           const prompt_list& prompts,
                                                           std::uint32_t max_tokens,
                                                           const std::shared_ptr<answer>& to) {
  const auto seed = asked.seed.value_or(random_.next());
  std::vector<batch_loop::submission> all;
  for (const auto& prompt : prompts)
    for (std::uint32_t i = 0; i < asked.n; ++i) {
      sequence_request s{prompt,
                         {max_tokens, model_.model.last_tokens, asked.stops},
                         asked.how,
                         asked.top_logprobs.value_or(0)};
      if (asked.chat)
        for (const auto t : gpu::chat_ends(*model_.words, model_.format))
          s.limits.last_tokens.push_back(t);
      s.how.seed = seed + i;
      const auto index = static_cast<std::uint32_t>(all.size());
      all.push_back(
          {std::move(s), [to, index](const sequence_step& step) { to->step(index, step); }});
    }
  auto ids = loop_.submit(std::move(all));
  if (ids) return std::move(*ids);
  if (ids.error().code == reason::kind::insufficient)
    return no({429, ids.error().text, "rate_limit_error", {}, "rate_limit_exceeded"});
  return wrong(ids.error().text, {});
}

}  // namespace troupe::web
