#include "web/openai/service.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <nlohmann/json.hpp>

#include "runtime/host/real_clock.hpp"
#include "runtime/host/wait.hpp"

using namespace troupe;
using namespace troupe::web;
using Catch::Contains;
using nlohmann::json;

// The API without a network and without a model: what it asks of a generator, and how it answers.

namespace {

constexpr double answered_s = 20;

/// Bytes, and two special tokens. Encoding waits while a test holds it.
class held_tokenizer final : public gpu::tokenizer {
 public:
  std::vector<std::uint32_t> encode(std::string_view text,
                                    std::span<const gpu::text_range>) const override {
    std::unique_lock hold{mutex_};
    ++encodes;
    free_.wait(hold, [&] { return !held_; });
    std::vector<std::uint32_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string text_of(std::uint32_t token, bool) const override {
    return token < 256 ? std::string(1, static_cast<char>(token)) : std::string{};
  }
  std::string written(std::uint32_t token) const override {
    return token < 256 ? text_of(token, false) : token == 256 ? "<|end|>" : "<|user|>";
  }
  std::size_t longest_token_bytes() const override { return 8; }
  std::optional<std::uint32_t> special(std::string_view name) const override {
    if (name == "<|end|>") return 256;
    return name == "<|user|>" ? std::optional{257u} : std::nullopt;
  }
  std::uint32_t size() const override { return 258; }

  void hold(bool on) {
    const std::lock_guard hold{mutex_};
    held_ = on;
    free_.notify_all();
  }
  mutable std::atomic<int> encodes{0};

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable free_;
  bool held_ = false;
};

class recording_generator final : public generator {
 public:
  expected<std::vector<std::uint64_t>> submit(std::vector<submission> all) override {
    const std::lock_guard hold{mutex};
    std::vector<std::uint64_t> ids;
    for (auto& s : all) {
      ids.push_back(submissions.size());
      submissions.push_back(std::move(s));
    }
    return ids;
  }
  void cancel(const std::vector<std::uint64_t>& sequences) override {
    cancelled += static_cast<int>(sequences.size());
  }
  generator_state state() const override { return now; }

  std::size_t count() const {
    const std::lock_guard hold{mutex};
    return submissions.size();
  }
  mutable std::mutex mutex;
  std::vector<submission> submissions;
  std::atomic<int> cancelled{0};
  generator_state now{0, 10, 0, 0, 64};
};

class kept_reply final : public http_reply {
 public:
  void whole(http_answer a) override {
    const std::lock_guard hold{mutex};
    answer = std::move(a);
    over = true;
  }
  void promise_stream(http_answer) override {}
  void begin_stream(http_answer a) override {
    const std::lock_guard hold{mutex};
    answer = std::move(a);
  }
  void fail(http_answer a, std::string) override { whole(std::move(a)); }
  void piece(std::string bytes) override {
    const std::lock_guard hold{mutex};
    answer.body += bytes;
  }
  void end(bool) override { over = true; }
  void when_gone(std::function<void()> what) override { gone = std::move(what); }

  std::mutex mutex;
  http_answer answer;
  std::function<void()> gone;
  std::atomic<bool> over{false};
};

struct fixture {
  runtime::real_clock clock;
  service api{std::nullopt, clock, 1};
  std::shared_ptr<held_tokenizer> words = std::make_shared<held_tokenizer>();
  std::shared_ptr<recording_generator> by = std::make_shared<recording_generator>();

