#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device/clock.hpp"
#include "gpu/device/device_thread.hpp"
#include "gpu/device/operation_queue.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

constexpr double long_s = 1e6;

/// The operations on the device, in order.
class diary {
 public:
  void note(const std::string& what) {
    std::lock_guard lock{guard_};
    all_.push_back(what);
    changed_.notify_all();
  }
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock lock{guard_};
    changed_.wait(lock, [&] { return all_.size() >= count; });
    return all_;
  }
  std::size_t size() {
    std::lock_guard lock{guard_};
    return all_.size();
  }

 private:
  std::mutex guard_;
  std::condition_variable changed_;
  std::vector<std::string> all_;
};

/// Operations that end when the test ends them.
class guest_by_hand final : public guest_work {
 public:
  explicit guest_by_hand(diary& d) : diary_{d} {}

  run next(double room_s) override {
    std::lock_guard lock{guard_};
    room_s_ = room_s;
    return {left_, each_s, 7};
  }
  void execute(std::uint32_t count) override {
    CHECK(count == 1);
    diary_.note("guest begins");
    std::unique_lock lock{guard_};
    wake_.wait(lock, [this] { return may_end_ > 0; });
    --may_end_;
    --left_;
    diary_.note("guest ends");
  }
  void add(std::uint32_t n) {
    std::lock_guard lock{guard_};
    left_ += n;
  }
  void let_end(int n) {
    {
      std::lock_guard lock{guard_};
      may_end_ += n;
    }
    wake_.notify_all();
  }

  double each_s = 0.001;

 private:
  diary& diary_;
  std::mutex guard_;
  std::condition_variable wake_;
  std::uint32_t left_ = 0;
  int may_end_ = 0;
  double room_s_ = 0;
};

struct lent_device {
  diary what;
  std::shared_ptr<guest_by_hand> guest = std::make_shared<guest_by_hand>(what);
  device_thread thread;

  lent_device() { thread.lend(guest); }
  void train() {
    thread.submit([this] { what.note("training"); });
  }
  /// The training's operations have ended.
  void settle() {
    std::promise<void> reached;
    thread.submit([&] { reached.set_value(); });
    reached.get_future().wait();
  }
};

using words = std::vector<std::string>;

/// All that was counted until the guest has had so many steps: its thread has the lowest priority,
/// and may count the last one late.
executor_counts counts_after(device_thread& t, std::uint64_t steps) {
  auto all = t.take_counts();
  while (all.guest_steps < steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    auto more = t.take_counts();
    all.guest_steps += more.guest_steps;
    all.guest_s += more.guest_s;
    all.taken_s = more.taken_s;
    std::ranges::move(more.intervals, std::back_inserter(all.intervals));
  }
  return all;
}

}  // namespace

TEST_CASE("A guest has the device while the training waits, and not otherwise") {
  lent_device d;
  d.guest->add(2);
  d.guest->let_end(2);
  d.thread.wake();
  d.settle();
  CHECK(d.what.size() == 0);  // no notice about the training
  d.thread.idle_for(long_s);
  CHECK(d.what.wait_for(4) == words{"guest begins", "guest ends", "guest begins", "guest ends"});
  d.settle();
  const auto counts = counts_after(d.thread, 2);
  CHECK(counts.guest_steps == 2);
  double recorded_s = 0;
  for (const auto& i : counts.intervals) {
    CHECK(i.prompt == 7);
    CHECK(i.end_s <= counts.taken_s);
    recorded_s += i.end_s - i.begin_s;
  }
  CHECK(recorded_s >= counts.guest_s - 1e-9);
  CHECK(d.thread.take_counts().guest_steps == 0);
}

TEST_CASE("A training operation interrupts the guest's, and the delay is counted") {
  lent_device d;
  d.guest->add(3);
  d.thread.idle_for(long_s);
  d.what.wait_for(1);
  constexpr auto lasts = std::chrono::milliseconds{5};
  d.thread.submit([&] {
    std::this_thread::sleep_for(lasts);
    d.what.note("training");
  });
  d.train();
  CHECK(d.what.wait_for(3) == words{"guest begins", "training", "training"});
  d.guest->let_end(3);
  CHECK(d.what.wait_for(4).back() == "guest ends");
  d.settle();
  CHECK(d.what.size() == 4);  // no second notice that the training waits
  const auto counts = counts_after(d.thread, 1);
  const double guest_until_s = now_s();
  CHECK(counts.guest_steps == 1);
  CHECK(counts.delayed >= 2);
  CHECK(counts.worst_delay_s >= 0.005);  // the second, for the first
  REQUIRE(counts.intervals.size() == 1);
  const double lasted_s = counts.intervals[0].end_s - counts.intervals[0].begin_s;
  CHECK(counts.intervals[0].end_s <= guest_until_s);
  CHECK(lasted_s >= 0.005);
  CHECK(counts.guest_s <= lasted_s - 0.005);  // less what the training took meanwhile
}

