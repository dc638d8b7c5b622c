#include "gpu/cuda/communicator.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

namespace troupe::gpu::cuda {

namespace {

using clock = std::chrono::steady_clock;

// A sum is in the stream within microseconds, and a nap would cost more; members that are not there
// yet may take seconds.
constexpr auto no_naps = std::chrono::microseconds{300},
               between_looks = std::chrono::microseconds{100};

}  // namespace

std::vector<std::byte> make_group_id(const collectives& with) {
  std::vector<std::byte> id(collectives::id_bytes);
  if (const int result = with.make_id(id.data()); result != collectives::well)
    throw std::runtime_error(
        fmt::format("NCCL makes no group on this host: {}", with.says(result)));
  return id;
}

communicator::communicator(const collectives& with, std::span<const std::byte> id,
                           std::uint32_t rank, std::uint32_t size, group_patience patience,
                           std::function<bool()> stop)
    : with_{with}, rank_{rank}, size_{size}, patience_{patience}, stop_{std::move(stop)} {
  if (id.size() != collectives::id_bytes)
    throw std::runtime_error(fmt::format("a group's members meet by {} bytes, not by {}",
                                         collectives::id_bytes, id.size()));
  const int result =
      with_.join(&member_, static_cast<int>(size), id.data(), static_cast<int>(rank));
  const int now = result == collectives::well || result == collectives::under_way
                      ? settled(patience_.join_s, "come together")
                      : result;
  if (now == collectives::well) return;
  abort(sentence(now));
  throw std::runtime_error(ended_);
}

communicator::~communicator() {
  abort("it was let go");
}

std::string communicator::sentence(int result) const {
  return fmt::format("member {} of a group of {} GPUs cannot go on, says NCCL: {}", rank_, size_,
                     with_.says(result));
}

/// The member's state, or that it has ended.
int communicator::state() {
  std::lock_guard lock{guard_};
  if (!member_) throw std::runtime_error(ended_);
  int now = collectives::well;
  const int result = with_.state(member_, &now);
  return result == collectives::well ? now : result;
}

/// Waits until what was asked for is no longer under way.
int communicator::settled(double patience_s, const char* what) {
  const auto began = clock::now();
  const auto until = began + std::chrono::duration<double>(patience_s);
  for (;;) {
    if (const int now = state(); now != collectives::under_way) return now;
    const bool late = clock::now() > until;
    if (late || stop_()) {
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
  // It is in the stream only when it is no longer under way.
  if (result == collectives::under_way) result = settled(patience_.sum_s, "begin a sum");
  if (result == collectives::well) return;
  abort(sentence(result));
  throw std::runtime_error(ended_);
}

std::string communicator::trouble() {
  std::lock_guard lock{guard_};
  if (!member_) return ended_;
  int now = collectives::well;
  const int result = with_.state(member_, &now);
  if (result != collectives::well) return sentence(result);
  return now == collectives::well || now == collectives::under_way ? "" : sentence(now);
}

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