  explicit fixture(gpu::sampling_defaults defaults = {}) {
    served_model m;
    m.name = "m";
    m.model.vocabulary = 258;
    m.model.positions = 64;
    m.model.last_tokens = {256};
    m.model.defaults = defaults;
    m.words = words;
    api.offer(std::move(m), by);
  }
  std::shared_ptr<kept_reply> ask(http_request r) {
    auto reply = std::make_shared<kept_reply>();
    api.handle(r, reply);
    return reply;
  }
  static http_request get(std::string path) {
    http_request r;
    r.method = "GET";
    r.path = std::move(path);
    return r;
  }
  std::shared_ptr<kept_reply> complete(json body, const char* path = "/v1/completions") {
    body["model"] = "m";
    auto r = get(path);
    r.method = "POST";
    r.content_type = "application/json";
    r.body = body.dump();
    return ask(std::move(r));
  }
  std::size_t submitted(std::size_t n) {
    runtime::wait_until([&] { return by->count() >= n; }, answered_s);
    return by->count();
  }
  static json document(const std::shared_ptr<kept_reply>& r) {
    REQUIRE(runtime::wait_until([&] { return r->over.load(); }, answered_s));
    const std::lock_guard hold{r->mutex};
    INFO(r->answer.body);
    return json::parse(r->answer.body);
  }
  static int status(const std::shared_ptr<kept_reply>& r) {
    REQUIRE(runtime::wait_until([&] { return r->over.load(); }, answered_s));
    return r->answer.status;
  }
};

sequence_step step(std::uint32_t token, double log_probability,
                   gpu::completion::finish finish = gpu::completion::finish::none,
                   bool of_prompt = false) {
  const std::string text =
      of_prompt || token > 255 ? std::string{} : std::string(1, static_cast<char>(token));
  return {
      {{token, log_probability}, {{token, log_probability}}}, of_prompt, text, finish, nullptr, {}};
}

}  // namespace

TEST_CASE("while a prompt is being encoded, other paths are answered at once") {
  fixture f;
  f.words->hold(true);
  const auto slow = f.complete({{"prompt", "ab"}});
  REQUIRE(runtime::wait_until([&] { return f.words->encodes == 1; }, answered_s));
  for (int i = 0; i < 20; ++i) {
    const auto health = f.ask(fixture::get("/health"));
    CHECK(health->over);  // handle() has answered it before it returned
    CHECK(health->answer.status == 200);
  }
  CHECK(f.complete({{"prompt", 7}})->over);  // so is what is refused without encoding
  CHECK_FALSE(slow->over);
  CHECK(f.by->count() == 0);
  f.words->hold(false);
  CHECK(f.submitted(1) == 1);
}

TEST_CASE("a client that leaves while its prompt is encoded gets no sequence that goes on") {
  fixture f;
  f.words->hold(true);
  const auto first = f.complete({{"prompt", "ab"}}), second = f.complete({{"prompt", "cd"}});
  REQUIRE(runtime::wait_until([&] { return f.words->encodes == 1; }, answered_s));
  first->gone();   // is being encoded: it is submitted, and cancelled
  second->gone();  // waits: it is not encoded
  f.words->hold(false);
  REQUIRE(runtime::wait_until([&] { return f.by->cancelled == 1; }, answered_s));
  f.complete({{"prompt", "ef"}});
  CHECK(f.submitted(2) == 2);
  CHECK(f.words->encodes == 2);
}

TEST_CASE("a text that is longer than the context can hold is refused before it is encoded") {
  fixture f;
  for (const auto& [body, path] :
       {std::pair{json{{"prompt", std::string(65 * 8, 'a')}}, "/v1/completions"},
        {json{{"messages", {{{"role", "user"}, {"content", std::string(65 * 8, 'a')}}}}},
         "/v1/chat/completions"}}) {
    const auto d = fixture::document(f.complete(body, path));
    CHECK(d["error"]["code"] == "context_length_exceeded");
    CHECK(f.words->encodes == 0);
  }
}

TEST_CASE("sampling is a request's own, else the model's, else the API's") {
  fixture f{{0.5, 0.25, std::nullopt, 3}};
  f.complete({{"prompt", "ab"}});
  f.complete({{"prompt", "ab"}, {"temperature", 0}, {"top_p", 1}, {"top_k", 0}, {"min_p", 0.5}});
  REQUIRE(f.submitted(2) == 2);
  const auto& model = f.by->submissions[0].what.how;
  CHECK(model.temperature == 0.5);
  CHECK(model.top_p == 0.25);
  CHECK(model.top_k == 3);
  CHECK(model.min_p == 0);
  const auto& own = f.by->submissions[1].what.how;
  CHECK(own.temperature == 0);
  CHECK(own.top_p == 1);
  CHECK(own.top_k == 0);
  CHECK(own.min_p == 0.5);
}

TEST_CASE("a stop text that is a special token's name is that token") {
  fixture f;
  f.complete({{"prompt", "ab"}, {"stop", {"<|user|>", "x"}}});
  f.complete({{"prompt", "ab"}, {"stop", "<|user|>"}, {"ignore_eos", true}});
  REQUIRE(f.submitted(2) == 2);
  CHECK(f.by->submissions[0].what.last_tokens == std::vector<std::uint32_t>{256, 257});
  CHECK(f.by->submissions[0].stops.all() == std::vector<std::string>{"<|user|>", "x"});
  CHECK(f.by->submissions[1].what.last_tokens == std::vector<std::uint32_t>{257});
}

TEST_CASE("echo with logprobs has the prompt's log probabilities, the first null") {
  using enum gpu::completion::finish;
  for (const bool streamed : {false, true}) {
    fixture f;
    const auto reply = f.complete({{"prompt", {97, 256, 98}},
                                   {"echo", true},
                                   {"logprobs", 1},
                                   {"max_tokens", 1},
                                   {"stream", streamed}});
    REQUIRE(f.submitted(1) == 1);
    const auto& s = f.by->submissions[0];
    CHECK(s.what.scores_prompt);
    CHECK(s.what.prompt_tokens == 3);
    CHECK(s.what.top == 1);
    s.listener(step(256, -1, none, true));
    s.listener(step(98, -2, none, true));
    s.listener(step(99, -3, length));
    REQUIRE(runtime::wait_until([&] { return reply->over.load(); }, answered_s));
    const auto body = reply->answer.body;
    const auto d = json::parse(streamed ? body.substr(6, body.find("\n") - 6) : body);
    const auto& c = d["choices"][0];
    CHECK(c["text"] == "abc");
    CHECK(c["logprobs"]["tokens"] == json{"a", "<|end|>", "b", "c"});
    CHECK(c["logprobs"]["token_logprobs"] == json{nullptr, -1, -2, -3});
    CHECK(c["logprobs"]["top_logprobs"] ==
          json{nullptr, {{"<|end|>", -1}}, {{"b", -2}}, {{"c", -3}}});
    CHECK(c["logprobs"]["text_offset"] == json{0, 1, 8, 9});
    if (!streamed)
      CHECK(d["usage"] == json{{"prompt_tokens", 3},
                               {"completion_tokens", 1},
                               {"total_tokens", 4},
                               {"prompt_tokens_details", {{"cached_tokens", 0}}}});
  }
}

TEST_CASE("max_tokens 0 scores the prompt, or returns it without any work") {
  using enum gpu::completion::finish;
  fixture f;
  const auto d = fixture::document(
      f.complete({{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}, {"n", 2}}));
  REQUIRE(d["choices"].size() == 2);
  CHECK(d["choices"][1]["text"] == "ab");
  CHECK(d["choices"][1]["finish_reason"] == "length");
  CHECK(d["usage"]["completion_tokens"] == 0);
  CHECK(f.by->count() == 0);
  // One token has nothing before it: only the other prompt is computed.
  const auto scored = f.complete(
      {{"prompt", {{97}, {97, 98}}}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}});
  REQUIRE(f.submitted(1) == 1);
  CHECK(f.by->submissions[0].what.answer_tokens() == 1);
  f.by->submissions[0].listener(step(98, -2, length, true));
  const auto both = fixture::document(scored)["choices"];
  CHECK(both[0]["logprobs"]["token_logprobs"] == json::array({nullptr}));
  CHECK(both[1]["logprobs"]["token_logprobs"] == json{nullptr, -2});
  CHECK(fixture::status(
            f.complete({{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 0}},
                       "/v1/chat/completions")) == 400);
}

