#include "web/http/http_server.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "runtime/host/real_clock.hpp"
#include "web/http/http_session.hpp"

namespace troupe::web {

namespace {

namespace asio = boost::asio;
using error = boost::system::error_code;
using tcp = asio::ip::tcp;

expected<asio::ip::address> address_of(const std::string& host) {
  error bad;
  const auto a = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, bad);
  if (bad)
    return refuse(reason::kind::invalid,
                  fmt::format("--host: found '{}', expected an IP address or localhost", host));
  return a;
}

}  // namespace

class http_server::listener {
 public:
  listener(const http_limits& limits, http_handler handler) {
    shared_->limits = limits;
    // Differs from start to start; it need not be secret.
    shared_->random =
        random_source{static_cast<std::uint64_t>(runtime::real_clock{}.wall_s() * 1e9) ^
                      static_cast<std::uint64_t>(::getpid()) << 44};
    shared_->handler = std::move(handler);
  }
  ~listener() {
    shared_->over = true;
    if (!thread_.joinable()) return;
    // Everything ends by itself: what is left in an io_context that is stopped would own sessions.
    asio::post(shared_->io, [this] {
      error ignored;
      acceptor_.close(ignored);
      again_.cancel();
      // A copy: close() erases from the table.
      for (const auto& [number, s] : std::map{shared_->open}) s->close();
    });
    thread_.join();
    // Replies may outlive the server and own `shared_`; the handler refers to the server's owner.
    shared_->handler = {};
  }
  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;

  expected<void> open(const std::string& host, std::uint16_t port) {
    const auto address = address_of(host);
    if (!address) return refuse(address.error());
    const tcp::endpoint at{*address, port};
    error bad;
    acceptor_.open(at.protocol(), bad);
    // A restarted server takes its port over from connections in TIME_WAIT.
    if (!bad) acceptor_.set_option(tcp::acceptor::reuse_address{true}, bad);
    if (!bad) acceptor_.bind(at, bad);
    if (!bad) acceptor_.listen(tcp::acceptor::max_listen_connections, bad);
    if (bad)
      return refuse(reason::kind::unavailable,
                    fmt::format("cannot listen on {}, port {}: {}", host, port, bad.message()));
    // Port 0 let the kernel choose.
    port_ = acceptor_.local_endpoint(bad).port();
    accept();
    // All sessions and the handler run on this one thread, so they need no locks.
    thread_ = std::thread{[this] { shared_->io.run(); }};
    return {};
  }
  std::uint16_t port() const { return port_; }
  void close_after_answers() { shared_->ending = true; }
  std::size_t answering() const {
    std::promise<std::size_t> found;
    asio::post(shared_->io, [&] {
      const auto& open = shared_->open;
      found.set_value(static_cast<std::size_t>(
          std::ranges::count_if(open, [](const auto& s) { return s.second->answers(); })));
    });
    return found.get_future().get();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](error bad, tcp::socket s) {
      if (shared_->over) return;
      if (!bad) start_session(shared_, std::move(s));
      if (!bad) return accept();
      // No descriptors, most likely: some may be free soon.
      again_.expires_after(std::chrono::milliseconds{100});
      again_.async_wait([this](error stopped) {
        if (!stopped && !shared_->over) accept();
      });
    });
  }

  const std::shared_ptr<http_connections> shared_ = std::make_shared<http_connections>();
  tcp::acceptor acceptor_{shared_->io};
  asio::steady_timer again_{shared_->io};
  std::uint16_t port_ = 0;
  std::thread thread_;
};

http_server::http_server(std::unique_ptr<listener> l) : listener_{std::move(l)} {}
http_server::~http_server() = default;

expected<std::unique_ptr<http_server>> http_server::start(const std::string& host,
                                                          std::uint16_t port,
                                                          const http_limits& limits,
                                                          http_handler handler) {
  auto l = std::make_unique<listener>(limits, std::move(handler));
  if (auto ok = l->open(host, port); !ok) return refuse(ok.error());
  return std::unique_ptr<http_server>{new http_server{std::move(l)}};
}

std::uint16_t http_server::port() const {
  return listener_->port();
}

void http_server::close_after_answers() {
  listener_->close_after_answers();
}

std::size_t http_server::answering() const {
  return listener_->answering();
}

expected<bool> is_loopback(const std::string& host) {
  const auto a = address_of(host);
  if (!a) return refuse(a.error());
  return a->is_loopback();
}

}  // namespace troupe::web
