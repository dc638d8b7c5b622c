#include "web/http/http_session.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <sstream>
#include <utility>

#include "runtime/host/real_clock.hpp"
#include "web/http/beast_text.hpp"
#include "web/http/http_rules.hpp"
#include "web/http/request_target.hpp"

namespace troupe::web {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::flat_buffer;
using error = boost::system::error_code;
using tcp = asio::ip::tcp;

/// One connection. Everything runs on the server's thread. At any time it reads a request, or
/// answers one and watches for the client's departure.
class session final : public http_connection, public std::enable_shared_from_this<session> {
 public:
  session(std::shared_ptr<http_connections> shared, tcp::socket socket)
      : shared_{std::move(shared)},
        number_{++shared_->accepted},
        socket_{std::move(socket)},
        timer_{shared_->io},
        departure_{shared_->io} {
    error ignored;
    // Nagle's algorithm would hold back a stream's tokens for a round trip.
    socket_.set_option(tcp::no_delay{true}, ignored);
  }

  void start() {
    auto& open = shared_->open;
    open[number_] = shared_from_this();
    // Connections without a whole request are worth less than a new one: at the limit the oldest of
    // them makes room, and the new one is refused only if all are being answered.
    if (open.size() <= shared_->limits.connections || close_oldest_waiting())
      return wait_for_request(shared_->limits.header_s);
    // Refused connections are drained for a while; they must not pile up either.
    constexpr std::size_t refused_at_a_time = 64;
    if (open.size() > shared_->limits.connections + refused_at_a_time) return close();
    refuse_request(503, "too many connections");
  }
  bool waits() const override {
    return stage_ == stage::idle || stage_ == stage::header || stage_ == stage::body;
  }
  bool answers() const override { return stage_ == stage::answering; }
  void close() override {
    const auto self = shared_from_this();  // the table may be the last owner
    shared_->open.erase(number_);
    count_body(0);
    error ignored;
    stop_timer();
    departure_.cancel();
    socket_.close(ignored);
    ++turn_;
    if (auto gone = std::exchange(gone_, {})) gone();
  }

  // The answer to request number `turn`; others are over.
  void whole(std::uint64_t turn, http_answer a) {
    if (turn == turn_ && stage_ == stage::answering && !stream_) write_whole(std::move(a));
  }
  void promise_stream(std::uint64_t turn, http_answer a) {
    if (turn != turn_ || stage_ != stage::answering || stream_ || head_only_) return;
    // Until the head is sent, an error can still have its own status.
    within(shared_->limits.keep_alive_s, [this, a = std::move(a)] {
      write_stream_head(a);
      queue(std::string{keep_alive});
    });
  }
  void begin_stream(std::uint64_t turn, const http_answer& a) {
    if (turn != turn_ || stage_ != stage::answering || stream_) return;
    stop_timer();
    write_stream_head(a);
  }
  void fail(std::uint64_t turn, http_answer a, std::string last_piece) {
    if (turn != turn_ || stage_ != stage::answering) return;
    if (!stream_) return write_whole(std::move(a));
    piece(turn, std::move(last_piece));
    end_stream(turn, false);
  }
  void piece(std::uint64_t turn, std::string bytes) {
    if (turn != turn_ || stage_ != stage::answering || !stream_ || stream_->ends) return;
    if (!head_only_ && !bytes.empty()) queue(bytes);
  }
  void end_stream(std::uint64_t turn, bool complete) {
    if (turn != turn_ || stage_ != stage::answering || !stream_ || stream_->ends) return;
    stream_->ends = true;
    // Without a final chunk only the end of the connection ends the body.
    if (!complete || !chunked_) keep_ = false;
    if (complete && chunked_ && !head_only_) stream_->queued += "0\r\n\r\n";
    pump();
  }
  void when_gone(std::uint64_t turn, std::function<void()> gone) {
    if (turn == turn_ && stage_ == stage::answering) gone_ = std::move(gone);
  }

 private:
  enum class stage { idle, header, body, answering, draining };
  struct stream {
    std::string queued, written;
    bool writing = false, ends = false;
    bool events = false;  // server-sent
  };
  using parser = http::request_parser<http::string_body>;
  static constexpr std::string_view keep_alive = ": keep-alive\n\n";

  void queue(const std::string& bytes) {
    stream_->queued += chunked_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : bytes;
    // The generator does not wait for slow readers, so what they leave unread must have a bound.
    if (stream_->queued.size() > shared_->limits.unread_bytes) return close();
    pump();
  }