TEST_CASE("pages of allowed origins may read answers, and others may not") {
  fixture f;
  f.api.allow_origins({"https://chat.example"});
  const auto field = [](const http_answer& a, const std::string& name) {
    for (const auto& [key, value] : a.fields)
      if (key == name) return value;
    return std::string{};
  };
  auto r = fixture::get("/v1/models");
  r.origin = "https://chat.example";
  CHECK(field(f.ask(r)->answer, "Access-Control-Allow-Origin") == "https://chat.example");
  CHECK(field(f.ask(r)->answer, "Vary") == "Origin");
  r.path = "/nothing";  // a page must be able to read why
  CHECK(field(f.ask(r)->answer, "Access-Control-Allow-Origin") == "https://chat.example");
  r.path = "/v1/completions", r.method = "OPTIONS";
  r.asked_fields = "authorization,content-type,x-stainless-os";
  const auto preflight = f.ask(r)->answer;
  CHECK(preflight.status == 204);
  CHECK(field(preflight, "Access-Control-Allow-Origin") == "https://chat.example");
  CHECK(field(preflight, "Access-Control-Allow-Headers") == r.asked_fields);
  CHECK_THAT(field(preflight, "Access-Control-Allow-Methods"), Contains("POST"));
  for (const char* other : {"https://evil.example", "https://chat.example.evil", "null", ""}) {
    r.origin = other;
    CHECK(field(f.ask(r)->answer, "Access-Control-Allow-Origin").empty());
  }
}

