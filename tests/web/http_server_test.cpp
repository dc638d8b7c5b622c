#include "web/http/http_server.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>

#include "runtime/host/wait.hpp"
#include "web/http/http_rules.hpp"
#include "web/raw_client.hpp"

using namespace troupe;
using namespace troupe::test;
using Catch::Contains;

// HTTP as raw bytes, against a handler whose answer repeats its request.

namespace {

/// Answers with the request; /stream: in pieces; /never: keeps the reply.
struct echo_server {
  explicit echo_server(const web::http_limits& limits = {}) {
    auto started = web::http_server::start(
        "127.0.0.1", 0, limits,
        [this](const web::http_request& r, std::shared_ptr<web::http_reply> reply) {
          handle(r, std::move(reply));
        });
    REQUIRE(started);
    server = std::move(*started);
  }

  void handle(const web::http_request& r, std::shared_ptr<web::http_reply> reply) {
    reply->when_gone([this] { ++gone; });
    if (r.path == "/never" || r.path == "/stream" || r.path == "/promise") {
      if (r.path == "/promise") reply->promise_stream({200, "text/event-stream", {}, {}});
      if (r.path == "/stream") {
        const bool events = r.body == "events";
        reply->begin_stream({200, events ? "text/event-stream" : "text/plain", {}, {}});
        reply->piece("one ");
        reply->piece("two");
      }
      const std::lock_guard hold{mutex};
      kept.push_back(std::move(reply));
      ++streams;
      return;
    }
    reply->whole({200, "text/plain", r.method + " " + r.path + " " + r.body, {}});
  }

  std::shared_ptr<web::http_reply> last() {
    const std::lock_guard hold{mutex};
    return kept.empty() ? nullptr : kept.back();
  }

  std::atomic<int> gone{0}, streams{0};  // streams: replies that are kept
  std::mutex mutex;
  std::vector<std::shared_ptr<web::http_reply>> kept;
  std::unique_ptr<web::http_server> server;
};

}  // namespace

TEST_CASE("a connection is kept for a hundred requests") {
  echo_server s;
  raw_client c{s.server->port()};
  for (int i = 0; i < 100; ++i) {
    c.send(post("/a?b=c", "text"));
    const auto a = c.answer();
    REQUIRE(a.status == 200);
    CHECK(a.body == "POST /a text");
  }
  CHECK(s.gone == 0);
}

TEST_CASE("pipelined requests are answered in their order, also behind a stream") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send(get("/first") + get("/stream") + post("/third", "x") + get("/fourth"));
  CHECK(c.answer().body == "GET /first ");
  REQUIRE(c.wait_for("two"));
  CHECK(s.gone == 0);
  s.last()->end(true);
  const auto stream = c.answer();
  CHECK(stream.body == "one two");
  CHECK(stream.whole);
  CHECK(c.answer().body == "POST /third x");
  CHECK(c.answer().body == "GET /fourth ");
}

TEST_CASE("an answer to HEAD has a length and no body") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n" + get("/b"));
  const auto a = c.answer(true);
  CHECK(a.status == 200);
  CHECK(a.fields.at("content-length") == "8");
  CHECK(c.answer().body == "GET /b ");
}

TEST_CASE("HTTP/1.0 gets a stream without chunks, and the end of the connection") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send("GET /stream HTTP/1.0\r\n\r\n");
  REQUIRE(c.wait_for("two"));
  s.last()->end(true);
  const auto a = c.answer();
  CHECK(a.body == "one two");
  CHECK_FALSE(a.fields.contains("transfer-encoding"));
}

TEST_CASE("a chunked request, and one that waits for permission, are read") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send(
      "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n"
      "0\r\n\r\n");
  CHECK(c.answer().body == "POST /a abc");
  c.send("POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  CHECK(c.answer().status == 100);
  c.send("xy");
  CHECK(c.answer().body == "POST /b xy");
}

