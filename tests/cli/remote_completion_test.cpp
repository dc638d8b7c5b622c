#include "cli/verbs/serving/remote_completion.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "cli/verbs/serving/event_stream.hpp"
#include "cli/verbs/serving/server_error.hpp"
#include "web/http/http_server.hpp"

using troupe::expected;
using troupe::cli::event_stream;
using troupe::cli::json;
using troupe::cli::remote_prompt;
using troupe::cli::sentence_of_error;
using namespace troupe::web;
using Catch::Contains;

// `troupe infer --url` at servers that are not ours.

namespace {

/// Answers a POST always in the same way, and remembers its body.
struct other_server {
  other_server(int status, std::string type, std::string body, std::string whose = "somebody")
      : answer{status, std::move(type), std::move(body), {}}, owner{std::move(whose)} {
    auto started = http_server::start(
        "127.0.0.1", 0, {}, [this](const http_request& r, std::shared_ptr<http_reply> reply) {
          if (r.method == "POST") seen = json::parse(r.body);
          const json models{{"data", {{{"id", "other"}, {"owned_by", owner}}}}};
          reply->whole(r.method == "POST"
                           ? answer
                           : http_answer{200, "application/json", models.dump(), {}});
        });
    REQUIRE(started);
    server = std::move(*started);
  }
  expected<json> ask(bool chat = false, const std::string& model = {}) {
    remote_prompt p;
    p.url = "http://127.0.0.1:" + std::to_string(server->port());
    p.text = "Hi";
    p.chat = chat;
    p.model = model;
    return complete_remotely(p, [this](std::string_view piece) { shown += piece; });
  }
  std::string error(bool chat = false) {
    const auto made = ask(chat);
    REQUIRE_FALSE(made);
    return made.error().text;
  }

  http_answer answer;
  std::string owner, shown;
  json seen;
  std::unique_ptr<http_server> server;
};

std::vector<std::pair<std::string, std::string>> events_of(const std::string& bytes,
                                                           std::size_t each) {
  std::vector<std::pair<std::string, std::string>> all;
  event_stream s{[&](const event_stream::event& e) {
    all.emplace_back(e.kind, e.data);
    return true;
  }};
  for (std::size_t at = 0; at < bytes.size(); at += each) s.take(bytes.substr(at, each));
  s.end();
  return all;
}

std::string stream_of(const std::vector<std::string>& events, const std::string& line = "\n") {
  std::string all;
  for (const auto& e : events) all += "data: " + e + line + line;
  return all;
}

const std::string first = R"({"choices": [{"index": 0, "text": "Hel"}]})",
                  last = R"({"choices": [{"index": 0, "text": "lo", "finish_reason": "stop"}]})";

}  // namespace

TEST_CASE("an event stream is read as WHATWG has it, in pieces of any size") {
  using all = std::vector<std::pair<std::string, std::string>>;
  const std::vector<std::pair<std::string, all>> cases{
      {"data: a\n\ndata:b\n\n", {{"", "a"}, {"", "b"}}},
      {"data: a\r\n\r\ndata: b\r\r", {{"", "a"}, {"", "b"}}},
      {"\xEF\xBB\xBF"
       "data:  a\n\n",
       {{"", " a"}}},
      {"data: a\ndata: b\n\n", {{"", "a\nb"}}},
      {": comment\n\nid: 7\nretry: 5\nevent: x\ndata: a\n\n", {{"x", "a"}}},
      {"event: x\n\ndata: a\n\n", {{"", "a"}}},
      {"data\n\ndata: a\n\n", {{"", ""}, {"", "a"}}},
      {"error: {}\n\n", {{"error", "{}"}}},
      {"data: a\n\ndata: [DONE]", {{"", "a"}, {"", "[DONE]"}}},
      {"\n\n\n", {}}};
  for (const auto& [bytes, expected] : cases)
    for (std::size_t each = 1; each <= bytes.size(); ++each) {
      INFO(bytes << " in pieces of " << each);
      CHECK(events_of(bytes, each) == expected);
    }
}