TEST_CASE("a service that ends takes nothing new, and says so to the clients that it has") {
  fixture f;
  const auto present = f.complete({{"prompt", "ab"}});
  REQUIRE(f.submitted(1) == 1);
  CHECK(f.api.requests() == 1);
  f.api.drain();
  const auto refused = f.complete({{"prompt", "ab"}});
  CHECK(fixture::status(refused) == 503);
  CHECK_THAT(refused->answer.body, Contains("the server is ending"));
  CHECK(fixture::status(f.ask(fixture::get("/health"))) == 503);
  CHECK(f.api.requests() == 1);
  CHECK_FALSE(present->over);
  f.api.end_all("it has ended");
  CHECK(fixture::status(present) == 503);
  CHECK_THAT(present->answer.body, Contains("it has ended"));
  CHECK(f.by->cancelled == 1);
  present->gone = {};  // as a connection does behind an answer
  CHECK(f.api.requests() == 0);
  const auto metrics = f.ask(fixture::get("/metrics"))->answer.body;
  CHECK_THAT(metrics, Contains(R"(troupe_requests_total{model="m",outcome="failed"} 1)"));
}

TEST_CASE("a body in a coding is refused with the codings that are read") {
  fixture f;
  http_request r = fixture::get("/v1/completions");
  r.method = "POST";
  r.body = R"({"model": "m", "prompt": "a"})";
  for (const char* coding : {"gzip", "br", "identity, gzip", "GZip"}) {
    r.content_encoding = coding;
    const auto reply = f.ask(r);
    CHECK(fixture::status(reply) == 415);
    CHECK(reply->answer.fields == http_fields{{"Accept-Encoding", "identity"}});
  }
  std::size_t answered = 0;
  for (const char* coding : {"identity", "Identity", "IDENTITY, identity", ""}) {
    r.content_encoding = coding;
    f.ask(r);
    ++answered;
    CHECK(f.submitted(answered) == answered);
  }
}