TEST_CASE("requests that are too large or too slow, or no HTTP, get a status and the end") {
  web::http_limits limits;
  limits.header_s = 0.2;
  limits.body_s = 0.2;
  echo_server s{limits};
  const auto refused = [&](const std::string& bytes) {
    raw_client c{s.server->port()};
    c.send(bytes);
    const auto a = c.answer();
    CHECK_THAT(a.body, Contains("\"error\""));
    CHECK(c.ended());
    return a.status;
  };
  CHECK(refused(post("/a", std::string(2 << 20, 'x'))) == 413);
  CHECK(refused("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" +
                std::string(0x200000, 'x')) == 413);
  CHECK(refused(get("/a", "X: " + std::string(64 << 10, 'x') + "\r\n")) == 431);
  CHECK(refused("GET /a HTTP/1.1\r\nHost") == 408);
  CHECK(refused("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab") == 408);
  CHECK(refused("this is no HTTP\r\n\r\n") == 400);
}

TEST_CASE(
    "a connection that sends nothing ends without an answer, after less time before its first "
    "request") {
  web::http_limits limits;
  limits.header_s = 0.2;
  echo_server s{limits};
  raw_client silent{s.server->port()}, kept{s.server->port()};
  kept.send(get("/a"));
  CHECK(kept.answer().status == 200);
  CHECK(silent.ended());
  kept.send(get("/b"));
  CHECK(kept.answer().status == 200);
  limits.idle_s = 0.2;
  echo_server impatient{limits};
  raw_client idle{impatient.server->port()};
  idle.send(get("/a"));
  CHECK(idle.answer().status == 200);
  CHECK(idle.ended());
}

