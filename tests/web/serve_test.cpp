#include <signal.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "cli/program.hpp"
#include "harness/resident_bytes.hpp"
#include "harness/source_dir.hpp"
#include "messages/base/random.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"
#include "web/raw_client.hpp"
#include "web/troupe_server.hpp"

using namespace troupe;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

// A real `troupe serve` with the model that ships, and clients that speak raw HTTP.

namespace {

// printf %s secret | sha256sum
const std::string secret_hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// One for all tests that leave it as it was.
server& shared_server() {
  static server s;
  return s;
}

json alone(std::vector<std::string> more) {
  more.insert(more.begin(), {"infer", "--alone", "--model", shipped("models/scribe"), "--json"});
  const auto r = troupe::test::troupe(more);
  INFO(r.err);
  REQUIRE(r.status == 0);
  return r.document();
}

std::string text_of_events(const raw_answer& a, std::uint32_t index = 0) {
  std::string text;
  for (const auto& e : a.events())
    for (const auto& c : e.at("choices"))
      if (c.at("index") == index)
        text +=
            c.contains("delta") ? c["delta"].value("content", "") : c["text"].get<std::string>();
  return text;
}

}  // namespace

TEST_CASE("a served completion has the tokens and log probabilities of infer --alone") {
  const auto& s = shared_server();
  const auto expected = alone({"The President", "--max-tokens", "40", "--temperature", "0.8",
                               "--top-p", "0.95", "--seed", "5"});
  const auto a = s.generate({{"prompt", "The President"},
                             {"max_tokens", 40},
                             {"temperature", 0.8},
                             {"top_p", 0.95},
                             {"seed", 5},
                             {"logprobs", 0}});
  REQUIRE(a.status == 200);
  const auto d = a.document();
  const auto& c = d.at("choices").at(0);
  CHECK(c.at("text") == expected.at("text"));
  CHECK(c.at("logprobs").at("token_logprobs") == expected.at("logprobs"));
  CHECK(c.at("finish_reason") == "length");
  CHECK(d.at("usage") == json{{"prompt_tokens", 13},
                              {"completion_tokens", 40},
                              {"total_tokens", 53},
                              {"prompt_tokens_details", {{"cached_tokens", 0}}}});
}

TEST_CASE("a served chat has the answer of infer --chat, and its stream is the same text") {
  const auto& s = shared_server();
  const auto expected =
      alone({"Who rules?", "--chat", "--max-tokens", "30", "--seed", "2", "--temperature", "1"});
  json body{{"messages", {{{"role", "user"}, {"content", "Who rules?"}}}},
            {"max_completion_tokens", 30},
            {"seed", 2}};
  const auto whole = s.generate(body, chats).document();
  CHECK(whole.at("choices").at(0).at("message").at("content") == expected.at("text"));
  CHECK(whole.at("usage").at("prompt_tokens") == expected.at("prompt_tokens"));
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const auto stream = s.generate(body, chats);
  REQUIRE(stream.status == 200);
  CHECK(stream.fields.at("content-type") == "text/event-stream");
  CHECK(stream.whole);
  CHECK(stream.body.ends_with("data: [DONE]\n\n"));
  CHECK(text_of_events(stream) == expected.at("text"));
  const auto events = stream.events();
  CHECK(events.front().at("choices").at(0).at("delta").at("role") == "assistant");
  CHECK(events.back().at("choices").empty());
  CHECK(events.back().at("usage") == whole.at("usage"));
  CHECK(events.at(events.size() - 2).at("choices").at(0).at("finish_reason") == "length");
}

TEST_CASE("choices, prompts, echo and stop texts are as asked for, whole and streamed") {
  const auto& s = shared_server();
  json body{{"prompt", {"The law", "We"}}, {"n", 2},      {"seed", 3}, {"max_tokens", 60},
            {"stop", {"e ", " th"}},       {"echo", true}};
  const auto d = s.generate(body).document();
  REQUIRE(d.at("choices").size() == 4);
  body["stream"] = true;
  const auto stream = s.generate(body);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto& c = d["choices"][i];
    const auto text = c.at("text").get<std::string>();
    const std::string prompt = i < 2 ? "The law" : "We";
    CHECK(c.at("index") == i);
    REQUIRE(text.starts_with(prompt));
    const auto expected = alone({prompt, "--temperature", "1", "--seed", std::to_string(3 + i % 2),
                                 "--max-tokens", "60", "--stop", "e ", "--stop", " th"});
    CHECK(text == prompt + expected.at("text").get<std::string>());
    CHECK(c.at("finish_reason") == expected.at("finish_reason"));
    CHECK(text.find("e ", prompt.size()) == std::string::npos);
    CHECK(text_of_events(stream, i) == text);
  }
  CHECK(d.at("usage").at("prompt_tokens") == 9);
}

