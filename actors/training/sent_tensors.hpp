#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/frame.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// What a stage has sent to other stages and may have to send again: each tensor until something
/// came from its receiver that shows that it has it. An activation until its gradient came, a part
/// until its sum, the others until the receiver's next iteration.
class sent_tensors {
 public:
  /// In bytes of bodies. Beyond that the oldest are given up: if one of those is lost, the training
  /// goes on from its checkpoint.
  static constexpr std::uint64_t max_bytes = std::uint64_t{4} << 30;
  /// No tensor is sent again sooner than that after it left, whatever a request says,
  static constexpr double shortest_s = 0.5;
  /// and each time after twice as long, up to so many times: it may only be slow.
  static constexpr double longest_factor = 4;

  /// One leaves now, or has been lost already for want of room.
  void keep(const tensor& t, payload body, double now_s, bool lost);

  /// One came from another stage, of this iteration or the next.
  void came(const tensor& t);

  /// Nobody asks for what is older than the iteration before this one.
  void begin_iteration(std::uint64_t iteration);

  struct again {
    tensor what;
    payload body;
  };
  /// What a request asks for and has left long enough ago. It counts as sent now.
  std::vector<again> due(tensor_request r, double now_s);

  std::size_t size() const { return kept_.size(); }

 private:
  struct kept {
    tensor what;
    payload body;
    double sent_s = 0;  // last
    double factor = 1;
    bool lost = false;  // known to be
  };
  template <class Predicate>
  void erase_if(Predicate p);

  std::vector<kept> kept_;  // in the order in which they were sent first
  std::uint64_t bytes_ = 0;
};

/// How long a stage waits for a tensor until it asks for it again: somewhat longer than the slowest
/// of its kind took to come in this iteration and the last.
class request_timeout {
 public:
  static constexpr double shortest_s = 0.5;

  void came(tensor::kind k, double took_s);
  void next_iteration();
  /// `expected_s`: what such a tensor should take, until one has come.
  double after_s(tensor::kind k, double expected_s) const;

 private:
  using by_kind = std::array<double, 6>;
  by_kind now_{}, before_{};
};

}  // namespace troupe::actors
