#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "messages/base/random.hpp"

namespace troupe::test {

/// The emulated stream of a GPU for `collectives`: first in, first out.
class emulated_stream {
 public:
  virtual ~emulated_stream() = default;
  virtual void ask(std::function<void()> what) = 0;
};

/// When a stream does what it is asked for.
struct stream_pace {
  enum class when : std::uint8_t {
    soon,            // on its own thread, as soon as it can
    late,            // not before somebody waits for it, or for what comes after it
    sometimes_late,  // either of them, by the seed
    at_once          // before the thread that asks goes on
  } is = when::soon;
  std::uint64_t seed = 1;
};

/// A thread that does what it is asked for in order, as a GPU's stream does.
class late_stream final : public emulated_stream {
 public:
  explicit late_stream(stream_pace pace) : pace_{pace}, random_{pace.seed} {}
  /// Does all that it was asked for.
  ~late_stream() override;

  /// At the stream's pace.
  void may_be_late(std::function<void()> what);
  /// Never late, and nothing before it is.
  void ask(std::function<void()> what) override;

  /// The place behind everything that it was asked for so far.
  std::uint64_t asked();
  /// Does not wait; what comes before the place is late no longer.
  bool reached(std::uint64_t place);
  void wait(std::uint64_t place);

 private:
  struct task {
    std::function<void()> what;
    bool late;
  };
  std::uint64_t add(std::function<void()> what);
  void want(std::uint64_t place);
  bool may_go_on() const;
  void work();

  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<task> waiting_;
  const stream_pace pace_;
  random_source random_;
  std::uint64_t asked_ = 0, done_ = 0, wanted_ = 0;
  bool closing_ = false;
  std::thread thread_{[this] { work(); }};
};

}  // namespace troupe::test
