#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Requests, and how they are answered.

namespace troupe::web {

struct http_limits {
  std::uint64_t body_bytes = 1 << 20;      // 413 beyond it
  std::uint64_t bodies_bytes = 256 << 20;  // of all that are on the way or answered: 503 beyond it
  std::uint64_t small_body_bytes = 256 << 10;  // one that is taken in any case
  std::uint32_t header_bytes = 16 << 10;       // 431
  double header_s = 10, body_s = 30;           // 408
  double idle_s = 75;  // between requests, and for a client that reads nothing; header_s before the
                       // first request
  /// Beyond these the connection that has been without a whole request for longest is closed; if
  /// all are being answered, the new one gets 503.
  std::uint32_t connections = 1024;
  double keep_alive_s = 10;  // a stream of events gets a comment after so long without an event
  std::uint64_t unread_bytes = 4 << 20;  // of a stream whose client does not read: it is cut
};

struct http_request {
  std::string method, path;                       // decoded, without the query
  std::string content_type, authorization, host;  // header fields; empty: none
  std::string request_id;  // the client's X-Request-Id, or one of this server's own
  std::string body;
  std::string query{};  // what follows the path's "?"
  // Header fields Origin, Sec-Fetch-Site, Access-Control-Request-Headers.
  std::string origin{}, fetch_site{}, asked_fields{};
  std::string content_encoding{};  // of all fields of that name
};

using http_fields = std::vector<std::pair<std::string, std::string>>;

struct http_answer {
  int status = 200;
  std::string content_type;  // empty: no body
  std::string body;
  http_fields fields;  // further ones
};

/// The answer to one request: whole(), or begin_stream(), pieces and end(); or fail(). Thread-safe,
/// may outlive the server; what comes after the end, or once the client has left, is ignored.
class http_reply {
 public:
  virtual ~http_reply() = default;

  virtual void whole(http_answer a) = 0;

  /// Announces a stream, or fail(): if nothing comes for `keep_alive_s`, its head is sent, and a
  /// comment. Proxies, and clients, give up connections on which nothing passes.
  virtual void promise_stream(http_answer a) = 0;
  /// Status 200; a.body is ignored. Of a promised stream whose head has been sent, all is ignored.
  virtual void begin_stream(http_answer a) = 0;
  /// An answer without a success: `a`, or, if a stream's head has been sent, this piece, and an end
  /// that is not complete.
  virtual void fail(http_answer a, std::string last_piece) = 0;
  virtual void piece(std::string bytes) = 0;
  /// complete: false: the connection is closed so that the client can distinguish it from an end.
  virtual void end(bool complete) = 0;

  /// To be called once, from the handler: `gone` is called on the server's thread if the client
  /// leaves before the answer has an end.
  virtual void when_gone(std::function<void()> gone) = 0;
};

/// Answers a request, at once or later. Called on the server's thread.
using http_handler = std::function<void(const http_request&, std::shared_ptr<http_reply>)>;

}  // namespace troupe::web
