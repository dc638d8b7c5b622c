#include "web/openai/service.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "messages/base/invariant.hpp"
#include "web/http/access_log.hpp"
#include "web/http/browser_requests.hpp"

namespace troupe::web {

namespace {

using openai::problem;

tl::unexpected<problem> failure(problem p) {
  return tl::unexpected<problem>{std::move(p)};
}

std::vector<std::string> names_of(const std::vector<openai::listed_model>& models) {
  std::vector<std::string> names;
  for (const auto& m : models) names.push_back(m.name);
  return names;
}

/// Another server, or the next one here, may answer.
problem ending() {
  return {503, "the server is ending and takes no new requests", "server_error"};
}

std::string lower_case(std::string_view text) {
  std::string lower{text};
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

/// Names of codings count whatever their case (RFC 9110, 8.4.1).
bool is_encoded(std::string_view codings) {
  constexpr std::string_view between = ", \t";
  while (true) {
    codings.remove_prefix(std::min(codings.find_first_not_of(between), codings.size()));
    if (codings.empty()) return false;
    const auto end = std::min(codings.find_first_of(between), codings.size());
    if (lower_case(codings.substr(0, end)) != "identity") return true;
    codings.remove_prefix(end);
  }
}

/// JSON with or without parameters. Browsers ask before they send that to another origin, but send
/// other types, or none, without asking: only a client that is no browser may leave it out.
bool is_json(const http_request& r) {
  auto type = r.content_type.substr(0, r.content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type.empty() ? !is_cross_origin(r) : lower_case(type) == "application/json";
}

}  // namespace

service::service(std::optional<api_keys> keys, const runtime::clock& clock, std::uint64_t seed)
    : clock_{clock},
      started_{static_cast<std::int64_t>(clock.wall_s())},
      random_{seed},
      metrics_{[this] { return state(); }},
      keys_{keys ? std::make_shared<const api_keys>(std::move(*keys)) : nullptr} {}

service::~service() = default;

// Requests that have begun keep the former generator: it lives until its last answer has ended.
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
  encoders_.forget(model);
  metrics_.remove_model(model);
}

void service::change_keys(api_keys keys) {
  const std::lock_guard hold{mutex_};
  keys_ = std::make_shared<const api_keys>(std::move(keys));
}

// A copy of the keys' pointer: comparing hashes under the lock would serialize all requests.
bool service::has_key(const http_request& r) const {
  std::unique_lock hold{mutex_};
  const auto keys = keys_;
  hold.unlock();
  return !keys || keys->allows(r.authorization);
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

// The question is asked without the lock: it may take another one.
bool service::is_expected(const std::string& model) const {
  std::function<bool(const std::string&)> ask;
  {
    const std::lock_guard hold{mutex_};
    ask = expected_;
  }
  return ask && ask(model);
}

// The context is the model's, or what a generator's cache has room for.
std::vector<openai::listed_model> service::present() const {
  std::vector<openai::listed_model> there;
  for (const auto& o : all())
    if (const auto longest = o->by->state().longest; longest > 0)
      there.push_back(
          {o->model.name, std::min(o->model.model.positions, longest), o->model.parent});
  return there;
}

// The sum over all generators: one set of gauges, however many are there. A generator may have
// several names.
generator_state service::state() const {
  generator_state sum;
  std::vector<const generator*> counted;
  for (const auto& o : all()) {
    if (std::ranges::count(counted, o->by.get()) > 0) continue;
    counted.push_back(o->by.get());
    const auto s = o->by->state();
    sum.pages_used += s.pages_used;
    sum.pages_free += s.pages_free;
    sum.running += s.running;
    sum.waiting += s.waiting;
    sum.pages_cached += s.pages_cached;
    sum.set_back += s.set_back;
    sum.computed_prompt += s.computed_prompt;
    sum.cached_prompt += s.cached_prompt;
    sum.longest = std::max(sum.longest, s.longest);
  }
  return sum;
}

// A model that a job serves but no decoder has yet is unavailable for now: clients retry 503, and
// not 404.
problem service::unknown_model(const std::string& name) const {
  if (is_expected(name))
    return {503, fmt::format("no decoder for '{}' is available", name), "server_error"};
  const auto there = present();
  const auto sentence = there.empty()
                            ? fmt::format("model '{}' not found; no model is being served", name)
                            : fmt::format("model '{}' not found; expected '{}'", name,
                                          fmt::join(names_of(there), "', '"));
  return {404, sentence, "invalid_request_error", "model", "model_not_found"};
}

// A path of the API is a row here and nothing else.
std::span<const route<service>> service::routes() {
  static constexpr const char* json = "application/json";
  static const route<service> all[] = {
      {{"/"},
       [](service& s, const routed_request& q) {
         q.reply->whole({200, "text/plain; charset=utf-8", s.welcome(), {}});
       }},
      {{"/health", "GET", false},
       [](service& s, const routed_request& q) { q.reply->whole(s.health()); }},
      {{"/metrics"},
       [](service& s, const routed_request& q) {
         q.reply->whole({200, "text/plain; version=0.0.4", s.metrics_.text(), {}});
       }},
      {{"/v1/models"},
       [](service& s, const routed_request& q) {
         q.reply->whole({200, json, openai::models_json(s.present(), s.started_), {}});
       }},
      {{"/v1/models/*"},
       [](service& s, const routed_request& q) {
         const std::string name{q.argument};
         const auto models = s.present();
         const auto found = std::ranges::find(models, name, &openai::listed_model::name);
         if (found != models.end())
           return q.reply->whole({200, json, openai::model_json(*found, s.started_), {}});
         const auto p = s.unknown_model(name);
         q.reply->whole(answer_of(p, fields_of(p)));
       }},
      {{"/v1/completions", "POST"},
       [](service& s, const routed_request& q) { s.generate(q.request, false, q.reply); }},
      {{"/v1/chat/completions", "POST"},
       [](service& s, const routed_request& q) { s.generate(q.request, true, q.reply); }},
      {{"/tokenize", "POST"},
       [](service& s, const routed_request& q) { s.tokenize(q.request, q.reply); }},
      {{"/detokenize", "POST"},
       [](service& s, const routed_request& q) { s.detokenize(q.request, q.reply); }}};
  return all;
}

void service::handle(const http_request& r, std::shared_ptr<http_reply> plain) {
  if (logs_) plain = with_access_log(std::move(plain), r, clock_);
  // Browsers ask before they send another origin's request.
  constexpr std::string_view more_methods = ", OPTIONS";
  const auto reply = with_fields(plain, cors_.fields_for(r));
  const auto fail = [&](const http_refusal& why) {
    problem p{why.status, why.sentence};
    if (why.status == 401) p.code = "invalid_api_key";
    reply->whole(answer_of(p, why.fields));
  };
  if (!has_keys() && !is_local_host(r.host))
    return fail({403,
                 fmt::format("Host: found '{}', expected localhost or a loopback address, since "
                             "the server has no API keys",
                             r.host),
                 {}});
  const auto [to, argument] = find_route(routes(), r.path);
  if (to && r.method == "OPTIONS") {
    auto fields = cors_.preflight_fields_for(r);
    fields.emplace_back("Allow", allowed_methods(*to, more_methods));
    return plain->whole({204, {}, {}, std::move(fields)});
  }
  if (const auto why = refusal_of(r, to, has_key(r), more_methods)) return fail(*why);
  to->answer(*this, {r, argument, reply});
}

std::string service::welcome() const {
  const auto models = present();
  return fmt::format(
      "Troupe serves {} here, by OpenAI's API: POST /v1/completions and /v1/chat/completions, GET "
      "/v1/models, /health and /metrics.\n",
      models.empty() ? "no model at present"
                     : fmt::format("{}", fmt::join(names_of(models), ", ")));
}

/// 503: a load balancer should ask others. No key is needed: a balancer has none, and the answer
/// names no model.
http_answer service::health() const {
  if (draining_) return answer_of(ending());
  if (!present().empty()) return {200, "application/json", R"({"status":"ok"})", {}};
  return answer_of({503, "no model is served at present", "server_error"});
}

/// The sequences of one request, which end with its client, whether or not they have begun.
class service::running {
 public:
  explicit running(std::shared_ptr<http_reply> reply) : reply_{std::move(reply)} {}

  void begin(std::shared_ptr<generator> by, std::vector<std::uint64_t> sequences,
             std::shared_ptr<answer> result) {
    std::unique_lock hold{mutex_};
    by_ = std::move(by);
    sequences_ = std::move(sequences);
    result_ = std::move(result);
    const bool gone = gone_;
    hold.unlock();
    if (gone) end();
  }
  void leave(outcome counts_as = outcome::cancelled) {
    std::unique_lock hold{mutex_};
    if (!std::exchange(gone_, true)) counts_as_ = counts_as;
    const bool begun = by_ != nullptr;
    hold.unlock();
    if (begun) end();
  }
  /// The client is there, and gets the reason why its answer ends.
  void stop(const problem& why) {
    reply_->fail(answer_of(why, fields_of(why)), openai::error_event(why));
    leave(outcome::failed);
  }
  bool has_client() const {
    const std::lock_guard hold{mutex_};
    return !gone_;
  }

 private:
  /// Its members are not changed any more.
  void end() {
    by_->cancel(sequences_);
    result_->gone(counts_as_);
  }

  const std::shared_ptr<http_reply> reply_;

  mutable std::mutex mutex_;
  bool gone_ = false;
  outcome counts_as_ = outcome::cancelled;
  std::shared_ptr<generator> by_;
  std::vector<std::uint64_t> sequences_;
  std::shared_ptr<answer> result_;
};

void service::fail(const problem& p, const std::string& model,
                   const std::shared_ptr<http_reply>& reply) {
  metrics_.count(outcome_of(p), model);
  reply->whole(answer_of(p, fields_of(p)));
}

std::optional<problem> service::refusal_of_body(const http_request& r) const {
  if (draining_) return ending();
  if (is_encoded(r.content_encoding))
    return problem{415, fmt::format("Content-Encoding: found '{}', expected none: bodies are not "
                                    "decompressed",
                                    r.content_encoding)};
  if (!is_json(r)) return problem{415, "the body must be JSON: 'Content-Type: application/json'"};
  return {};
}

// The reply has the only lasting reference, and drops it at the answer's end.
void service::remember(const std::shared_ptr<running>& one) {
  const std::lock_guard hold{mutex_};
  if (begun_.size() == begun_.capacity())
    std::erase_if(begun_, [](const auto& other) { return other.expired(); });
  begun_.push_back(one);
}

std::size_t service::requests() const {
  const std::lock_guard hold{mutex_};
  return static_cast<std::size_t>(
      std::ranges::count_if(begun_, [](const auto& one) { return !one.expired(); }));
}

void service::end_all(const std::string& sentence) {
  std::vector<std::weak_ptr<running>> all;
  {
    const std::lock_guard hold{mutex_};
    all = begun_;
  }
  for (const auto& one : all)
    if (const auto present = one.lock()) present->stop({503, sentence, "server_error"});
}

std::uint64_t service::random_number() {
  const std::lock_guard hold{random_mutex_};
  return random_.next();
}

// The server's thread parses, which takes a time that the size of the body bounds; encoding takes
// longer and is left to an encoder's thread. A client may leave before, during and after it:
// `running` has both sides' state.
void service::generate(const http_request& r, bool chat, const std::shared_ptr<http_reply>& reply) {
  if (const auto why = refusal_of_body(r)) return fail(*why, {}, reply);
  auto asked = openai::parse(r.body, chat);
  if (!asked) return fail(asked.error(), {}, reply);
  const auto to = find(asked->model);
  if (!to) return fail(unknown_model(asked->model), {}, reply);
  const auto run = std::make_shared<running>(reply);
  reply->when_gone([run] { run->leave(); });
  remember(run);
  encoders_.soon(to->model.name, chat, [this, asked = std::move(*asked), to, reply, run] {
    if (!run->has_client()) return metrics_.count(outcome::cancelled, asked.model);
    if (auto ok = start(asked, to, reply, run); !ok) fail(ok.error(), asked.model, reply);
  });
}

// The answer exists before the sequences, since their first token may come before submit() returns.
openai::parsed<void> service::start(const openai::request& asked, const offer_ptr& to,
                                    const std::shared_ptr<http_reply>& reply,
                                    const std::shared_ptr<running>& run) {
  const auto& m = to->model;
  const auto longest = to->by->state().longest;
  if (longest == 0)
    return failure(
        {503, fmt::format("no decoder for '{}' is available", asked.model), "server_error"});
  const auto g = generation_of(asked, m, std::min<std::size_t>(m.model.positions, longest));
  if (!g) return failure(g.error());
  auto q = question_of(asked, m, *g);
  const auto prompt_tokens = q.prompt_tokens;
  const auto result = std::make_shared<answer>(std::move(q), m.words, reply, metrics_, clock_);
  auto ids = submit(asked, *to, *g, result);
  if (!ids) return failure(ids.error());
  metrics_.prompt_tokens(prompt_tokens);
  run->begin(to->by, std::move(*ids), result);
  return {};
}

// Prefixes are made for each choice of each prompt, in the order of their indices.
answer::question service::question_of(const openai::request& asked, const served_model& m,
                                      const generation& g) {
  answer::question q;
  q.head = {fmt::format("{}-{:016x}{:016x}", asked.chat ? "chatcmpl" : "cmpl", random_number(),
                        random_number()),
            m.name, static_cast<std::int64_t>(clock_.wall_s()), asked.chat};
  q.stream = asked.stream;
  q.include_usage = asked.include_usage;
  q.log_probabilities = asked.top_logprobs.has_value();
  q.token_numbers = asked.token_numbers;
  q.choices_of_prompt = asked.n;
  for (std::size_t i = 0; i < g.prompts.size(); ++i) {
    q.prompt_tokens += g.prompts[i].size();
    answer::echoed before;
    if (asked.echo) before.text = text_of(asked.prompts[i], m);
    TROUPE_INVARIANT(!g.prompts[i].empty(), "a prompt has a token");
    if (asked.echo && q.log_probabilities) before.first = g.prompts[i].front();
    q.prefixes.insert(q.prefixes.end(), asked.n, before);
  }
  return q;
}

// All sequences of a request or none, so that a client never gets an answer with fewer choices.
// Choices without anything to generate (max_tokens is 0, and nothing is scored) never reach the
// generator. A request's seed is that of its first choice; further ones count up, or they would be
// equal.
openai::parsed<std::vector<std::uint64_t>> service::submit(const openai::request& asked,
                                                           const offered& to, const generation& g,
                                                           const std::shared_ptr<answer>& result) {
  const auto seed = asked.seed.value_or(random_number());
  std::vector<generator::submission> all;
  std::vector<std::uint32_t> nothing_to_do;
  std::uint32_t index = 0;
  for (std::size_t prompt = 0; prompt < g.prompts.size(); ++prompt)
    for (std::uint32_t i = 0; i < asked.n; ++i, ++index) {
      auto s = submission_of(asked, to.model, g, prompt);
      s.what.how.seed = seed + i;
      s.listener = [result, index](const sequence_step& step) { result->step(index, step); };
      if (s.what.answer_tokens() == 0)
        nothing_to_do.push_back(index);
      else
        all.push_back(std::move(s));
    }
  // Before the generator's thread has the others.
  for (const auto i : nothing_to_do) result->end(i);
  if (all.empty()) return std::vector<std::uint64_t>{};
  auto ids = to.by->submit(std::move(all));
  if (ids) return std::move(*ids);
  if (nothing_to_do.empty()) return failure(openai::problem_of(ids.error()));
  // The answer has begun.
  result->step(0, {{}, false, {}, gpu::completion::finish::none, &ids.error(), {}});
  return std::vector<std::uint64_t>{};
}

}  // namespace troupe::web
