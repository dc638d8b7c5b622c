#include "gpu/emulation/late_stream.hpp"

#include <utility>

#include "gpu/cpu/kernels/matrix.hpp"

namespace troupe::test {

late_stream::~late_stream() {
  {
    std::lock_guard lock{guard_};
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::uint64_t late_stream::add(std::function<void()> what) {
  using when = stream_pace::when;
  std::uint64_t place = 0;
  {
    std::lock_guard lock{guard_};
    const bool late =
        pace_.is == when::late || (pace_.is == when::sometimes_late && random_.chance(0.5));
    waiting_.push_back({std::move(what), late});
    place = ++asked_;
  }
  changed_.notify_all();
  return place;
}

void late_stream::may_be_late(std::function<void()> what) {
  const auto place = add(std::move(what));
  if (pace_.is == stream_pace::when::at_once) wait(place);
}

void late_stream::ask(std::function<void()> what) {
  reached(add(std::move(what)));
}

std::uint64_t late_stream::asked() {
  std::lock_guard lock{guard_};
  return asked_;
}

bool late_stream::reached(std::uint64_t place) {
  std::lock_guard lock{guard_};
  want(place);
  return done_ >= place;
}

void late_stream::wait(std::uint64_t place) {
  std::unique_lock lock{guard_};
  want(place);
  changed_.wait(lock, [&] { return done_ >= place; });
}

void late_stream::want(std::uint64_t place) {
  if (place <= wanted_) return;
  wanted_ = place;
  changed_.notify_all();
}

bool late_stream::may_go_on() const {
  return !waiting_.empty() && (!waiting_.front().late || done_ < wanted_ || closing_);
}

void late_stream::work() {
  gpu::cpu::prepare_thread();
  std::unique_lock lock{guard_};
  for (;;) {
    changed_.wait(lock, [this] { return may_go_on() || (closing_ && waiting_.empty()); });
    if (waiting_.empty()) return;
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next.what();
    next.what = nullptr;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace troupe::test
