#include "runtime/virtual/virtual_coordinator.hpp"

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include "messages/base/random.hpp"
#include "runtime/virtual/event_heap.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace std::chrono_literals;
using tick = caf::atom_constant<caf::atom("tick")>;

namespace {

struct virtual_system {
  struct config : caf::actor_system_config {
    config() { virtual_coordinator::install(*this); }
  };
  config cfg;
  caf::actor_system system{cfg};
  virtual_coordinator& time = virtual_coordinator::of(system);
};

/// Sends itself a tick every `period`, forever.
caf::behavior ticker(caf::event_based_actor* self, std::chrono::nanoseconds period, int* ticks) {
  self->delayed_send(self, period, tick::value);
  return {[=](tick) {
    ++*ticks;
    self->delayed_send(self, period, tick::value);
  }};
}

}  // namespace

TEST_CASE("the event heap orders by time, then by sequence, and survives removals") {
  event_heap heap;
  random_source random{7};
  std::uint64_t sequence = 0;
  for (int i = 0; i < 5000; ++i)
    heap.push(static_cast<std::int64_t>(random.below(100)), ++sequence, 0);
  heap.remove_if([](const event_heap::entry& e) { return e.sequence % 3 == 0; });
  event_heap::entry last{-1, 0, 0};
  std::size_t n = 0;
  for (; !heap.empty(); heap.pop(), ++n) {
    REQUIRE(last.before(heap.top()));
    REQUIRE(heap.top().sequence % 3 != 0);
    last = heap.top();
  }
  CHECK(n == 5000 - 5000 / 3);
}

TEST_CASE("events run in order of time, and at equal times in the order of their scheduling") {
  virtual_system v;
  std::string order;
  v.time.at(30, [&] { order += 'd'; });
  v.time.at(10, [&] { order += 'a'; });
  v.time.at(20, [&] {
    order += 'b';
    v.time.at(20, [&] { order += 'c'; });
    v.time.at(5, [&] { order += 'C'; });  // has passed: now
  });
  v.time.run();
  CHECK(order == "abcCd");
  CHECK(v.time.now() == 30);
  CHECK(v.time.events() == 5);
}

TEST_CASE("all actors woken by an event run before the next event of the same time") {
  virtual_system v;
  std::string order;
  auto second = v.system.spawn([&](caf::event_based_actor*) -> caf::behavior {
    return {[&](const std::string& s) { order += s + "2 "; }};
  });
  auto first = v.system.spawn([&](caf::event_based_actor* self) -> caf::behavior {
    return {[&, self](const std::string& s) {
      order += s + "1 ";
      self->send(second, s);
    }};
  });
  v.time.at(10, [&] { caf::anon_send(first, std::string{"a"}); });
  v.time.at(10, [&] { caf::anon_send(first, std::string{"b"}); });
  v.time.run();
  CHECK(order == "a1 a2 b1 b2 ");
}

TEST_CASE("a delayed send and a callback at the same time keep the order of their scheduling") {
  virtual_system v;
  std::string order;
  auto a = v.system.spawn([&](caf::event_based_actor* self) -> caf::behavior {
    self->delayed_send(self, 5ms, tick::value);
    v.time.at(5'000'000, [&] { order += 'c'; });
    self->delayed_send(self, 5ms, tick::value);
    return {[&](tick) { order += 't'; }};
  });
  v.time.run();
  CHECK(order == "tct");
  CHECK(v.time.now() == 5'000'000);
}