TEST_CASE("infer reads any server's stream, with [DONE] or a reason at its end") {
  for (const auto& body : {stream_of({first, last, "[DONE]"}), stream_of({first, last}, "\r\n"),
                           stream_of({first, last, "[DONE]"}, "\r")}) {
    other_server s{200, "text/event-stream", body};
    const auto d = s.ask();
    REQUIRE(d);
    CHECK(d->at("text") == "Hello");
    CHECK(s.shown == "Hello");
    CHECK(d->at("finish_reason") == "stop");
  }
  other_server whole{200, "application/json",
                     R"({"choices": [{"message": {"role": "assistant", "content": "Hello"},
                         "finish_reason": "stop"}], "usage": {"prompt_tokens": 2}})"};
  const auto d = whole.ask(true);
  REQUIRE(d);
  CHECK(d->at("text") == "Hello");
  CHECK(d->at("prompt_tokens") == 2);
  other_server cut{200, "text/event-stream", stream_of({first})};
  CHECK_THAT(cut.error(), Contains("without a finish_reason and without [DONE]"));
  other_server none{200, "application/json", "[]"};
  CHECK_THAT(none.error(), Contains("its answer is not one of OpenAI's API"));
}

TEST_CASE("infer sends another server only what was asked for, and ours what it needs to compare") {
  other_server other{200, "text/event-stream", stream_of({last})};
  REQUIRE(other.ask());
  CHECK(other.seen == json{{"model", "other"}, {"stream", true}, {"prompt", "Hi"}});
  REQUIRE(other.ask(true, "named"));
  CHECK(other.seen == json{{"model", "named"},
                           {"stream", true},
                           {"messages", {{{"role", "user"}, {"content", "Hi"}}}}});
  remote_prompt p;
  p.url = "http://127.0.0.1:" + std::to_string(other.server->port());
  p.text = "Hi";
  p.stops = {"x"};
  p.what.how.top_k = 5;
  p.given.top_k = true;
  REQUIRE(complete_remotely(p, [](std::string_view) {}));
  CHECK(other.seen.size() == 5);
  CHECK(other.seen.at("top_k") == 5);
  CHECK(other.seen.at("stop") == json{"x"});
  other_server ours{200, "text/event-stream", stream_of({last}), "troupe"};
  REQUIRE(ours.ask());
  CHECK(ours.seen.at("temperature") == 0);
  CHECK(ours.seen.at("return_token_ids") == true);
}

TEST_CASE("infer shows every form of error") {
  for (const std::string form :
       {R"({"error": {"message": "no such model", "type": "x"}})",
        R"({"object": "error", "message": "no such model", "code": 400})",
        R"({"detail": "no such model"})",
        R"({"detail": [{"loc": ["body"], "msg": "no such model"}]})",
        R"({"error": "no such model"})", R"({"errors": ["no such model"]})", "no such model\n",
        "<html><body><h1>no such model</h1></body></html>"}) {
    other_server s{400, "application/json", form};
    INFO(form);
    CHECK_THAT(s.error(), Contains(" answers 400: ") && Catch::EndsWith("no such model"));
    CHECK(sentence_of_error(form) == "no such model");
  }
  CHECK(sentence_of_error("").empty());
  CHECK(sentence_of_error(std::string(2000, 'a')).size() < 600);
  for (const auto& body : {stream_of({first, R"({"error": {"message": "it broke"}})"}),
                           stream_of({R"({"object": "error", "message": "it broke"})"}),
                           std::string{"event: error\ndata: it broke\n\n"},
                           std::string{"error: {\"message\": \"it broke\"}\n\n"},
                           std::string{R"({"detail": "it broke"})"}}) {
    other_server s{200, "text/event-stream", body};
    CHECK_THAT(s.error(), Catch::EndsWith(": it broke"));
  }
}

TEST_CASE("the program sends another server the options that it was given, and shows no count") {
  other_server other{200, "text/event-stream", stream_of({first, last})};
  const auto infer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"infer", "Hi", "--url",
                               "http://127.0.0.1:" + std::to_string(other.server->port())});
    const auto r = troupe::test::troupe(more);
    INFO(r.err);
    CHECK(r.status == 0);
    CHECK(r.err.find("null") == std::string::npos);
    return r;
  };
  const auto plain = infer({});
  CHECK(plain.out == "Hello\n");
  CHECK_THAT(plain.err, Contains("finish reason stop") && !Contains("prompt tokens"));
  CHECK(other.seen == json{{"model", "other"}, {"stream", true}, {"prompt", "Hi"}});
  const auto whole = infer({"--json"});
  CHECK(whole.document().at("text") == "Hello");
  infer({"--temperature", "0", "--top-p", "1", "--top-k", "0", "--seed", "0", "--max-tokens", "16",
         "--stop", "x"});
  CHECK(other.seen == json{{"model", "other"},
                           {"stream", true},
                           {"max_tokens", 16},
                           {"temperature", 0},
                           {"top_p", 1},
                           {"top_k", 0},
                           {"seed", 0},
                           {"stop", json::array({"x"})},
                           {"prompt", "Hi"}});
}
