#include "gpu/device/simulated_executor.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::gpu {

namespace {

constexpr double rounding = 1e-6;  // of an operation; timers are exact to a nanosecond

/// How many operations of each_s fit.
std::uint32_t fitting(double room_s, const guest_work::run& r) {
  if (r.count == 0 || room_s <= 0) return 0;
  if (r.each_s <= 0) return r.count;
  return static_cast<std::uint32_t>(
      std::min<double>(r.count, std::floor(room_s / r.each_s + rounding)));
}

}  // namespace

void simulated_executor::idle_for(double s) {
  idle_until_s_ = now_() + s;
  shorten();
  begin();
}

void simulated_executor::set_guard(double s) {
  guard_s_ = s;
  shorten();
  begin();
}

void simulated_executor::lend(std::shared_ptr<guest_work> to) {
  if (guest_ == to) return;
  ++number_;
  count_ = 0;
  guest_ = std::move(to);
  begin();
}

void simulated_executor::wake() {
  begin();
}

// A begun operation of a guest is not interrupted: the training waits for its end.
double simulated_executor::busy() {
  idle_until_s_ = 0;
  shorten();
  if (count_ == 0) return 0;
  const double wait_s = began_s_ + count_ * each_s_ - now_();
  counts_.record_delay(wait_s);
  return wait_s;
}

// As many operations as fit are begun with a single timer, since an event for each would dominate a
// simulation of long windows.
void simulated_executor::begin() {
  if (count_ > 0 || !guest_) return;
  const double now_s = now_(), room_s = idle_until_s_ - guard_s_ - now_s;
  if (room_s <= 0) return;
  const auto run = guest_->next(room_s);
  count_ = fitting(room_s, run);
  if (count_ == 0) return;
  each_s_ = run.each_s;
  prompt_ = run.prompt;
  began_s_ = now_s;
  set_timer(count_ * each_s_);
}

/// The window has changed: of the operations under way only those that have begun, or still fit,
/// are executed.
void simulated_executor::shorten() {
  if (count_ == 0 || !guest_) return;
  const double now_s = now_(), done_s = now_s - began_s_;
  const auto ended = each_s_ > 0 ? static_cast<std::uint32_t>(std::min<double>(
                                       count_, std::floor(done_s / each_s_ + rounding)))
                                 : count_;
  // One that would begin just now has not begun.
  const bool inside = ended < count_ && done_s - ended * each_s_ > rounding * each_s_;
  const auto begun = ended + (inside ? 1 : 0);
  const auto fit = fitting(idle_until_s_ - guard_s_ - began_s_, {count_, each_s_});
  const auto kept = std::max(begun, fit);
  TROUPE_INVARIANT(kept <= count_, "a window that changes takes operations away and adds none");
  if (kept >= count_ && ended < count_) return;
  const auto rest = std::max(kept, ended) - ended;
  if (ended > 0) complete(ended);
  began_s_ += ended * each_s_;
  count_ = rest;
  set_timer(began_s_ + rest * each_s_ - now_s);
}

/// The one before does not count any more. None is needed if nothing is under way.
void simulated_executor::set_timer(double after_s) {
  ++number_;
  if (count_ == 0) return;
  after_(after_s, [this, n = number_, here = std::weak_ptr<const bool>{alive_}] {
    if (!here.expired()) end(n);
  });
}

// Timers cannot be cancelled: one of an older number is ignored.
void simulated_executor::end(std::uint64_t number) {
  if (number != number_) return;
  const auto count = count_;
  count_ = 0;
  complete(count);
  begin();
}

void simulated_executor::complete(std::uint32_t count) {
  counts_.guest_steps += count;
  counts_.guest_s += count * each_s_;
  counts_.record(prompt_, began_s_, began_s_ + count * each_s_, 1e-9);
  TROUPE_INVARIANT(guest_, "operations that end are the present guest's");
  const auto guest = guest_;  // which may give the device back meanwhile
  guest->execute(count);
}

}  // namespace troupe::gpu
