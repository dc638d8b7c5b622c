#include <signal.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/wait.hpp"
#include "web/raw_client.hpp"
#include "web/troupe_server.hpp"

using namespace troupe;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

// The end of a real `troupe serve`: what becomes of the requests that it has begun.

namespace {

using client = std::unique_ptr<raw_client>;

client asking(const server& s, int tokens, bool stream = true) {
  auto c = std::make_unique<raw_client>(s.port);
  json body{{"model", "scribe"},
            {"prompt", "The President"},
            {"max_tokens", tokens},
            {"ignore_eos", true},
            {"stream", stream}};
  if (stream) body["stream_options"] = {{"include_usage", true}};
  c->send(post(completions, body.dump()));
  return c;
}

int status_of(server& s) {
  std::optional<int> status;
  CHECK(runtime::wait_until([&] { return (status = s.process().poll()).has_value(); }, long_s));
  return status.value_or(-1);
}

}  // namespace

TEST_CASE("120 streams are written to their ends after SIGTERM, and new requests get 503") {
  server s{{"--running", "120"}};
  std::vector<client> all;
  for (int i = 0; i < 120; ++i) all.push_back(asking(s, 60));
  raw_client late{s.port};
  REQUIRE(all.back()->wait_for("data: "));
  ::kill(s.process().id(), SIGTERM);
  const auto health = [&] { return s.ask(get("/health")); };
  REQUIRE(runtime::wait_until([&] { return health().status == 503; }, soon_s, 0.01));
  late.send(post(completions, R"({"model": "scribe", "prompt": "a"})"));
  const auto refused = late.answer();
  CHECK(refused.status == 503);
  CHECK(refused.fields.at("retry-after") == "1");
  CHECK(refused.fields.at("connection") == "close");
  CHECK_THAT(refused.body, Contains("the server is ending"));
  for (const auto& c : all) {
    const auto a = c->answer();
    CHECK(a.whole);
    CHECK(a.body.ends_with("data: [DONE]\n\n"));
    CHECK_THAT(a.body, Contains("\"completion_tokens\":60"));
  }
  CHECK(status_of(s) == 0);
}

TEST_CASE("an answer that the grace or a second signal cuts ends with an error") {
  for (const bool second : {false, true}) {
    server s{{"--grace", second ? "60" : "0.2"}};
    const auto stream = asking(s, 480);
    REQUIRE(stream->wait_for("data: "));
    // They keep the stream from its end, and wait themselves.
    std::vector<client> whole;
    for (int i = 0; i < 64; ++i) whole.push_back(asking(s, 480, false));
    REQUIRE(runtime::wait_until([&] { return s.metric("troupe_sequences{state=\"waiting\"}") > 0; },
                                soon_s, 0.01));
    ::kill(s.process().id(), SIGTERM);
    if (second) {
      REQUIRE(
          runtime::wait_until([&] { return s.ask(get("/health")).status == 503; }, soon_s, 0.01));
      ::kill(s.process().id(), SIGINT);
    }
    const auto a = stream->answer();
    CHECK(a.status == 200);
    CHECK_FALSE(a.whole);
    CHECK_THAT(a.body, Contains("\"error\"") && Contains("the server has ended"));
    const auto b = whole.back()->answer();
    CHECK(b.status == 503);
    CHECK_THAT(b.body, Contains("the server has ended"));
    CHECK(status_of(s) == 0);
  }
}

TEST_CASE("a server without requests ends at once after SIGTERM, with status 0") {
  server s;
  ::kill(s.process().id(), SIGTERM);
  CHECK(status_of(s) == 0);
}