TEST_CASE("requests that servers may read differently are refused") {
  echo_server s;
  const auto status = [&](const std::string& request) {
    raw_client c{s.server->port()};
    c.send(request);
    return c.answer().status;
  };
  CHECK(status("GET /a HTTP/1.1\r\n\r\n") == 400);
  CHECK(status("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
  CHECK(status("GET /a HTTP/1.0\r\n\r\n") == 200);
  const std::string chunks = "\r\n2\r\nab\r\n0\r\n\r\n";
  CHECK(status("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n" + chunks) ==
        400);
  CHECK(status("POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + chunks) == 400);
  CHECK(status("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n" + chunks) == 200);
}

TEST_CASE("a client that leaves behind a long pipelined request is noticed") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send(get("/never") + post("/a", std::string(200 << 10, 'x')));
  REQUIRE(runtime::wait_until([&] { return s.streams == 1; }, 30));
  CHECK(s.gone == 0);
  c.reset();
  CHECK(runtime::wait_until([&] { return s.gone == 1; }, 30));
}

TEST_CASE("a client that leaves is noticed while its answer is made, whole or a stream") {
  echo_server s;
  int left = 0;
  for (const char* path : {"/never", "/stream"}) {
    for (const bool hard : {false, true}) {
      raw_client c{s.server->port()};
      c.send(get(path));
      REQUIRE(runtime::wait_until([&] { return s.streams == left + 1; }, 30));
      if (path == std::string{"/stream"}) REQUIRE(c.wait_for("two"));
      CHECK(s.gone == left);
      if (hard) c.reset();
      if (!hard) {
        raw_client unrelated{s.server->port()};
        unrelated.send(get("/a"));
        CHECK(unrelated.answer().status == 200);
        CHECK(s.gone == left);
        c.reset();
      }
      ++left;
      CHECK(runtime::wait_until([&] { return s.gone == left; }, 30));
    }
  }
  for (const auto& r : s.kept) {  // late answers are ignored
    r->piece("x");
    r->end(true);
    r->whole({200, "text/plain", "x", {}});
  }
}

TEST_CASE("a stream that is cut has no end that could be taken for a complete one") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send(get("/stream"));
  REQUIRE(c.wait_for("two"));
  s.last()->end(false);
  CHECK_FALSE(c.answer().whole);
}

TEST_CASE("a stream whose client reads nothing is cut when too much is queued") {
  web::http_limits limits;
  limits.unread_bytes = 1 << 20;
  echo_server s{limits};
  raw_client c{s.server->port()};
  c.send(get("/stream"));
  REQUIRE(c.wait_for("two"));
  const std::string piece(64 << 10, 'x');
  for (int i = 0; i < 400 && s.gone == 0; ++i) s.last()->piece(piece);
  CHECK(runtime::wait_until([&] { return s.gone == 1; }, 30));
}

TEST_CASE("beyond the allowed connections the oldest one that waits is closed") {
  web::http_limits limits;
  limits.connections = 3;
  echo_server s{limits};
  raw_client answered{s.server->port()};
  answered.send(get("/never"));
  REQUIRE(runtime::wait_until([&] { return s.streams == 1; }, 30));
  raw_client silent{s.server->port()}, partial{s.server->port()};
  partial.send("GET /a HT");
  raw_client first{s.server->port()};
  first.send(get("/never"));
  CHECK(silent.ended());
  REQUIRE(runtime::wait_until([&] { return s.streams == 2; }, 30));
  raw_client second{s.server->port()};
  second.send(get("/never"));
  CHECK(partial.ended());
  REQUIRE(runtime::wait_until([&] { return s.streams == 3; }, 30));
  CHECK(s.gone == 0);
}

TEST_CASE("a client gets 503 while all allowed connections are being answered") {
  web::http_limits limits;
  limits.connections = 2;
  echo_server s{limits};
  raw_client a{s.server->port()}, b{s.server->port()};
  for (auto* c : {&a, &b}) c->send(get("/never"));
  REQUIRE(runtime::wait_until([&] { return s.streams == 2; }, 30));
  {
    raw_client c{s.server->port()};
    c.send(get("/a"));
    CHECK(c.answer().status == 503);
  }
  a.reset();
  CHECK(runtime::wait_until(
      [&] {
        raw_client c{s.server->port()};
        c.send(get("/a"));
        return c.answer().status == 200;
      },
      30));
}

TEST_CASE("a server ends while answers are being made, and these may outlive it") {
  auto s = std::make_unique<echo_server>();
  raw_client c{s->server->port()}, idle{s->server->port()};
  c.send(get("/stream"));
  REQUIRE(c.wait_for("two"));
  const auto reply = s->last();
  s->server.reset();
  reply->piece("three");
  reply->end(true);
  CHECK_FALSE(c.answer().whole);
  CHECK(idle.ended());
}

TEST_CASE("an address that cannot be listened on is refused with a sentence") {
  const auto start = [](const char* host, std::uint16_t port) {
    return web::http_server::start(host, port, {}, [](const auto&, const auto&) {});
  };
  const auto one = start("localhost", 0);
  REQUIRE(one);
  const auto other = start("127.0.0.1", (*one)->port());
  REQUIRE_FALSE(other);
  CHECK_THAT(other.error().text, Contains("cannot listen on 127.0.0.1"));
  CHECK_FALSE(start("not-an-address", 0));
  CHECK(*web::is_loopback("127.0.0.9"));
  CHECK(*web::is_loopback("::1"));
  CHECK(*web::is_loopback("localhost"));
  CHECK_FALSE(*web::is_loopback("0.0.0.0"));
  CHECK_FALSE(*web::is_loopback("::"));
}

TEST_CASE("a stream of events without an event gets a comment now and then, other streams do not") {
  web::http_limits limits;
  limits.keep_alive_s = 0.05;
  echo_server s{limits};
  raw_client events{s.server->port()}, other{s.server->port()};
  events.send(post("/stream", "events"));
  other.send(post("/stream", "text"));
  CHECK(events.wait_for(": keep-alive"));
  REQUIRE(runtime::wait_until([&] { return s.streams == 2; }, 15));
  for (const auto& reply : s.kept) reply->end(true);
  const auto a = events.answer();
  CHECK(a.whole);
  CHECK_THAT(a.body, Contains("two: keep-alive\n\n"));
  CHECK(other.answer().body == "one two");
}

TEST_CASE("a promised stream that waits for its first event begins with a comment") {
  web::http_limits limits;
  limits.keep_alive_s = 0.05;
  echo_server s{limits};
  raw_client c{s.server->port()};
  c.send(get("/promise"));
  REQUIRE(c.wait_for(": keep-alive"));
  s.last()->begin_stream({200, "text/event-stream", {}, {{"X-Late", "1"}}});
  s.last()->piece("data: 1\n\n");
  s.last()->end(true);
  const auto a = c.answer();
  CHECK(a.status == 200);
  CHECK(a.whole);
  CHECK(a.fields.at("content-type") == "text/event-stream");
  CHECK_THAT(a.body, Catch::StartsWith(": keep-alive\n\n") && Catch::EndsWith("data: 1\n\n"));
}

TEST_CASE("a promised stream that fails has a status before its head, and an event after it") {
  web::http_limits limits;
  limits.keep_alive_s = 0.3;
  echo_server s{limits};
  raw_client early{s.server->port()}, late{s.server->port()};
  early.send(get("/promise"));
  REQUIRE(runtime::wait_until([&] { return s.streams == 1; }, 15));
  s.last()->fail({429, "text/plain", "no", {}}, "data: no\n\n");
  CHECK(early.answer().status == 429);
  late.send(get("/promise"));
  REQUIRE(late.wait_for(": keep-alive"));
  s.last()->fail({429, "text/plain", "no", {}}, "data: no\n\n");
  const auto a = late.answer();
  CHECK(a.status == 200);
  CHECK_FALSE(a.whole);
  CHECK_THAT(a.body, Catch::EndsWith("data: no\n\n"));
}

TEST_CASE("an answer has the id that its request has, or one of its own, and a date") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send(get("/a", "X-Request-Id: 7\r\n") + get("/b"));
  CHECK(c.answer().fields.at("x-request-id") == "7");
  const auto own = c.answer().fields;
  c.send(get("/b") + "nothing\r\n\r\n");
  CHECK(own.at("x-request-id").size() > 16);
  CHECK(c.answer().fields.at("x-request-id") != own.at("x-request-id"));
  CHECK(c.answer().fields.at("x-request-id") != own.at("x-request-id"));  // a refusal
  CHECK(web::http_date(784111777) == "Sun, 06 Nov 1994 08:49:37 GMT");
  CHECK(own.at("date").size() == web::http_date(0).size());
}

TEST_CASE("a stream tells proxies not to hold it back") {
  echo_server s;
  raw_client c{s.server->port()};
  c.send(get("/stream"));
  REQUIRE(runtime::wait_until([&] { return s.streams == 1; }, 10));
  s.last()->end(true);
  CHECK(c.answer().fields.at("x-accel-buffering") == "no");
}

TEST_CASE("a server that ends closes each connection behind its answer, and knows what is left") {
  echo_server s;
  raw_client busy{s.server->port()}, idle{s.server->port()};
  idle.send(get("/a"));
  CHECK(idle.answer().status == 200);
  busy.send(get("/stream"));
  REQUIRE(runtime::wait_until([&] { return s.streams == 1; }, 10));
  s.server->close_after_answers();
  CHECK(s.server->answering() == 1);
  idle.send(get("/a"));
  CHECK(idle.answer().fields.at("connection") == "close");
  CHECK(idle.ended());
  s.last()->end(true);
  CHECK(busy.answer().whole);
  CHECK(runtime::wait_until([&] { return s.server->answering() == 0; }, 10));
}

TEST_CASE("bodies that together take too much memory are refused, and leave none taken") {
  web::http_limits limits;
  limits.body_bytes = 1000;
  limits.bodies_bytes = 1500;
  limits.small_body_bytes = 700;
  echo_server s{limits};
  const auto begun = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
  {
    raw_client first{s.server->port()}, second{s.server->port()};
    first.send(begun + std::string(900, 'a'));
    // Its own part of the body is in memory once a further request has been answered.
    raw_client other{s.server->port()};
    other.send(get("/a"));
    CHECK(other.answer().status == 200);
    second.send(begun + std::string(900, 'a'));
    const auto refused = second.answer();
    CHECK(refused.status == 503);
    CHECK(refused.fields.at("retry-after") == "1");
    raw_client small{s.server->port()};
    small.send(post("/a", std::string(700, 'c')));
    CHECK(small.answer().status == 200);
    small.send(get("/a"));  // its body does not count any more
    CHECK(small.answer().status == 200);
    first.send(std::string(100, 'a'));
    CHECK(first.answer().status == 200);
  }
  for (int i = 0; i < 4; ++i) {
    raw_client c{s.server->port()};
    c.send(post("/a", std::string(1000, 'b')));
    CHECK(c.answer().status == 200);
  }
}
