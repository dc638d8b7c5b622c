#include "actors/protocol/lease_actor.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>

#include "actors/protocol/failure_watch.hpp"
#include "actors/protocol/host_threads.hpp"
#include "gpu/device/operation_queue.hpp"
#include "harness/logged_errors.hpp"
#include "runtime/host/wait.hpp"

using namespace troupe;
using namespace troupe::actors;
using harness::logged_errors;

namespace {

struct notified {
  std::atomic<bool> ended = false;
  std::string why;
};

/// For a job whose input makes it throw.
struct faulty_state {
  using interface = actor_of<call_now>;
  static constexpr const char* actor_name = "worker of a lease";

  void start(interface::pointer, std::shared_ptr<notified> to, bool at_once, bool again) {
    to_ = std::move(to);
    again_ = again;
    if (at_once) throw std::runtime_error("it cannot begin");
  }
  void fail_work(const std::string& why) {
    if (again_) throw std::runtime_error("not that either");
    to_->why = why;
    to_->ended = true;
  }

  std::shared_ptr<notified> to_;
  bool again_ = false;
};

}  // namespace

TEST_CASE("an actor of a lease that throws fails that lease, and the actor of its host lives") {
  logged_errors errors;
  host_threads config;
  caf::actor_system system{config};
  const bool at_start = GENERATE(false, true), twice = GENERATE(false, true);
  const auto to = std::make_shared<notified>();
  const auto asked = std::make_shared<std::atomic<int>>(0);
  failure_watch watch;
  auto node = system.spawn([=](caf::event_based_actor* self) -> caf::behavior {
    auto a = spawn_lease_actor<faulty_state, caf::linked>(*self, to, at_start, twice);
    if (!at_start) caf::anon_send(a, call_now{[] { throw std::runtime_error("it cannot go on"); }});
    return {[asked](int) { ++*asked; }};
  });
  watch.add(node);
  if (twice) {  // the last resort
    CHECK(runtime::wait_until([&] { return watch.why().has_value(); }, 10));
    return;
  }
  REQUIRE(runtime::wait_until([&] { return to->ended.load(); }, 10));
  CHECK(to->why == (at_start ? "the worker of a lease failed: it cannot begin"
                             : "the worker of a lease failed: it cannot go on"));
  caf::anon_send(node, 1);
  CHECK(runtime::wait_until([&] { return *asked == 1; }, 10));
  CHECK_FALSE(watch.why());
  caf::anon_send_exit(node, caf::exit_reason::user_shutdown);
}

TEST_CASE("an operation of a device that throws fails, and the next one is done") {
  std::atomic<int> ended = 0;
  std::vector<expected<gpu::outcome>> all;
  {
    gpu::operation_queue queue;
    for (int i = 1; i <= 4; ++i)
      queue.submit(
          [i](const gpu::operation_queue::done& d) {
            if (i == 1) throw std::length_error("a claimed size");
            if (i == 2) throw std::bad_alloc{};
            d(gpu::outcome{});
            if (i == 3) throw std::runtime_error("it has answered");
          },
          [&](expected<gpu::outcome> r) {
            all.push_back(std::move(r));
            ++ended;
          });
    CHECK(runtime::wait_until([&] { return ended == 4; }, 10));
  }
  REQUIRE(all.size() == 4);
  CHECK(all[0].error().text == "the operation failed: a claimed size");
  CHECK(all[1].error().code == reason::kind::out_of_memory);
  CHECK(all[2]);
  CHECK(all[3]);
}