TEST_CASE("An operation of the guest begins only if it ends a guard before the training's next") {
  lent_device d;
  d.guest->add(1);
  d.guest->let_end(1);
  d.guest->each_s = long_s / 2;
  SECTION("the window is too short") {
    d.thread.idle_for(long_s / 2 - 1);
  }
  SECTION("the guard is too long") {
    d.thread.set_guard(long_s / 2 + 1);
    d.thread.idle_for(long_s);
  }
  SECTION("the training is busy again") {
    d.guest->each_s = 0;
    d.thread.set_guard(long_s);
    d.thread.idle_for(long_s / 2);
    CHECK(d.thread.busy() == 0);
    d.thread.set_guard(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{5});
  CHECK(d.what.size() == 0);
}

TEST_CASE("A guest that throws gets no more of the device") {
  struct thrower final : guest_work {
    run next(double) override { return {1, 0}; }
    void execute(std::uint32_t) override {
      executed.set_value();
      throw std::runtime_error{"out of memory"};
    }
    std::promise<void> executed;
  };
  device_thread t;
  const auto guest = std::make_shared<thrower>();
  t.lend(guest);
  t.idle_for(long_s);
  guest->executed.get_future().wait();
  std::promise<void> done;
  t.submit([&] { done.set_value(); });
  done.get_future().wait();
  CHECK(counts_after(t, 1).guest_steps == 1);
}

namespace {

/// A guest's end, and whether others can use the device meanwhile.
struct end_of_guest {
  std::promise<void> begun, go;
  std::promise<bool> device_free;
  std::thread other;
};

class guest_that_ends final : public guest_work {
 public:
  guest_that_ends(device_thread& d, end_of_guest& e) : device_{d}, end_{e} {}
  ~guest_that_ends() override {
    const auto used = std::make_shared<std::promise<void>>();
    auto ready = used->get_future();
    end_.other = std::thread{[used, &d = device_] {
      d.wake();
      used->set_value();
    }};
    const auto was = ready.wait_for(std::chrono::seconds{5});
    end_.device_free.set_value(was == std::future_status::ready);
  }
  run next(double) override { return {1, 0}; }
  void execute(std::uint32_t) override {
    end_.begun.set_value();
    end_.go.get_future().wait();
  }

 private:
  device_thread& device_;
  end_of_guest& end_;
};

}  // namespace

TEST_CASE("The window changes while a guest is asked what fits into it") {
  // Relaxed, so that nothing but the device's own lock orders the two threads.
  constexpr auto relaxed = std::memory_order_relaxed;
  struct asked final : guest_work {
    run next(double room_s) override {
      rooms_are_right = rooms_are_right && room_s > long_s / 2 && room_s < long_s + 100;
      for (const int before = changes.load(relaxed); !over.load(relaxed);) {
        if (changes.load(relaxed) >= before + 2) break;
        std::this_thread::yield();
      }
      times.fetch_add(1, relaxed);
      return {};
    }
    void execute(std::uint32_t) override {}
    std::atomic<int> changes = 0, times = 0;
    std::atomic<bool> over = false;
    bool rooms_are_right = true;
  };
  const auto guest = std::make_shared<asked>();
  {
    device_thread t;
    t.lend(guest);
    while (guest->times.load(relaxed) < 20) {
      t.idle_for(long_s + guest->changes.fetch_add(1, relaxed) % 7);
      std::this_thread::yield();
    }
    guest->over.store(true, relaxed);
  }
  CHECK(guest->rooms_are_right);
}

TEST_CASE("A device can be used while it frees a guest") {
  end_of_guest e;
  device_thread t;
  t.lend(std::make_shared<guest_that_ends>(t, e));
  SECTION("that is replaced") {
    t.lend(nullptr);
  }
  SECTION("whose operation has just ended") {
    t.idle_for(long_s);
    e.begun.get_future().wait();
    t.lend(nullptr);
    e.go.set_value();
  }
  CHECK(e.device_free.get_future().get());
  e.other.join();
}

TEST_CASE("Two stages' operations share one thread, and one stage may end before the other") {
  const auto thread = std::make_shared<device_thread>();
  std::vector<std::thread::id> on;
  std::promise<void> done;
  const auto note = [&](const operation_queue::done& d) {
    on.push_back(std::this_thread::get_id());
    d(outcome{});
  };
  operation_queue second{[] {}, thread};
  {
    operation_queue first{[] {}, thread};
    std::promise<void> ran;
    first.submit(note, [&](const expected<outcome>&) { ran.set_value(); });
    ran.get_future().wait();
  }
  second.submit(note, [&](const expected<outcome>&) { done.set_value(); });
  done.get_future().wait();
  REQUIRE(on.size() == 2);
  CHECK(on[0] == on[1]);
}

TEST_CASE("A stage that ends waits for its operation that has begun, and fails the others") {
  const auto thread = std::make_shared<device_thread>();
  std::promise<void> begun, go, closed;
  std::vector<bool> results;
  const auto wait = [&](const operation_queue::done& d) {
    begun.set_value();
    go.get_future().wait();
    d(outcome{});
  };
  auto queue = std::make_unique<operation_queue>([] {}, thread);
  for (int i = 0; i < 2; ++i)
    queue->submit(wait, [&](const expected<outcome>& r) { results.push_back(r.has_value()); });
  begun.get_future().wait();
  std::thread ending{[&] {
    queue->close();
    closed.set_value();
    queue = nullptr;
  }};
  closed.get_future().wait();  // the second operation cannot begin, however late this thread is
  go.set_value();
  ending.join();
  CHECK(results == std::vector<bool>{true, false});
}
