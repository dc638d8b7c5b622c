#include "web/service.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "web/browser_requests.hpp"

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

/// JSON with or without parameters. Browsers ask before they send that to another origin, but send
/// other types, or none, without asking: only a client that is no browser may leave it out.
bool is_json(const http_request& r) {
  auto type = r.content_type.substr(0, r.content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type.empty() ? !is_cross_origin(r) : type == "application/json";
}

bool generates(const std::string& path) {
  return path == "/v1/completions" || path == "/v1/chat/completions";
}

bool is_known(const std::string& path) {
  return generates(path) || path == "/" || path == "/health" || path == "/metrics" ||
         path == "/v1/models" || path.starts_with(models_path);
}

using prompt_list = std::vector<std::vector<std::uint32_t>>;

openai::parsed<std::vector<std::uint32_t>> tokens_of(const openai::prompt& p,
                                                     const served_model& m) {
  auto tokens =
      std::holds_alternative<openai::tokens>(p) ? std::get<openai::tokens>(p) : openai::tokens{};
  if (const auto* text = std::get_if<std::string>(&p)) {
    if (!m.words)
      return wrong("the model has no tokenizer: give 'prompt' as token numbers", "prompt");
    tokens = m.words->encode_prompt(*text);
  }
  if (tokens.empty()) return wrong("'prompt' needs at least one token", "prompt");
  for (const auto t : tokens)
    if (t >= m.model.vocabulary)
      return wrong(fmt::format("'prompt': token {} is beyond the model's vocabulary of {}", t,
                               m.model.vocabulary),
                   "prompt");
  return tokens;
}

openai::parsed<prompt_list> prompts_of(const openai::request& r, const served_model& m) {
  for (const auto& b : r.how.bias)
    if (b.token >= m.model.vocabulary)
      return wrong(fmt::format("'logit_bias': token {} is beyond the model's vocabulary of {}",
                               b.token, m.model.vocabulary),
                   "logit_bias");
  if (r.chat && !m.words)
    return wrong("the model has no tokenizer, which a chat needs", "messages");
  if (r.chat) {
    auto prompt = m.chats.prompt(*m.words, r.messages);
    if (!prompt) return wrong(prompt.error().text, "messages");
    if (prompt->empty()) return wrong("the model's template makes an empty prompt", "messages");
    return prompt_list{std::move(*prompt)};
  }
  prompt_list all;
  for (const auto& p : r.prompts) {
    auto tokens = tokens_of(p, m);
    if (!tokens) return no(tokens.error());
    all.push_back(std::move(*tokens));
  }
  return all;
}

/// Of each choice; `most`: positions of a prompt and its completion.
openai::parsed<std::uint32_t> max_tokens_of(const openai::request& r, const prompt_list& prompts,
                                            std::size_t most) {
  std::size_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, p.size());
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

std::string text_of(const openai::prompt& p, const served_model& m,
                    const std::vector<std::uint32_t>& tokens) {
  if (const auto* text = std::get_if<std::string>(&p)) return *text;
  return m.words ? m.words->decode(tokens) : std::string{};
}

}  // namespace

service::service(std::optional<api_keys> keys, const runtime::clock& clock, std::uint64_t seed)
    : clock_{clock},
      started_{static_cast<std::int64_t>(clock.wall_s())},
      random_{seed},
      metrics_{[this] { return state(); }},
      keys_{keys ? std::make_shared<const api_keys>(std::move(*keys)) : nullptr} {}

service::~service() = default;

void service::offer(served_model model, std::shared_ptr<generator> by) {
  const auto name = model.name;
  metrics_.add_model(name);
  auto fresh = std::make_shared<const offered>(offered{std::move(model), std::move(by)});
  const std::lock_guard hold{mutex_};
  offered_[name] = std::move(fresh);
}

void service::withdraw(const std::string& model) {
  {
    const std::lock_guard hold{mutex_};
    offered_.erase(model);
  }
  metrics_.remove_model(model);
}

void service::change_keys(api_keys keys) {
  const std::lock_guard hold{mutex_};
  keys_ = std::make_shared<const api_keys>(std::move(keys));
}