TEST_CASE("further names of a model are models of one generator, whose pages count once") {
  fixture f;
  served_model other;
  other.name = "alias";
  other.model.positions = 32;
  f.api.offer(std::move(other), f.by);
  const auto models = fixture::document(f.ask(fixture::get("/v1/models"))).at("data");
  REQUIRE(models.size() == 2);
  CHECK(models[0].at("id") == "alias");
  CHECK(models[0].at("max_model_len") == 32);
  CHECK(models[1].at("max_model_len") == 64);
  // A second generator's count, too.
  f.by->now = {1, 9, 0, 0, 64, 3, 2, 100, 64};
  const auto second = std::make_shared<recording_generator>();
  second->now = {2, 5, 0, 0, 128, 4, 1, 50, 192};
  served_model third;
  third.name = "third";
  third.model.positions = 512;
  f.api.offer(std::move(third), second);
  const auto metrics = f.ask(fixture::get("/metrics"))->answer.body;
  for (const auto* line :
       {"troupe_kv_pages{state=\"free\"} 14", "troupe_kv_pages{state=\"used\"} 3",
        "troupe_kv_pages{state=\"cached\"} 7", "troupe_set_back_total 3",
        "troupe_prompt_positions_total{source=\"computed\"} 150",
        "troupe_prompt_positions_total{source=\"cached\"} 256"})
    CHECK_THAT(metrics, Contains(line));
  // Its cache has room for less than the model's context.
  const auto listed = fixture::document(f.ask(fixture::get("/v1/models/third")));
  CHECK(listed.at("max_model_len") == 128);
}

TEST_CASE("cached tokens of a prompt count once, as its first choice found it") {
  fixture f;
  const auto reply = f.complete({{"prompt", {{97, 98}, {99, 100}}}, {"n", 2}, {"max_tokens", 1}});
  REQUIRE(f.submitted(4) == 4);
  constexpr std::uint32_t found[] = {0, 64, 128, 192};
  for (std::size_t i = 0; i < 4; ++i) {
    auto last = step(101, -1, gpu::completion::finish::length);
    last.cached = found[i];
    f.by->submissions[i].listener(last);
  }
  CHECK(fixture::document(reply)["usage"]["prompt_tokens_details"] == json{{"cached_tokens", 128}});
}

TEST_CASE("texts become tokens and tokens texts, as vLLM's clients ask for it") {
  fixture f;
  const auto d = fixture::document(f.complete({{"prompt", "ab"}}, "/tokenize"));
  CHECK(d ==
        json{{"count", 2}, {"max_model_len", 64}, {"tokens", {97, 98}}, {"token_strs", nullptr}});
  const auto chat =
      fixture::document(f.complete({{"messages", {{{"role", "user"}, {"content", "a"}}}},
                                    {"add_generation_prompt", false},
                                    {"return_token_strs", true}},
                                   "/tokenize"));
  CHECK(chat.at("count") == std::string{"user: a\n"}.size());
  CHECK(chat.at("token_strs").at(6) == "a");
  CHECK(fixture::document(f.complete({{"tokens", {97, 98}}}, "/detokenize")) ==
        json{{"prompt", "ab"}});
  CHECK(fixture::status(f.complete({{"tokens", "a"}}, "/detokenize")) == 400);
  CHECK(fixture::status(f.complete({{"prompt", {1, 2}}}, "/tokenize")) == 400);
  CHECK(fixture::status(f.complete({{"prompt", std::string(2 << 20, 'a')}}, "/tokenize")) == 413);
}

TEST_CASE("keys of other servers become settings of the sequence, or are refused by name") {
  fixture f{{std::nullopt, std::nullopt, std::nullopt, std::nullopt, 1.25}};
  f.complete({{"prompt", "ab"}, {"stop_token_ids", {65}}, {"min_tokens", 3}, {"max_tokens", 5}});
  f.complete({{"prompt", "ab"}, {"repetition_penalty", 1}, {"ignore_eos", true}});
  REQUIRE(f.submitted(2) == 2);
  const auto& first = f.by->submissions[0].what;
  CHECK(first.last_tokens == std::vector<std::uint32_t>{65, 256});
  CHECK(first.min_tokens == 3u);
  CHECK(first.how.repetition_penalty == 1.25);
  CHECK(f.by->submissions[1].what.how.repetition_penalty == 1);
  CHECK(f.by->submissions[1].what.last_tokens.empty());
  const auto param = [&](json body) {
    return fixture::document(f.complete(std::move(body))).at("error").at("param");
  };
  CHECK(param({{"prompt", "ab"}, {"stop_token_ids", {258}}}) == "stop_token_ids");
  CHECK(param({{"prompt", "ab"}, {"min_tokens", 17}}) == "min_tokens");  // of 16 by default
}
