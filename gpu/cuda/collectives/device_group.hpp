#pragma once

#include <memory>
#include <string>

#include "gpu/cuda/collectives/communicator.hpp"
#include "gpu/cuda/host/memory.hpp"
#include "gpu/tensor_parallel/thread_group.hpp"

namespace troupe::gpu::cuda {

/// NCCL's functions as a machine has them; null and why not, also if TROUPE_COLLECTIVES=hosts is in
/// the environment.
const collectives* collectives_of(machine& m, std::string& why);

/// GPUs that sum what each of them has, as one of them sees it. Sums are in the order of its
/// kernels, and throw std::runtime_error with a sentence if they cannot be asked for.
class device_group {
 public:
  virtual ~device_group() = default;
  virtual void sum(float* values, std::size_t count) = 0;
  virtual void sum(bf16* values, std::size_t count) = 0;
  /// May go on beside the kernels that are asked for later, until machine::join_beside.
  virtual void sum_beside(float* values, std::size_t count) { sum(values, count); }

  /// From any thread. Why what was asked for will never be done; empty: it may.
  virtual std::string trouble() { return {}; }
  virtual void abort(const std::string& why) = 0;
  /// Nobody wants its sums any more: what is under way ends with `why`, what is done stays done.
  virtual void close(const std::string& why) { abort(why); }
  /// How long a sum may take.
  virtual double patience_s() const = 0;
};

/// NCCL's.
class gpu_team final : public device_group {
 public:
  gpu_team(std::shared_ptr<machine> m, std::unique_ptr<communicator> c)
      : machine_{std::move(m)}, communicator_{std::move(c)} {}
  ~gpu_team() override { communicator_->leave(machine_); }

  void sum(float* values, std::size_t count) override {
    communicator_->sum(values, count, machine_->stream());
  }
  void sum(bf16* values, std::size_t count) override {
    communicator_->sum(values, count, machine_->stream());
  }
  void sum_beside(float* values, std::size_t count) override {
    communicator_->sum(values, count, machine_->side_stream());
  }
  std::string trouble() override { return communicator_->trouble(); }
  void abort(const std::string& why) override { communicator_->abort(why); }
  void close(const std::string& why) override { communicator_->close(why); }
  double patience_s() const override { return communicator_->patience().sum_s; }

 private:
  std::shared_ptr<machine> machine_;
  std::unique_ptr<communicator> communicator_;
};

/// By way of the host, where there is no NCCL: the sums of a group of the host's threads, whose
/// order is fixed. Waits for the GPU each time.
class host_team final : public device_group {
 public:
  host_team(std::shared_ptr<machine> m, std::shared_ptr<group> members);

  void sum(float* values, std::size_t count) override;
  void sum(bf16* values, std::size_t count) override;
  void abort(const std::string& why) override { members_->abort(why); }
  double patience_s() const override { return members_->patience_s(); }

 private:
  template <class T>
  void by_way_of_host(T* values, std::size_t count);

  std::shared_ptr<machine> machine_;
  std::shared_ptr<group> members_;
  block_pool host_;
  std::vector<float> wide_;
};

}  // namespace troupe::gpu::cuda
