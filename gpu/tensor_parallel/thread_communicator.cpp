#include "gpu/tensor_parallel/thread_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

/// The barrier of the members. A sum takes two barriers: after all have contributed their values,
/// and after all have summed their slices for everybody.
class table {
 public:
  table(std::uint32_t size, double patience_s) : values_(size), patience_s_{patience_s} {}

  expected<void> sum(std::uint32_t rank, std::span<float> values) {
    TROUPE_INVARIANT(rank < values_.size(), "a member's rank is below the size of its group");
    values_[rank] = values;  // read by others only after the barrier
    if (auto ok = barrier(rank); !ok) return ok;
    for (const auto& other : values_)
      if (other.size() != values.size())
        return refuse(reason::kind::invalid, "members of a group submitted {} values and {}",
                      other.size(), values.size());
    add_share(rank);
    return barrier(rank);
  }

  void abort(const std::string& why) {
    {
      std::lock_guard lock{guard_};
      if (ended_.empty()) ended_ = why;
    }
    wake_.notify_all();
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(values_.size()); }
  double patience_s() const { return patience_s_; }

 private:
  // A barrier by rounds: a member waits for the round's number to change, so a fast member that
  // already arrives at the next barrier cannot be mistaken for one of this round. A member that is
  // late ends the group for good, because its peers can no longer be in step; a round that
  // completed counts as success even if the group ended meanwhile.
  expected<void> barrier(std::uint32_t rank) {
    std::unique_lock lock{guard_};
    const auto round = round_;
    if (ended_.empty() && ++arrived_ == size()) {
      arrived_ = 0;
      ++round_;
      wake_.notify_all();
      return {};
    }
    TROUPE_INVARIANT(arrived_ < size(), "the last member to arrive ends the round of a barrier");
    const bool in_time = wake_.wait_for(lock, std::chrono::duration<double>(patience_s_),
                                        [&] { return round_ != round || !ended_.empty(); });
    if (round_ != round) return {};
    if (!in_time) {
      ended_ = fmt::format("{} of a group of {} devices reached the all-reduce within {:.3g} s",
                           arrived_, size(), patience_s_);
      wake_.notify_all();
    }
    return refuse(reason::kind::unavailable, "member {} of a group of {} devices failed: {}", rank,
                  size(), ended_);
  }

  /// Sums this member's slice over all members, in the order of their ranks.
  /// Slices are disjoint, so no lock is held; every member gets a copy of the same sums, and the
  /// fixed order makes their bits independent of the order in which the members arrive.
  void add_share(std::uint32_t rank) {
    const auto n = values_[0].size();
    const auto first = n * rank / size(), end = n * (rank + 1) / size();
    auto* to = values_[0].data();
    for (std::uint32_t m = 1; m < size(); ++m) {
      const auto* from = values_[m].data();
      for (auto i = first; i < end; ++i) to[i] += from[i];
    }
    for (std::uint32_t m = 1; m < size(); ++m)
      std::copy(to + first, to + end, values_[m].data() + first);
  }

  std::vector<std::span<float>> values_;
  const double patience_s_;
  std::mutex guard_;
  std::condition_variable wake_;
  std::uint32_t arrived_ = 0;
  std::uint64_t round_ = 0;
  std::string ended_;
};

class thread_member final : public thread_communicator {
 public:
  thread_member(std::shared_ptr<table> t, std::uint32_t rank) : table_{std::move(t)}, rank_{rank} {}

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return table_->size(); }
  expected<void> sum(std::span<float> values) override {
    return size() == 1 ? expected<void>{} : table_->sum(rank_, values);
  }
  void abort(const std::string& why) override { table_->abort(why); }
  double patience_s() const override { return table_->patience_s(); }

 private:
  std::shared_ptr<table> table_;
  std::uint32_t rank_;
};

}  // namespace

std::vector<std::shared_ptr<thread_communicator>> make_group(std::uint32_t size,
                                                             double patience_s) {
  const auto t = std::make_shared<table>(size, patience_s);
  std::vector<std::shared_ptr<thread_communicator>> all;
  for (std::uint32_t rank = 0; rank < size; ++rank)
    all.push_back(std::make_shared<thread_member>(t, rank));
  return all;
}

}  // namespace troupe::gpu
