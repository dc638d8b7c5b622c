#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The tensors that a stage has sent and may have to resend. Nothing is acknowledged: a tensor is
/// dropped when a later one from its receiver shows that it arrived. For an activation that is its
/// gradient, for a chunk of gradients its sum, for others any tensor of the receiver's next
/// iteration.
class sent_tensors {
 public:
  /// In bytes of bodies. Beyond that the oldest are dropped: if one of those is lost, the training
  /// resumes from its checkpoint.
  static constexpr std::uint64_t max_bytes = std::uint64_t{4} << 30;
  /// Minimum time before a tensor is resent, whatever a request asks for.
  static constexpr double min_resend_s = 0.5;
  /// The time doubles with every resend, up to this factor: the tensor may only be slow.
  static constexpr double max_factor = 4;

  /// A tensor is sent now. `lost`: the transport has dropped it for lack of credit.
  void keep(const tensor& t, payload body, double now_s, bool lost);

  /// A tensor arrived from another stage, of this iteration or the next.
  void on_received(const tensor& t);

  /// Drops tensors older than the iteration before this one: no stage requests them.
  void begin_iteration(std::uint64_t iteration);

  /// Drops those of this iteration and later ones: they are computed again.
  void forget_from(std::uint64_t iteration);

  struct resent {
    tensor header;
    payload body;
  };
  /// The requested tensors that were sent long enough ago. They count as sent now.
  std::vector<resent> take_due(tensor_request r, double now_s);

  std::size_t size() const { return kept_.size(); }

 private:
  struct kept {
    tensor header;
    payload body;
    double sent_s = 0;  // last
    double factor = 1;
    bool lost = false;
  };
  template <class Predicate>
  void erase_if(Predicate p);

  std::vector<kept> kept_;  // oldest first
  std::uint64_t bytes_ = 0;
};

/// How long a stage waits for a tensor before it requests it: somewhat longer than the slowest
/// tensor of its kind took in this iteration and the last.
class request_timeout {
 public:
  static constexpr double min_s = 0.5;

  void add_sample(tensor::kind k, double took_s);
  void next_iteration();
  /// `expected_s`: the estimate that counts until there is a sample.
  double after_s(tensor::kind k, double expected_s) const;

 private:
  using by_kind = std::array<double, tensor::kinds>;
  by_kind now_{}, before_{};
};

}  // namespace troupe::actors