  /// Calls `late` after `s` seconds, unless the timer is set again.
  template <class F>
  void within(double s, F late) {
    timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(s)));
    // cancel() does not take back a handler that is queued already, but its number is an old one.
    timer_.async_wait([self = shared_from_this(), this, late, set = ++timer_set_](error) {
      if (set == timer_set_) late();
    });
  }
  void stop_timer() {
    ++timer_set_;
    timer_.cancel();
  }

  /// false: every other connection is being answered.
  bool close_oldest_waiting() {
    for (const auto& [number, other] : shared_->open)
      if (number != number_ && other->waits()) {
        const auto oldest = other;
        oldest->close();
        return true;
      }
    return false;
  }

  void wait_for_request(double patience_s) {
    count_body(0);
    stage_ = stage::idle;
    stream_.reset();
    // A pipelined request is in the buffer already.
    if (buffer_.size() > 0) return read_header();
    within(patience_s, [this] { close(); });
    read_some([this](error bad) { bad ? close() : read_header(); });
  }

  template <class F>
  void read_some(F then) {
    socket_.async_read_some(buffer_.prepare(8 << 10),
                            [self = shared_from_this(), this, then](error bad, std::size_t n) {
                              buffer_.commit(n);
                              then(bad);
                            });
  }

  void read_header() {
    stage_ = stage::header;
    parser_.emplace();
    parser_->header_limit(shared_->limits.header_bytes);
    parser_->body_limit(shared_->limits.body_bytes);
    late_ = false;
    within(shared_->limits.header_s, [this] { give_up_reading(); });
    http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this(), this](error bad, std::size_t) { after_header(bad); });
  }

  void give_up_reading() {
    late_ = true;
    error ignored;
    socket_.cancel(ignored);
  }

  void after_header(error bad) {
    if (bad || late_) return bad_request(bad);
    stage_ = stage::body;
    within(shared_->limits.body_s, [this] { give_up_reading(); });
    const auto& fields = parser_->get();
    if (!parser_->is_done() && boost::beast::iequals(fields[http::field::expect], "100-continue")) {
      // curl sends this header with large bodies, and waits a second for the answer.
      static const std::string go = "HTTP/1.1 100 Continue\r\n\r\n";
      asio::async_write(socket_, asio::buffer(go),
                        [self = shared_from_this(), this](error broken, std::size_t) {
                          broken ? close() : read_body();
                        });
      return;
    }
    read_body();
  }

  // Piece by piece: bodies take memory before anybody knows whose they are.
  void read_body() {
    if (parser_->is_done()) return handle();
    http::async_read_some(socket_, buffer_, *parser_,
                          [self = shared_from_this(), this](error broken, std::size_t) {
                            if (broken || late_) return bad_request(broken);
                            count_body(parser_->get().body().size());
                            // Large ones of others must not keep out small ones.
                            if (body_bytes_ > shared_->limits.small_body_bytes &&
                                shared_->bodies_bytes > shared_->limits.bodies_bytes)
                              return refuse_request(503, "too many large requests are on the way");
                            read_body();
                          });
  }

  /// Its body has that many bytes in memory now.
  void count_body(std::size_t bytes) {
    shared_->bodies_bytes += bytes;
    shared_->bodies_bytes -= std::exchange(body_bytes_, bytes);
  }

  void bad_request(error bad) {
    if (!socket_.is_open()) return close();
    if (late_) return refuse_request(408, "the request took too long to arrive");
    if (bad == http::error::header_limit || bad == http::error::buffer_overflow)
      return refuse_request(
          431, fmt::format("the header is longer than {} bytes", shared_->limits.header_bytes));
    if (bad == http::error::body_limit)
      return refuse_request(
          413, fmt::format("the body is longer than {} bytes", shared_->limits.body_bytes));
    // An error of the socket is a client that left; errors of the HTTP parser get an answer.
    const bool left = bad == http::error::end_of_stream || bad == http::error::partial_message ||
                      bad.category() != http::make_error_code(http::error::bad_method).category();
    left ? close() : refuse_request(400, "the request is not HTTP: " + bad.message());
  }

  /// An answer before, or instead of, the end of the request: the connection cannot go on.
  void refuse_request(int status, const std::string& sentence) {
    const bool later = status == 503;
    count_body(0);
    ++turn_;
    stage_ = stage::answering;
    stream_.reset();
    head_only_ = false;
    keep_ = false;
    version_ = 11;
    request_id_ = new_request_id();
    write_whole(
        {status, "application/json",
         fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":null}}}})",
                     sentence, later ? "server_error" : "invalid_request_error"),
         later ? http_fields{{"Retry-After", "1"}} : http_fields{}});
  }

  void handle();

  /// Reads on while a request is answered: the end of the stream is the client's departure, and
  /// what comes is a further request.
  void watch() {
    constexpr std::size_t max_pipelined_bytes = 64 << 10;
    if (watching_) return;
    // A client that pipelines without reading answers must not fill the memory.
    if (buffer_.size() > max_pipelined_bytes) return watch_for_departure();
    watching_ = true;
    read_some([this](error bad) {
      watching_ = false;
      if (stage_ != stage::answering) return;
      if (answered_) return next();
      bad ? close() : watch();
    });
  }

  /// Unread bytes hide the end of the stream from a read, so the kernel is polled for it instead.
  void watch_for_departure() {
    departure_.expires_after(std::chrono::milliseconds{500});
    departure_.async_wait([self = shared_from_this(), this, turn = turn_](error stopped) {
      if (stopped || turn != turn_ || stage_ != stage::answering) return;
      pollfd peer{socket_.native_handle(), POLLRDHUP, 0};
      if (::poll(&peer, 1, 0) > 0) return close();
      watch_for_departure();
    });
  }

  template <class Body>
  void set_fields(http::response<Body>& r, const http_answer& a) {
    r.version(version_);
    r.keep_alive(keep_);
    for (const auto& [name, value] : a.fields) r.set(name, value);
    if (!a.content_type.empty()) r.set(http::field::content_type, a.content_type);
    r.set(http::field::date, http_date(runtime::real_clock{}.wall_s()));
    r.set("X-Request-Id", request_id_);
  }

  std::string new_request_id() {
    return fmt::format("req-{:016x}{:016x}", shared_->random.next(), shared_->random.next());
  }

  void write_whole(http_answer a) {
    auto r = std::make_shared<http::response<http::string_body>>();
    r->result(static_cast<unsigned>(a.status));
    set_fields(*r, a);
    const auto size = a.body.size();
    if (!head_only_) r->body() = std::move(a.body);
    if (a.status != 204) r->content_length(size);
    gone_ = {};
    ++turn_;
    within(shared_->limits.idle_s, [this] { close(); });
    const auto written = [self = shared_from_this(), this, r](error bad, std::size_t) {
      bad ? close() : finish();
    };
    // HEAD gets the fields of GET, the length among them, and no body.
    if (!head_only_) return http::async_write(socket_, *r, written);
    auto head = std::make_shared<http::response_serializer<http::string_body>>(*r);
    http::async_write_header(socket_, *head,
                             [written, head](error bad, std::size_t n) { written(bad, n); });
  }

  void write_stream_head(const http_answer& a) {
    chunked_ = version_ == 11;
    if (!chunked_) keep_ = false;
    http::response<http::empty_body> r;
    set_fields(r, a);
    r.set(http::field::cache_control, "no-cache");
    // nginx would hold pieces back until it has some kilobytes.
    r.set("X-Accel-Buffering", "no");
    if (chunked_) r.chunked(true);
    std::ostringstream head;
    head << r.base();
    stream_.emplace();
    // The head goes through the queue, so that no piece overtakes it.
    stream_->queued = head.str();
    stream_->events = a.content_type.starts_with("text/event-stream");
    pump();
  }

  /// Writes what is queued of a stream, one write at a time.
  void pump() {
    auto& s = *stream_;
    if (s.writing) return;
    if (s.queued.empty()) {
      stop_timer();
      if (s.ends) return stream_over();
      // Proxies close connections on which nothing passes.
      if (s.events && !head_only_)
        within(shared_->limits.keep_alive_s, [this] { queue(std::string{keep_alive}); });
      return;
    }
    s.writing = true;
    // async_write needs `written` unchanged until it ends; later pieces collect in `queued`.
    s.written = std::exchange(s.queued, {});
    within(shared_->limits.idle_s, [this] { close(); });
    asio::async_write(socket_, asio::buffer(s.written),
                      [self = shared_from_this(), this](error bad, std::size_t) {
                        if (!socket_.is_open() || !stream_) return;
                        stream_->writing = false;
                        bad ? close() : pump();
                      });
  }

  void stream_over() {
    gone_ = {};
    ++turn_;
    finish();
  }

  /// The answer is written.
  void finish() {
    // A read of watch() may be pending on the socket; its handler, cancelled here, calls next().
    answered_ = true;
    if (!watching_) return next();
    error ignored;
    socket_.cancel(ignored);
  }

  void next() {
    answered_ = false;
    if (keep_) return wait_for_request(shared_->limits.idle_s);
    drain();
  }

  /// Bytes that are not read when a connection is closed make the peer's kernel drop the answer.
  void drain() {
    constexpr double longest_s = 2;
    if (stage_ != stage::draining) {
      stage_ = stage::draining;
      error ignored;
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
      within(longest_s, [this] { close(); });
    }
    buffer_.consume(buffer_.size());
    read_some([this](error bad) { bad ? close() : drain(); });
  }

  const std::shared_ptr<http_connections> shared_;
  const std::uint64_t number_;
  tcp::socket socket_;
  asio::steady_timer timer_, departure_;
  flat_buffer buffer_;
  std::optional<parser> parser_;
  stage stage_ = stage::idle;
  std::uint64_t turn_ = 1;  // answers to other turns are ignored
  std::uint64_t timer_set_ = 0;
  bool late_ = false, watching_ = false, answered_ = false;
  // The present request's.
  bool keep_ = false, head_only_ = false, chunked_ = false;
  std::size_t body_bytes_ = 0;  // counted in all connections' sum
  unsigned version_ = 11;
  std::string request_id_;
  std::optional<stream> stream_;
  std::function<void()> gone_;
};

