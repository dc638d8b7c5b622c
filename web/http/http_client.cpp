#include "web/http/http_client.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <limits>

#include "messages/base/whole_number.hpp"
#include "web/http/beast_text.hpp"

namespace troupe::web {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using error = boost::system::error_code;
using tcp = asio::ip::tcp;

/// One request on a connection of its own. Operations are asynchronous, for their time limits.
class exchange {
 public:
  exchange(const server_place& at, const client_request& r) : at_{at}, request_{r} {}

  expected<client_answer> run(const std::function<bool(std::string_view)>& piece) {
    if (auto bad = connect()) return trouble("cannot be reached", bad);
    if (auto bad = send()) return trouble("cannot be sent the request", bad);
    // Without a limit Boost 1.74 refuses every body.
    parser_.body_limit(std::numeric_limits<std::uint64_t>::max());
    if (auto bad =
            wait([&](auto done) { http::async_read_header(stream_, buffer_, parser_, done); }))
      return trouble("does not answer", bad);
    client_answer a;
    const auto& head = parser_.get();
    a.status = static_cast<int>(head.result_int());
    a.content_type = text_of(head[http::field::content_type]);
    for (const auto& f : head) a.fields.emplace_back(text_of(f.name_string()), text_of(f.value()));
    if (auto bad = read_body(a, a.status == 200 ? piece : nullptr))
      return trouble("closed the connection before the end of its answer", bad);
    return a;
  }

 private:
  tl::unexpected<reason> trouble(const char* what, error why) const {
    return refuse(reason::kind::unavailable,
                  fmt::format("http://{}:{} {}: {}", at_.host, at_.port, what, why.message()));
  }

  /// Runs one operation to its end, or to the time limit.
  template <class F>
  error wait(F begin) {
    stream_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(request_.patience_s)));
    error result;
    begin([&](error bad, auto&&...) { result = bad; });
    // run() returns when the only operation has ended; restart() lets the next one run.
    io_.restart();
    io_.run();
    return result;
  }

  error connect() {
    error bad;
    tcp::resolver names{io_};
    // Resolution has no time limit: Asio would cancel only its handler, not getaddrinfo.
    const auto found = names.resolve(at_.host, std::to_string(at_.port), bad);
    if (bad) return bad;
    return wait([&](auto done) { stream_.async_connect(found, done); });
  }

  error send() {
    http::request<http::string_body> q;
    q.version(11);
    q.method_string(request_.method);
    q.target(at_.prefix + request_.path);
    q.set(http::field::host, fmt::format("{}:{}", at_.host, at_.port));
    // One exchange per connection: a kept one would have to be watched for the server's end.
    q.set(http::field::connection, "close");
    if (!request_.key.empty()) q.set(http::field::authorization, "Bearer " + request_.key);
    if (!request_.body.empty()) q.set(http::field::content_type, "application/json");
    q.body() = request_.body;
    q.prepare_payload();
    return wait([&](auto done) { http::async_write(stream_, q, done); });
  }

  error read_body(client_answer& a, const std::function<bool(std::string_view)>& piece) {
    std::array<char, 4096> part{};
    while (!parser_.is_done()) {
      auto& body = parser_.get().body();
      body.data = part.data();
      body.size = part.size();
      auto bad = wait([&](auto done) { http::async_read_some(stream_, buffer_, parser_, done); });
      // buffer_body reports a full buffer so; it is the normal end of a read.
      if (bad == http::error::need_buffer) bad = {};
      const std::string_view fresh{part.data(), part.size() - body.size};
      if (!piece) a.body += fresh;
      // false: the caller wants no more, and closing the connection stops the server's work.
      else if (!fresh.empty() && !piece(fresh))
        return {};
      if (bad) return bad;
    }
    return {};
  }

  const server_place& at_;
  const client_request& request_;
  asio::io_context io_;
  beast::tcp_stream stream_{io_};
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
};

}  // namespace

expected<server_place> parse_url(const std::string& url) {
  const auto failure = [&] {
    return refuse(reason::kind::invalid,
                  fmt::format("--url: found '{}', expected http://HOST:PORT", url));
  };
  constexpr std::string_view scheme = "http://";
  if (!url.starts_with(scheme)) return failure();
  auto rest = url.substr(scheme.size());
  server_place at;
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    at.prefix = rest.substr(slash);
    rest.resize(slash);
  }
  while (at.prefix.ends_with('/')) at.prefix.pop_back();
  // "[::1]:80": the colons of an address are inside brackets.
  const auto after = rest.find(']');
  const auto colon = rest.find(':', after == std::string::npos ? 0 : after);
  at.host = rest.substr(0, colon);
  if (at.host.starts_with('[') && at.host.ends_with(']'))
    at.host = at.host.substr(1, at.host.size() - 2);
  if (at.host.empty()) return failure();
  if (colon == std::string::npos) return at;
  const auto port = whole_number<std::uint16_t>(rest.substr(colon + 1));
  if (!port) return failure();
  at.port = *port;
  return at;
}

expected<client_answer> ask(const server_place& at, const client_request& r,
                            const std::function<bool(std::string_view)>& piece) {
  exchange e{at, r};
  return e.run(piece);
}

}  // namespace troupe::web