bool service::may_ask(const http_request& r) const {
  std::unique_lock hold{mutex_};
  const auto keys = keys_;
  hold.unlock();
  return !keys || r.path == "/health" || keys->allows(r.authorization);
}

bool service::has_keys() const {
  const std::lock_guard hold{mutex_};
  return keys_ != nullptr;
}

service::offer_ptr service::find(const std::string& model) const {
  const std::lock_guard hold{mutex_};
  const auto at = offered_.find(model);
  return at == offered_.end() ? nullptr : at->second;
}

std::vector<service::offer_ptr> service::all() const {
  const std::lock_guard hold{mutex_};
  std::vector<offer_ptr> result;
  for (const auto& [name, o] : offered_) result.push_back(o);
  return result;
}

void service::expect(std::function<bool(const std::string&)> model) {
  const std::lock_guard hold{mutex_};
  expected_ = std::move(model);
}

bool service::is_expected(const std::string& model) const {
  std::function<bool(const std::string&)> ask;
  {
    const std::lock_guard hold{mutex_};
    ask = expected_;
  }
  return ask && ask(model);
}

std::vector<std::string> service::present() const {
  std::vector<std::string> names;
  for (const auto& o : all())
    if (o->by->state().longest > 0) names.push_back(o->model.name);
  return names;
}

generator_state service::state() const {
  generator_state sum;
  for (const auto& o : all()) {
    const auto s = o->by->state();
    sum.pages_used += s.pages_used;
    sum.pages_free += s.pages_free;
    sum.running += s.running;
    sum.waiting += s.waiting;
    sum.longest = std::max(sum.longest, s.longest);
  }
  return sum;
}

problem service::unknown_model(const std::string& name) const {
  if (is_expected(name))
    return {503, fmt::format("nobody serves '{}' at present", name), "server_error"};
  const auto there = present();
  const auto sentence =
      there.empty()
          ? fmt::format("there is no model '{}', and no other at present", name)
          : fmt::format("there is no model '{}'; there is '{}'", name, fmt::join(there, "', '"));
  return {404, sentence, "invalid_request_error", "model", "model_not_found"};
}

void service::handle(const http_request& r, std::shared_ptr<http_reply> reply) {
  const auto fail = [&](int status, std::string sentence, http_fields fields = {}) {
    reply->whole(answer_of({status, std::move(sentence)}, std::move(fields)));
  };
  if (!has_keys() && !is_local_host(r.host))
    return fail(403,
                fmt::format("Host: found '{}', expected localhost or a loopback address, since "
                            "the server has no API keys",
                            r.host));
  if (!is_known(r.path)) return fail(404, fmt::format("there is nothing at '{}'", r.path));
  const bool posts = generates(r.path);
  const http_fields allow{{"Allow", posts ? "POST, OPTIONS" : "GET, HEAD, OPTIONS"}};
  if (r.method == "OPTIONS") return reply->whole({204, {}, {}, allow});
  if (posts ? r.method != "POST" : r.method != "GET" && r.method != "HEAD")
    return fail(405, fmt::format("'{}' does not take {}", r.path, r.method), allow);
  if (!may_ask(r))
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
  if (path == "/health") return health();
  if (path == "/metrics") return {200, "text/plain; version=0.0.4", metrics_.text(), {}};
  const auto there = present();
  if (path == "/")
    return {200,
            "text/plain; charset=utf-8",
            fmt::format(
                "Troupe serves {} here, by OpenAI's API: POST /v1/completions and "
                "/v1/chat/completions, GET /v1/models, /health and /metrics.\n",
                there.empty() ? "no model at present" : fmt::format("{}", fmt::join(there, ", "))),
            {}};
  if (path == "/v1/models")
    return {200, "application/json", openai::models_json(there, started_), {}};
  const auto name = path.substr(models_path.size());
  if (std::count(there.begin(), there.end(), name) > 0)
    return {200, "application/json", openai::model_json(name, started_), {}};
  const auto p = unknown_model(name);
  return answer_of(p, fields_of(p));
}

