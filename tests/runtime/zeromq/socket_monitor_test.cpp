#include "runtime/zeromq/socket_monitor.hpp"

#include <catch2/catch.hpp>

#include <memory>

#include "runtime/host/wait.hpp"

using namespace troupe::runtime;

namespace {

constexpr double limit_s = 10;

zmq::socket_t connect(zmq::context_t& context, const std::string& endpoint) {
  zmq::socket_t s{context, zmq::socket_type::dealer};
  s.set(zmq::sockopt::linger, 0);
  s.connect(endpoint);
  return s;
}

bool arrives(zmq::socket_t& from, zmq::socket_t& to) {
  from.send(zmq::buffer("a", 1), zmq::send_flags::none);
  to.set(zmq::sockopt::rcvtimeo, static_cast<int>(limit_s * 1000));
  zmq::message_t id, body;
  return to.recv(id) && to.recv(body);
}

bool reports(socket_monitor& m, int number) {
  return wait_until(
      [&] {
        for (auto e = m.next(); e.number != 0; e = m.next())
          if (e.number == number) return true;
        return false;
      },
      limit_s, 0.01);
}

}  // namespace

TEST_CASE("connections work and end after their monitor has been destroyed") {
  // The context of a blocked I/O thread cannot be destroyed: it is leaked if a check fails.
  auto* context = new zmq::context_t;
  {
    zmq::socket_t router{*context, zmq::socket_type::router};
    router.set(zmq::sockopt::linger, 0);
    auto monitor = std::make_unique<socket_monitor>(*context, router, "router",
                                                    ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
    router.bind("tcp://127.0.0.1:*");
    const auto endpoint = router.get(zmq::sockopt::last_endpoint);
    auto first = connect(*context, endpoint);
    REQUIRE(arrives(first, router));
    CHECK(reports(*monitor, ZMQ_EVENT_ACCEPTED));
    first.close();
    CHECK(reports(*monitor, ZMQ_EVENT_DISCONNECTED));

    monitor.reset();
    for (int i = 0; i < 5; ++i) {  // events that are never read
      auto next = connect(*context, endpoint);
      REQUIRE(arrives(next, router));
    }
  }
  delete context;
}