/// Holds a session weakly, so that sessions end on the server's thread alone.
class reply final : public http_reply {
 public:
  reply(std::shared_ptr<http_connections> shared, std::weak_ptr<session> s, std::uint64_t turn)
      : shared_{std::move(shared)}, session_{std::move(s)}, turn_{turn} {}

  void whole(http_answer a) override { post(&session::whole, std::move(a)); }
  void promise_stream(http_answer a) override { post(&session::promise_stream, std::move(a)); }
  void fail(http_answer a, std::string last_piece) override {
    post(&session::fail, std::move(a), std::move(last_piece));
  }
  void begin_stream(http_answer a) override { post(&session::begin_stream, std::move(a)); }
  void piece(std::string bytes) override { post(&session::piece, std::move(bytes)); }
  void end(bool complete) override { post(&session::end_stream, complete); }
  void when_gone(std::function<void()> gone) override {
    // Without post(): the handler calls it on the server's thread, before the client's departure
    // can be seen.
    if (const auto s = session_.lock()) s->when_gone(turn_, std::move(gone));
  }

 private:
  /// Calls a function of the session on the server's thread.
  template <class Function, class... Values>
  void post(Function f, Values... values) {
    // The server's thread has ended: nothing would run it.
    if (shared_->over) return;
    asio::post(shared_->io, [s = session_, turn = turn_, f, ... v = std::move(values)]() mutable {
      if (const auto present = s.lock()) (present.get()->*f)(turn, std::move(v)...);
    });
  }

