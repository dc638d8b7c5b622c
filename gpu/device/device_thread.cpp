#include "gpu/device/device_thread.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "gpu/device/clock.hpp"

namespace troupe::gpu {

namespace {

constexpr double own_s = 1e-4;  // what the thread itself needs between two operations of a guest

}  // namespace

device_thread::device_thread() : thread_{[this] { work(); }} {}

device_thread::~device_thread() {
  {
    std::lock_guard held{guard_};
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void device_thread::submit(std::function<void()> what) {
  {
    std::lock_guard held{guard_};
    idle_until_s_ = 0;
    training_.push_back({std::move(what), guest_runs_, guest_runs_ ? now_s() : 0});
  }
  wake_.notify_one();
}

void device_thread::idle_for(double s) {
  std::lock_guard held{guard_};
  idle_until_s_ = now_s() + s;
  change();
}

double device_thread::busy() {
  std::lock_guard held{guard_};
  idle_until_s_ = 0;
  return 0;
}

void device_thread::set_guard(double s) {
  std::lock_guard held{guard_};
  guard_s_ = s;
  change();
}

void device_thread::lend(std::shared_ptr<guest_work> to) {
  std::lock_guard held{guard_};
  guest_ = std::move(to);
  change();
}

void device_thread::wake() {
  std::lock_guard held{guard_};
  change();
}

executor_counts device_thread::take_counts() {
  std::lock_guard held{guard_};
  counts_.taken_s = now_s();
  return std::exchange(counts_, {});
}

void device_thread::change() {
  changed_ = true;
  wake_.notify_one();
}

void device_thread::work() {
  lock held{guard_};
  while (!closing_) {
    changed_ = false;
    if (!training_.empty())
      run_training(held);
    else if (!run_guest(held))
      wake_.wait(held, [this] { return closing_ || changed_ || !training_.empty(); });
  }
}

void device_thread::run_training(lock& held) {
  auto next = std::move(training_.front());
  training_.pop_front();
  if (next.behind_guest) {
    const double waited_s = now_s() - next.submitted_s;
    ++counts_.delayed;
    counts_.delay_s += waited_s;
    counts_.worst_delay_s = std::max(counts_.worst_delay_s, waited_s);
  }
  held.unlock();
  next.what();
  next.what = nullptr;  // what it holds may need the lock when it is destroyed
  held.lock();
}

/// False: no operation of the guest may begin before something changes.
bool device_thread::run_guest(lock& held) {
  const auto guest = guest_;
  const auto room_s = [this] { return idle_until_s_ - guard_s_ - now_s(); };
  if (!guest || room_s() <= 0) return false;
  held.unlock();
  const auto run = guest->next(room_s());
  held.lock();
  if (changed_ || closing_ || !training_.empty()) return true;
  if (run.count == 0 || run.each_s > room_s()) return false;
  guest_runs_ = true;
  const double began_s = now_s();
  held.unlock();
  bool failed = false;
  try {
    guest->execute(1);
  } catch (const std::exception&) {
    failed = true;  // the training goes on without it
  }
  held.lock();
  guest_runs_ = false;
  const double ended_s = now_s();
  ++counts_.guest_steps;
  counts_.guest_s += ended_s - began_s;
  if (run.prompt > 0) counts_.record(run.prompt, began_s, ended_s, own_s);
  if (failed && guest_ == guest) guest_ = nullptr;
  return true;
}

}  // namespace troupe::gpu
