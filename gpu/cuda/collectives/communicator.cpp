#include "gpu/cuda/collectives/communicator.hpp"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

namespace troupe::gpu::cuda {

namespace {

using clock = std::chrono::steady_clock;

// An all-reduce is enqueued within microseconds, so sleeping would cost more; members that have not
// joined may take seconds.
constexpr auto no_naps = std::chrono::microseconds{300},
               between_looks = std::chrono::microseconds{100};

/// Members that are being destroyed, in background threads: peers in this program end at the same
/// time and need each other.
class leaving_members {
 public:
  static leaving_members& of_program() {
    static leaving_members all;
    return all;
  }
  void add(std::future<void> one) {
    std::lock_guard lock{guard_};
    std::erase_if(all_, [](auto& f) {
      return f.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
    });
    all_.push_back(std::move(one));
  }

 private:
  std::mutex guard_;
  std::vector<std::future<void>> all_;  // each joins its thread
};

// Finalizing waits until the operations of all members are complete, and a peer may be gone. So the
// call is polled until the patience ends; then the member is aborted, which frees it without its
// peers.
void end_well(const collectives& with, void* member, double patience_s) {
  const auto until = clock::now() + std::chrono::duration<double>(patience_s);
  int now = with.finalize(member);
  while (now == collectives::well || now == collectives::under_way) {
    const int result = with.state(member, &now);
    if (result != collectives::well) now = result;
    if (now == collectives::well) {
      with.destroy(member);
      return;
    }
    if (clock::now() > until) break;
    std::this_thread::sleep_for(between_looks);
  }
  with.abort(member);
}

}  // namespace

// One member makes the id; the others need it to find each other.
std::vector<std::byte> make_communicator_id(const collectives& with) {
  std::vector<std::byte> id(collectives::id_bytes);
  if (const int result = with.make_id(id.data()); result != collectives::well)
    throw std::runtime_error(
        fmt::format("NCCL cannot create a group on this host: {}", with.text_of(result)));
  return id;
}

// NCCL's non-blocking mode is used throughout: a blocking join would wait forever for a member
// whose host has failed, and could not be interrupted when the device is closed.
communicator::communicator(const collectives& with, std::span<const std::byte> id,
                           std::uint32_t rank, std::uint32_t size, communicator_patience patience,
                           std::function<bool()> stop)
    : with_{with}, rank_{rank}, size_{size}, patience_{patience}, stop_{std::move(stop)} {
  if (id.size() != collectives::id_bytes)
    throw std::runtime_error(
        fmt::format("a group id has {} bytes, not {}", collectives::id_bytes, id.size()));
  const int result =
      with_.join(&member_, static_cast<int>(size), id.data(), static_cast<int>(rank));
  const int now = result == collectives::well || result == collectives::under_way
                      ? settled(patience_.join_s, "form")
                      : result;
  if (now == collectives::well) return;
  abort(sentence(now));
  throw std::runtime_error(ended_);
}

// Without effect on a member that left: its end is under way in the background.
communicator::~communicator() {
  abort("it was released");
}

std::string communicator::sentence(int result) const {
  return fmt::format("member {} of a group of {} GPUs failed, NCCL reports: {}", rank_, size_,
                     with_.text_of(result));
}

/// The member's state, or an error if it has ended.
int communicator::state() {
  std::lock_guard lock{guard_};
  if (!member_) throw std::runtime_error(ended_);
  int now = collectives::well;
  const int result = with_.state(member_, &now);
  return result == collectives::well ? now : result;
}

/// Waits until the call is no longer in progress.
int communicator::settled(double patience_s, const char* what) {
  const auto began = clock::now();
  const auto until = began + std::chrono::duration<double>(patience_s);
  for (;;) {
    if (const int now = state(); now != collectives::under_way) return now;
    const bool late = clock::now() > until;
    if (late || stop_() || is_closing()) {
      abort(late ? fmt::format(
                       "a group of {} GPUs did not {} within {:.3g} s (this is its member {})",
                       size_, what, patience_s, rank_)
                 : "the device was closed");
      throw std::runtime_error(ended_);
    }
    if (clock::now() < began + no_naps)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(between_looks);
  }
}

void communicator::sum(void* values, std::size_t count, bool narrow, void* stream) {
  if (count == 0 || size_ == 1) return;
  int result = collectives::well;
  {
    std::lock_guard lock{guard_};
    if (!member_) throw std::runtime_error(ended_);
    result = with_.sum(member_, values, count, narrow, stream);
  }
  // It is in the stream only when it is no longer in progress.
  if (result == collectives::under_way) result = settled(patience_.sum_s, "start an all-reduce");
  if (result == collectives::well) return;
  abort(sentence(result));
  throw std::runtime_error(ended_);
}

// Called while an all-reduce is awaited: A wish to close counts as trouble, so that the waiting
// thread aborts; a call in progress does not.
std::string communicator::trouble() {
  std::lock_guard lock{guard_};
  if (!member_) return ended_;
  int now = collectives::well;
  const int result = with_.state(member_, &now);
  if (result != collectives::well) return sentence(result);
  if (!closing_.empty()) return closing_;
  return now == collectives::well || now == collectives::under_way ? "" : sentence(now);
}

// Under the lock, since another thread closes.
bool communicator::is_closing() {
  std::lock_guard lock{guard_};
  return !closing_.empty();
}

// Only a wish: the waiting thread aborts the member itself when it next looks.
void communicator::close(const std::string& why) {
  std::lock_guard lock{guard_};
  if (closing_.empty()) closing_ = why;
}

// The orderly end, in the background: peers finalize at about the same time and wait for each
// other, so ending them one after another on one thread would deadlock until the patience ends.
// `keeps` stays alive until the member has ended.
void communicator::leave(std::shared_ptr<const void> keeps) {
  std::lock_guard lock{guard_};
  auto* member = std::exchange(member_, nullptr);
  if (!member) return;
  ended_ = "it was released";
  leaving_members::of_program().add(std::async(
      std::launch::async, [with = with_, member, patience_s = patience_.leave_s,
                           keeps = std::move(keeps)] { end_well(with, member, patience_s); }));
}

// Aborting frees the member at once and lets its running kernels return; the first reason remains
// the one that later calls report.
void communicator::abort(const std::string& why) {
  std::lock_guard lock{guard_};
  if (!member_) {
    if (ended_.empty()) ended_ = why;
    return;
  }
  ended_ = why;
  with_.abort(std::exchange(member_, nullptr));
}

}  // namespace troupe::gpu::cuda