TEST_CASE("64 concurrent streams all finish with the text that each gets alone") {
  const auto& s = shared_server();
  constexpr int count = 64;
  std::vector<std::string> texts(count);
  std::vector<int> whole(count);
  std::vector<std::thread> clients;
  for (int i = 0; i < count; ++i)
    clients.emplace_back([&, i] {
      const auto a = s.generate({{"prompt", "The state of " + std::to_string(i % 8)},
                                 {"max_tokens", 48},
                                 {"seed", i % 8},
                                 {"stream", true}});
      whole[i] = a.whole && a.body.ends_with("data: [DONE]\n\n");
      texts[i] = text_of_events(a);
    });
  for (auto& c : clients) c.join();
  CHECK(std::count(whole.begin(), whole.end(), 1) == count);
  for (int i = 8; i < count; ++i) CHECK(texts[i] == texts[i % 8]);
  const auto expected =
      alone({"The state of 3", "--max-tokens", "48", "--temperature", "1", "--seed", "3"});
  CHECK(texts[3] == expected.at("text"));
  CHECK(s.all_pages_free());
}

TEST_CASE("memory does not grow over ten rounds of 256 streams", "[.long]") {
  server s;
  std::vector<std::size_t> resident;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> clients;
    std::atomic<int> whole = 0;
    for (int i = 0; i < 256; ++i)
      clients.emplace_back([&, i] {
        const auto a = s.generate({{"prompt", "The state of " + std::to_string(i)},
                                   {"max_tokens", 64},
                                   {"stream", true}});
        whole += a.whole && a.body.ends_with("data: [DONE]\n\n") ? 1 : 0;
      });
    for (auto& c : clients) c.join();
    CHECK(whole == 256);
    REQUIRE(s.all_pages_free());
    resident.push_back(resident_bytes(std::to_string(s.process().id())));
  }
  CAPTURE(resident);
  CHECK(static_cast<double>(resident.back()) < 1.05 * static_cast<double>(resident[1]));
}

TEST_CASE("ten requests are counted as ten, with times to first token below the client's") {
  const server s;
  double waited_s = 0;
  for (int i = 0; i < 10; ++i) {
    raw_client c{s.port};
    const runtime::stopwatch watch;
    c.send(
        post(completions,
             json{{"model", "scribe"}, {"prompt", "The law"}, {"max_tokens", 20}, {"stream", true}}
                 .dump()));
    REQUIRE(c.wait_for("data: "));
    waited_s += watch.s();
    REQUIRE(c.answer().whole);
  }
  const auto finished = "troupe_requests_total{model=\"scribe\",outcome=\"finished\"}";
  CHECK(runtime::wait_until([&] { return s.metric(finished) == 10; }, soon_s, 0.02));
  CHECK(s.metric("troupe_time_to_first_token_seconds_count") == 10);
  const double counted_s = s.metric("troupe_time_to_first_token_seconds_sum");
  CHECK(counted_s > 0);
  CHECK(counted_s <= waited_s);
}