TEST_CASE("an actor's clock is the virtual one") {
  virtual_system v;
  std::vector<std::int64_t> seen;
  v.system.spawn([&](caf::event_based_actor* self) -> caf::behavior {
    self->delayed_send(self, 3s, tick::value);
    return {[&, self](tick) { seen.push_back(self->clock().now().time_since_epoch().count()); }};
  });
  v.time.run();
  CHECK(seen == std::vector<std::int64_t>{3'000'000'000});
}

TEST_CASE("run_until stops at its time, which becomes the current time") {
  virtual_system v;
  int ticks = 0;
  v.system.spawn(ticker, 1s, &ticks);
  v.time.run_until(to_ns(10));
  CHECK(ticks == 10);
  CHECK(v.time.now() == to_ns(10));
  v.time.run_until(to_ns(10.5));
  CHECK(ticks == 10);
  v.time.run_until(to_ns(11));
  CHECK(ticks == 11);
}

TEST_CASE("a system whose actors re-arm their timers forever is destroyed at once") {
  int ticks = 0;
  {
    virtual_system v;
    for (int i = 0; i < 100; ++i) v.system.spawn(ticker, 1ms, &ticks);
    v.time.run_until(to_ns(0.01));
  }
  CHECK(ticks == 1000);
}

TEST_CASE("a system whose actors exchange messages forever at one instant is destroyed at once") {
  virtual_system v;
  struct state {
    state() = default;
    std::shared_ptr<int> token = std::make_shared<int>(0);
  };
  std::weak_ptr<int> alive;
  auto chatter = [&](caf::stateful_actor<state>* self) -> caf::behavior {
    alive = self->state.token;
    self->send(self, tick::value);
    return {[=](tick) { self->send(self, tick::value); }};
  };
  {
    virtual_system other;
    other.system.spawn(chatter);
    other.time.at(1, [] {});
  }
  CHECK(alive.expired());
}

TEST_CASE("cancelled events do not run, and free their memory") {
  virtual_system v;
  int happened = 0;
  struct counter : virtual_coordinator::listener {
    int* n = nullptr;
    void fire(std::uint64_t token) override { *n += static_cast<int>(token); }
  } whom;
  whom.n = &happened;
  std::vector<virtual_coordinator::event_id> ids;
  for (int i = 0; i < 10'000; ++i) ids.push_back(v.time.at(i, whom, 1));
  for (int i = 0; i < 10'000; ++i)
    if (i % 10 != 0) CHECK(v.time.cancel(ids[static_cast<std::size_t>(i)]));
  CHECK_FALSE(v.time.cancel(ids[1]));
  CHECK(v.time.pending() == 1000);
  v.time.run();
  CHECK(happened == 1000);
  CHECK_FALSE(v.time.cancel(ids[0]));
}

TEST_CASE("every message restarts a receive timeout, which fires when no message comes") {
  virtual_system v;
  std::vector<double> timeouts;
  auto a = v.system.spawn([&](caf::event_based_actor* self) -> caf::behavior {
    return {[](tick) {},
            caf::after(2s) >>
                [&, self] {
                  timeouts.push_back(to_s(self->clock().now().time_since_epoch().count()));
                  self->quit();
                }};
  });
  for (int i = 1; i <= 5; ++i) v.time.at(to_ns(i), [&] { caf::anon_send(a, tick::value); });
  v.time.run();
  CHECK(timeouts == std::vector<double>{7});
  CHECK(v.time.pending() == 0);
}

TEST_CASE("an unanswered request times out, and an answered one does not") {
  virtual_system v;
  std::string seen;
  auto slow = v.system.spawn([](caf::event_based_actor* self) -> caf::behavior {
    auto waiting = std::make_shared<std::vector<caf::response_promise>>();
    return {[=](int x) { return x + 1; },
            [=](tick) -> caf::result<int> {
              waiting->push_back(self->make_response_promise());
              return waiting->back();
            }};
  });
  v.system.spawn([&](caf::event_based_actor* self) {
    self->request(slow, 1s, 41)
        .then([&](int x) { seen += std::to_string(x) + " "; },
              [&](const caf::error&) { seen += "error "; });
    self->request(slow, 2s, tick::value)
        .then([&](int) { seen += "answer "; },
              [&, self](const caf::error& e) {
                if (e == caf::sec::request_timeout)
                  seen +=
                      "timeout@" + std::to_string(self->clock().now().time_since_epoch().count() /
                                                  1'000'000'000);
              });
  });
  v.time.run();
  CHECK(seen == "42 timeout@2");
  // The promise and the continuation refer to each other, so it must be ended explicitly.
  caf::anon_send_exit(slow, caf::exit_reason::kill);
}

TEST_CASE("actors spawned and ended while time runs leave nothing behind") {
  virtual_system v;
  int born = 0, gone = 0;
  std::function<void(caf::event_based_actor*, int)> body = [&](caf::event_based_actor* self,
                                                               int depth) {
    ++born;
    self->attach_functor([&](const caf::error&) { ++gone; });
    self->become([&, self, depth](tick) {
      if (depth > 0) {
        self->spawn(body, depth - 1);
        self->spawn(body, depth - 1);
      }
      self->quit();
    });
    self->delayed_send(self, 1s, tick::value);
  };
  v.system.spawn(body, 9);
  v.time.run();
  CHECK(born == 1023);
  CHECK(gone == 1023);
  CHECK(v.time.now() == to_ns(10));
  CHECK(v.system.registry().running() == 0);
}

TEST_CASE("dropping one actor's events leaves those of other actors") {
  virtual_system v;
  int a_ticks = 0, b_ticks = 0;
  auto a = v.system.spawn(ticker, 1s, &a_ticks);
  auto b = v.system.spawn(ticker, 1s, &b_ticks);
  v.time.run_until(to_ns(3));
  v.time.drop_events_of(std::vector<caf::actor>{a});
  v.time.run_until(to_ns(5));
  CHECK(a_ticks == 3);
  CHECK(b_ticks == 5);
}

TEST_CASE("a callback that follows a handler runs after that handler and after no later one") {
  virtual_system v;
  std::string order;
  auto a = v.system.spawn([&](caf::event_based_actor*) -> caf::behavior {
    return {[&](int n) {
      order += std::to_string(n);
      if (n == 1) v.time.after_handler([&] { order += '!'; });
    }};
  });
  for (int n = 0; n < 4; ++n) caf::anon_send(a, n);
  v.time.run_ready();
  CHECK(order == "01!23");
}

TEST_CASE("running the time from inside an event is refused") {
  virtual_system v;
  v.time.at(1, [&] { v.time.run_until(5); });
  CHECK_THROWS_AS(v.time.run(), std::logic_error);
  CHECK_NOTHROW(v.time.run());
}

TEST_CASE("ten thousand actors tick in order, the same way in two runs") {
  auto trace = [] {
    virtual_system v;
    std::vector<std::uint32_t> order;
    random_source random{3};
    for (std::uint32_t i = 0; i < 10'000; ++i) {
      const auto period = std::chrono::microseconds(1 + random.below(5000));
      v.system.spawn([&order, i, period](caf::event_based_actor* self) -> caf::behavior {
        self->delayed_send(self, period, tick::value);
        return {[&order, i, period, self](tick) {
          order.push_back(i);
          self->delayed_send(self, period, tick::value);
        }};
      });
    }
    v.time.run_until(to_ns(0.02));
    return order;
  };
  const auto first = trace();
  CHECK(first.size() > 100'000);
  CHECK(first == trace());
}
