#include "gpu/device/device_thread.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "gpu/device/clock.hpp"

namespace troupe::gpu {

namespace {

constexpr double own_s = 1e-4;  // what the thread itself needs between two operations of a guest

/// The calling thread; any user may do that.
void run_only_if_idle() {
  const sched_param none{};
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

}  // namespace

device_thread::device_thread() : training_thread_{[this] { train(); }} {}

device_thread::~device_thread() {
  {
    std::lock_guard held{guard_};
    closing_ = true;
  }
  training_wake_.notify_one();
  guest_wake_.notify_one();
  training_thread_.join();
  if (guest_thread_.joinable()) guest_thread_.join();
}

// A training's operation ends the window for guests at once. The time of its submission is kept
// only if a guest is running: the difference to its start is the delay that the guest caused.
void device_thread::submit(std::function<void()> what) {
  {
    std::lock_guard held{guard_};
    idle_until_s_ = 0;
    training_.push_back({std::move(what), guest_runs_, guest_runs_ ? now_s() : 0});
  }
  training_wake_.notify_one();
}

void device_thread::idle_for(double s) {
  std::lock_guard held{guard_};
  idle_until_s_ = now_s() + s;
  change();
}

// Nothing to wait for: a guest's operation runs on another thread.
double device_thread::busy() {
  std::lock_guard held{guard_};
  idle_until_s_ = 0;
  return 0;
}

// The guard is the end of a window that guests leave free, for errors of its prediction.
void device_thread::set_guard(double s) {
  std::lock_guard held{guard_};
  guard_s_ = s;
  change();
}

// The thread for guests starts with the first one, so a device that is never lent has none.
void device_thread::lend(std::shared_ptr<guest_work> to) {
  std::lock_guard held{guard_};
  guest_.swap(to);  // `to` is destroyed without the lock: freeing a model takes long
  if (guest_ && !guest_thread_.joinable()) guest_thread_ = std::thread{[this] { serve(); }};
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

std::optional<double> device_thread::guest_time_factor() {
  std::lock_guard held{guard_};
  return guest_ ? guest_->time_factor() : std::nullopt;
}

void device_thread::change() {
  changed_ = true;
  guest_wake_.notify_one();
}

void device_thread::train() {
  lock held{guard_};
  while (!closing_) {
    training_wake_.wait(held, [this] { return closing_ || !training_.empty(); });
    if (!closing_) run_training(held);
  }
}

// Operations run without the lock, so that submitting never waits for one of them.
void device_thread::run_training(lock& held) {
  auto next = std::move(training_.front());
  training_.pop_front();
  training_began_s_ = now_s();
  if (next.interrupts_guest) counts_.record_delay(training_began_s_ - next.submitted_s);
  training_runs_ = true;
  held.unlock();
  next.what();
  next.what = nullptr;  // what it holds may need the lock when it is destroyed
  held.lock();
  training_runs_ = false;
  trained_s_ += now_s() - training_began_s_;
  if (training_.empty()) change();
}

// Guests run on a second thread with the idle policy: the kernel gives it a core only when no
// training thread wants it, which bounds the harm of an operation that overruns its window.
void device_thread::serve() {
  run_only_if_idle();
  lock held{guard_};
  while (!closing_) {
    changed_ = false;
    if (training_is_ready() || !try_guest(held))
      guest_wake_.wait(held, [this] { return closing_ || changed_; });
  }
}

/// False: no operation of the guest may begin before something changes.
bool device_thread::try_guest(lock& held) {
  auto guest = guest_;
  if (!guest) return false;
  const bool again = run_guest(held, guest);
  held.unlock();
  guest = nullptr;  // perhaps the last that holds it, as in lend()
  held.lock();
  return again;
}

// The guest plans its next operation without the lock, so everything is checked again afterwards:
// the window may have ended meanwhile. One operation runs per turn, if its estimated time fits into
// the window minus the guard. A guest's time excludes that of a training which ran beside it.
bool device_thread::run_guest(lock& held, const std::shared_ptr<guest_work>& guest) {
  const auto room_s = [this] { return idle_until_s_ - guard_s_ - now_s(); };
  const double offered_s = room_s();
  if (offered_s <= 0) return false;
  held.unlock();
  const auto run = guest->next(offered_s);
  held.lock();
  if (changed_ || closing_ || training_is_ready()) return true;
  if (run.count == 0 || run.each_s > room_s()) return false;
  guest_runs_ = true;
  const double began_s = now_s(), trained_s = trained_s_;
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
  counts_.guest_s += ended_s - began_s - (trained_until_s(ended_s) - trained_s);
  if (run.prompt > 0) counts_.record(run.prompt, began_s, ended_s, own_s);
  if (failed && guest_ == guest) guest_ = nullptr;
  return true;
}

}  // namespace troupe::gpu