TEST_CASE("200 clients that leave at any moment leave no page of the cache taken") {
  const auto& s = shared_server();
  random_source random{11};
  const auto name = "troupe_requests_total{model=\"scribe\",outcome=\"cancelled\"}";
  const auto before = s.metric(name), generated = s.metric("troupe_generation_tokens_total");
  for (int i = 0; i < 200; ++i) {
    raw_client c{s.port};
    const bool streams = random.chance(0.5);
    c.send(post(completions, json{{"model", "scribe"},
                                  {"prompt", std::string(1 + random.below(200), 'a')},
                                  {"max_tokens", 300},
                                  {"stream", streams}}
                                 .dump()));
    if (streams && random.chance(0.7)) c.wait_for("data: ");
    if (random.chance(0.5)) c.reset();
  }
  CHECK(s.is_idle());
  CHECK(s.metric(name) > before + 150);
  // Had they been generated to their ends, these were 200 times 300.
  CHECK(s.metric("troupe_generation_tokens_total") < generated + 30'000);
  CHECK(s.generate({{"prompt", "a"}}).status == 200);
}

TEST_CASE("bad requests get an error that names the parameter, and the server goes on") {
  const auto& s = shared_server();
  const auto error = [](const raw_answer& a) { return a.document().at("error"); };
  const auto bad = [&](const json& body) {
    const auto a = s.generate(body);
    CHECK(a.status == 400);
    return error(a).at("param");
  };
  CHECK(bad({{"prompt", "a"}, {"max_tokens", -1}}) == "max_tokens");
  CHECK(bad({{"prompt", "a"}, {"tools", {1}}}) == "tools");
  CHECK(bad({{"prompt", {300}}}) == "prompt");
  CHECK(bad({{"prompt", ""}}) == "prompt");
  const auto longest = s.generate({{"prompt", "a"}, {"max_tokens", 512}});
  CHECK(longest.status == 400);
  CHECK(error(longest).at("code") == "context_length_exceeded");
  CHECK(s.generate({{"prompt", "a"}, {"max_tokens", 511}, {"stop", "e"}}).status == 200);
  const auto other = s.ask(post(completions, R"({"model": "gpt-5", "prompt": "a"})"));
  CHECK(other.status == 404);
  CHECK(error(other).at("code") == "model_not_found");
  for (const auto& body : {std::string{"{"}, std::string{"\xff\xfe"}, std::string(100'000, '['),
                           std::string{}, std::string{"[]"}})
    CHECK(s.ask(post(completions, body)).status == 400);
  CHECK(s.ask(post(completions, std::string(17 << 20, ' '))).status == 413);
  CHECK(s.ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
              "Content-Length: 2\r\n\r\n{}")
            .status == 415);
  CHECK(s.ask(get("/health")).status == 200);
}

TEST_CASE("a web site cannot use a server without keys") {
  const auto& s = shared_server();
  const std::string body = R"({"model": "scribe", "prompt": "a", "max_tokens": 1})";
  const auto asked = [&](const std::string& host, const std::string& fields) {
    return s
        .ask("POST /v1/completions HTTP/1.1\r\nHost: " + host + "\r\n" + fields +
             fmt::format("Content-Length: {}\r\n\r\n{}", body.size(), body))
        .status;
  };
  const std::string typed = "Content-Type: application/json\r\n";
  CHECK(asked("127.0.0.1", "") == 200);
  CHECK(asked("127.0.0.1", typed) == 200);
  // DNS rebinding: the page's own name, which leads here.
  CHECK(asked("evil.example", typed) == 403);
  for (const char* path : {"/v1/models", "/metrics", "/health"})
    CHECK(s.ask(fmt::format("GET {} HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", path)).status ==
          403);
  // Requests that browsers send to another origin without asking.
  CHECK(asked("127.0.0.1", "Sec-Fetch-Site: cross-site\r\n") == 415);
  CHECK(asked("127.0.0.1", "Origin: http://evil.example\r\n") == 415);
  CHECK(asked("127.0.0.1", "Origin: null\r\n") == 415);
  CHECK(asked("127.0.0.1", "Origin: http://127.0.0.1\r\nSec-Fetch-Site: same-origin\r\n") == 200);
}

/// Requests of which some bytes are changed or missing.
void send_mutated_requests(const server& s, int count) {
  const std::string seed =
      R"({"model":"scribe","prompt":"a","max_tokens":2,"stop":["x"],"n":1,"stream":false})";
  random_source random{3};
  for (int i = 0; i < count; ++i) {
    auto body = seed;
    for (auto n = random.below(4); n-- > 0 && !body.empty();) {
      const auto at = random.below(body.size());
      if (random.chance(0.3))
        body.erase(at, 1 + random.below(5));
      else
        body[at] = static_cast<char>(random.below(256));
    }
    const auto status = s.ask(post(completions, body)).status;
    INFO(body);
    REQUIRE((status == 200 || (status >= 400 && status < 500)));
  }
  CHECK(s.all_pages_free());
}

TEST_CASE("mutated requests never get a 5xx response") {
  send_mutated_requests(shared_server(), 1000);
}

TEST_CASE("100,000 mutated requests never get a 5xx response", "[.long]") {
  send_mutated_requests(server{}, 100'000);
}

TEST_CASE("paths and methods that are not there get 404, and 405 with what is allowed") {
  const auto& s = shared_server();
  CHECK(s.ask(get("/v2")).status == 404);
  const auto root = s.ask(get("/"));
  CHECK(root.status == 200);
  CHECK_THAT(root.body, Contains("Troupe serves scribe here") && Contains("/v1/completions"));
  CHECK(s.ask(post("/", "{}")).status == 405);
  const auto wrong = s.ask(get(completions));
  CHECK(wrong.status == 405);
  CHECK(wrong.fields.at("allow") == "POST, OPTIONS");
  CHECK(s.ask(post("/v1/models", "{}")).status == 405);
  const auto options = s.ask("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(options.status == 204);
  CHECK(options.fields.at("allow") == "GET, HEAD, OPTIONS");
  CHECK(s.ask("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").body.empty());
  CHECK(s.ask(get("/v1/models")).document().at("data").at(0).at("id") == "scribe");
  CHECK(s.ask(get("/v1/models/scribe")).document().at("object") == "model");
  CHECK(s.ask(get("/v1/models/other")).document().at("error").at("code") == "model_not_found");
  CHECK(s.ask(get("/health", "X-Request-Id: 7\r\n")).status == 200);
}

TEST_CASE("--most-choices is read as --max-choices") {
  const server s{{"--most-choices", "2", "--kv-pages", "2"}};
  for (const json& prompt : {json("a"), json{"a", "b", "c"}}) {
    const auto declined = s.generate({{"prompt", prompt}, {"n", prompt.is_string() ? 3 : 1}});
    CHECK(declined.status == 400);  // it can never fit
    CHECK_FALSE(declined.fields.contains("retry-after"));
  }
  CHECK(s.generate({{"prompt", "a"}, {"n", 2}, {"max_tokens", 2}}).status == 200);
  // Two pages of the cache.
  for (const auto* path : {"/v1/models", "/v1/models/scribe"}) {
    const auto d = s.ask(get(path)).document();
    CHECK((d.contains("data") ? d["data"][0] : d).at("max_model_len") == 128);
  }
  CHECK(s.generate({{"prompt", std::string(120, 'a')}, {"max_tokens", 9}}).status == 400);
  CHECK(s.output().starts_with("troupe: --most-choices is now --max-choices"));
}

TEST_CASE("requests beyond the limit get 429 with a time to come back, and are counted") {
  const server s{{"--max-choices", "2"}};
  raw_client first{s.port};
  const json body{
      {"model", "scribe"}, {"prompt", "a"}, {"max_tokens", 500}, {"stream", true}, {"n", 2}};
  first.send(post(completions, body.dump()));
  REQUIRE(first.wait_for("data: "));
  const auto second = s.generate({{"prompt", "a"}});
  CHECK(second.status == 429);
  CHECK(second.fields.at("retry-after") == "1");
  CHECK(s.metric("troupe_requests_total{model=\"scribe\",outcome=\"declined\"}") == 1);
  first.reset();
  CHECK(runtime::wait_until([&] { return s.generate({{"prompt", "a"}}).status == 200; }, long_s));
  CHECK(s.metric("troupe_requests_total{model=\"scribe\",outcome=\"finished\"}") == 1);
  CHECK(s.metric("troupe_requests_total{model=\"scribe\",outcome=\"cancelled\"}") == 1);
  CHECK(s.metric("troupe_time_to_first_token_seconds_count") == 3);
  CHECK(s.metric("troupe_prompt_tokens_total") == 2);
}

TEST_CASE("with keys, only their owners get more than the health") {
  const scratch dir;
  const auto keys = dir.write("keys", "# of me\n" + secret_hash + "  -\n");
  const server s{{"--keys", keys, "--host", "0.0.0.0"}};
  CHECK(s.ask(get("/health")).status == 200);
  const auto without = s.ask(get("/v1/models"));
  CHECK(without.status == 401);
  CHECK(without.document().at("error").at("code") == "invalid_api_key");
  CHECK(s.ask(get("/v1/models", "Authorization: Bearer secreT\r\n")).status == 401);
  CHECK(s.ask(get("/v1/models", "Authorization: secret\r\n")).status == 401);
  for (const std::string scheme : {"Bearer ", "bearer ", "BEARER ", "Bearer  "})
    CHECK(s.ask(get("/v1/models", "Authorization: " + scheme + "secret\r\n")).status == 200);
  for (const std::string wrong : {"Basic secret", "Bearer", "Bearer ", "Bearersecret"})
    CHECK(s.ask(get("/v1/models", "Authorization: " + wrong + "\r\n")).status == 401);
  CHECK(s.ask(post(completions, R"({"model": "scribe", "prompt": "a"})")).status == 401);
}

TEST_CASE("after SIGHUP the keys are those of the file, unless it cannot be read") {
  const scratch dir;
  const auto keys = dir.write("keys", secret_hash + "\n");
  server s{{"--keys", keys}};
  const auto status = [&] {
    return s.ask(get("/v1/models", "Authorization: Bearer secret\r\n")).status;
  };
  CHECK(status() == 200);
  dir.write("keys", std::string(64, '0') + "\n");
  REQUIRE(::kill(s.process().id(), SIGHUP) == 0);
  CHECK(runtime::wait_until([&] { return status() == 401; }, soon_s, 0.02));
  dir.write("keys", "no key\n");
  REQUIRE(::kill(s.process().id(), SIGHUP) == 0);
  runtime::wait_until([&] { return status() != 401; }, 0.5, 0.05);
  CHECK(status() == 401);
  dir.write("keys", secret_hash + "\n");
  REQUIRE(::kill(s.process().id(), SIGHUP) == 0);
  CHECK(runtime::wait_until([&] { return status() == 200; }, soon_s, 0.02));
}

TEST_CASE("infer asks a running server, and gets what it would compute alone") {
  const auto& s = shared_server();
  const auto url = fmt::format("http://127.0.0.1:{}", s.port);
  for (const bool chat : {false, true}) {
    std::vector<std::string> words{"The President", "--max-tokens", "30", "--seed", "3",
                                   "--temperature", "0.9"};
    if (chat) words.push_back("--chat");
    const auto expected = alone(words);
    words.insert(words.begin(), {"infer", "--url", url, "--json"});
    const auto r = troupe::test::troupe(words);
    INFO(r.err);
    REQUIRE(r.status == 0);
    const auto said = r.document();
    for (const auto* key :
         {"text", "tokens", "logprobs", "prompt_tokens", "completion_tokens", "finish_reason"})
      CHECK(said.at(key) == expected.at(key));
  }
  const auto refused = troupe::test::troupe({"infer", "a", "--url", url, "--model", "other"});
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, Contains("404") && Contains("'other'"));
  CHECK(troupe::test::troupe({"infer", "a", "--url", "ftp://x"}).status == 2);
  CHECK(troupe::test::troupe({"infer", "a", "--url", "http://127.0.0.1:1"}).status == 1);
}

TEST_CASE("OpenAI's own client gets what it expects, and what it leaves is cancelled") {
  const char* modules = std::getenv("TROUPE_NODE_MODULES");
  if (!modules || !std::filesystem::exists(std::string{modules} + "/openai")) {
    WARN("not compared: TROUPE_NODE_MODULES names no node_modules with openai");
    return;
  }
  const scratch dir;
  const server s{{"--keys", dir.write("keys", secret_hash + "\n")}};
  const auto command =
      fmt::format("node {}/tests/web/openai_client.cjs {} http://127.0.0.1:{} secret",
                  troupe::test::source_dir(), modules, s.port);
  CHECK(std::system(command.c_str()) == 0);
  CHECK(s.all_pages_free("Authorization: Bearer secret\r\n"));
}

TEST_CASE(
    "serve refuses an open address, bad keys, a taken port and sizes that are none, with status "
    "2") {
  const scratch dir;
  const auto said = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"serve", shipped("models/scribe")});
    const auto r = troupe::test::troupe(more);
    CHECK(r.status == 2);
    return r.err;
  };
  CHECK_THAT(said({"--host", "0.0.0.0"}), Contains("not a loopback address") && Contains("--keys"));
  CHECK_THAT(said({"--host", "nowhere"}), Contains("expected an IP address"));
  CHECK_THAT(said({"--keys", dir.write("short", "# x\n12ab\n")}), Contains("short:2: expected"));
  CHECK_THAT(said({"--keys", dir.write("empty", "# x\n")}), Contains("has no keys"));
  CHECK_THAT(said({"--keys", dir / "absent"}), Contains("No such file"));
  CHECK_THAT(said({"--port", std::to_string(shared_server().port)}), Contains("cannot listen"));
  CHECK_THAT(said({"--threads", "0"}), Contains("--threads: found 0, expected 1 to "));
  CHECK_THAT(said({"--kv-pages", "100000000"}), Contains("set a smaller --kv-pages"));
  CHECK_THAT(said({"--threads", "100000"}), Contains("--threads: found 100000, expected 1 to "));
}