/// 503: a load balancer should ask others.
http_answer service::health() const {
  if (!present().empty()) return {200, "application/json", R"({"status":"ok"})", {}};
  return answer_of({503, "no model is served at present", "server_error"});
}

void service::generate(const http_request& r, bool chat, const std::shared_ptr<http_reply>& reply) {
  std::string model;  // that is served
  auto ok = is_json(r) ? start(r, chat, reply, model)
                       : no({415, "the body must be JSON: 'Content-Type: application/json'"});
  if (ok) return;
  metrics_.count(outcome_of(ok.error()), model);
  reply->whole(answer_of(ok.error(), fields_of(ok.error())));
}

openai::parsed<void> service::start(const http_request& r, bool chat,
                                    const std::shared_ptr<http_reply>& reply, std::string& model) {
  const auto asked = openai::parse(r.body, chat);
  if (!asked) return no(asked.error());
  const auto to = find(asked->model);
  if (!to) return no(unknown_model(asked->model));
  model = asked->model;
  const auto prompts = prompts_of(*asked, to->model);
  if (!prompts) return no(prompts.error());
  const auto longest = to->by->state().longest;
  if (longest == 0)
    return no({503, fmt::format("nobody serves '{}' at present", asked->model), "server_error"});
  const auto max_tokens =
      max_tokens_of(*asked, *prompts, std::min<std::size_t>(to->model.model.positions, longest));
  if (!max_tokens) return no(max_tokens.error());
  auto q = question_of(*asked, to->model, *prompts);
  const auto prompt_tokens = q.prompt_tokens;
  const auto result =
      std::make_shared<answer>(std::move(q), to->model.words, reply, metrics_, clock_);
  auto ids = submit(*asked, *to, *prompts, *max_tokens, result);
  if (!ids) return no(ids.error());
  metrics_.prompt_tokens(prompt_tokens);
  reply->when_gone([to, result, all = std::move(*ids)] {
    to->by->cancel(all);
    result->gone();
  });
  return {};
}

answer::question service::question_of(const openai::request& asked, const served_model& m,
                                      const prompt_list& prompts) {
  answer::question q;
  q.head = {fmt::format("{}-{:016x}{:016x}", asked.chat ? "chatcmpl" : "cmpl", random_.next(),
                        random_.next()),
            m.name, static_cast<std::int64_t>(clock_.wall_s()), asked.chat};
  q.stream = asked.stream;
  q.include_usage = asked.include_usage;
  q.log_probabilities = asked.top_logprobs.has_value();
  q.token_numbers = asked.token_numbers;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    q.prompt_tokens += prompts[i].size();
    const auto prefix = asked.echo ? text_of(asked.prompts[i], m, prompts[i]) : std::string{};
    q.prefixes.insert(q.prefixes.end(), asked.n, prefix);
  }
  return q;
}

openai::parsed<std::vector<std::uint64_t>> service::submit(const openai::request& asked,
                                                           const offered& to,
                                                           const prompt_list& prompts,
                                                           std::uint32_t max_tokens,
                                                           const std::shared_ptr<answer>& result) {
  const auto seed = asked.seed.value_or(random_.next());
  const auto& m = to.model;
  std::vector<generator::submission> all;
  for (const auto& prompt : prompts)
    for (std::uint32_t i = 0; i < asked.n; ++i) {
      sequence_request s;
      s.prompt = prompt;
      s.limits = {max_tokens, m.model.last_tokens, asked.stops};
      s.how = asked.how;
      s.top = asked.top_logprobs.value_or(0);
      s.ttft_s = asked.ttft_s;
      s.priority = asked.priority;
      if (asked.chat)
        for (const auto t : m.chats.ends()) s.limits.last_tokens.push_back(t);
      if (asked.ignores_end) s.limits.last_tokens.clear();
      s.how.seed = seed + i;
      const auto index = static_cast<std::uint32_t>(all.size());
      all.push_back({std::move(s),
                     [result, index](const sequence_step& step) { result->step(index, step); }});
    }
  auto ids = to.by->submit(std::move(all));
  if (ids) return std::move(*ids);
  return no(openai::problem_of(ids.error()));
}

}  // namespace troupe::web