  const std::shared_ptr<http_connections> shared_;
  const std::weak_ptr<session> session_;
  const std::uint64_t turn_;
};

void session::handle() {
  stop_timer();
  stage_ = stage::answering;
  if (const auto* wrong = fault_of(parser_->get())) return refuse_request(400, wrong);
  auto m = parser_->release();
  keep_ = m.keep_alive() && !shared_->ending;
  version_ = m.version() == 10 ? 10 : 11;
  head_only_ = m.method() == http::verb::head;
  http_request r;
  r.method = text_of(m.method_string());
  auto target = parse_target(text_of(m.target()));
  if (!target) return refuse_request(400, target.error().text);
  r.path = std::move(target->path);
  r.query = std::move(target->query);
  // A target's own host goes before the field (RFC 9112, 3.2.2).
  r.host = target->authority.empty() ? text_of(m[http::field::host]) : target->authority;
  r.content_type = text_of(m[http::field::content_type]);
  r.authorization = text_of(m[http::field::authorization]);
  r.origin = text_of(m[http::field::origin]);
  r.fetch_site = text_of(m["Sec-Fetch-Site"]);
  r.asked_fields = text_of(m["Access-Control-Request-Headers"]);
  for (auto [at, end] = m.equal_range(http::field::content_encoding); at != end; ++at)
    r.content_encoding += (r.content_encoding.empty() ? "" : ", ") + text_of(at->value());
  request_id_ = text_of(m["X-Request-Id"]);
  if (request_id_.empty()) request_id_ = new_request_id();
  r.request_id = request_id_;
  r.body = std::move(m.body());
  shared_->handler(r, std::make_shared<reply>(shared_, weak_from_this(), turn_));
  watch();
}

}  // namespace

void start_session(std::shared_ptr<http_connections> shared, tcp::socket socket) {
  std::make_shared<session>(std::move(shared), std::move(socket))->start();
}

}  // namespace troupe::web
