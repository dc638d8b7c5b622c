#pragma once

#include <memory>
#include <string>

#include "gpu/cuda/collectives/communicator.hpp"
#include "gpu/cuda/runtime/memory.hpp"
#include "gpu/tensor_parallel/thread_communicator.hpp"

namespace troupe::gpu::cuda {

/// A machine's NCCL functions; null and why not, also if TROUPE_COLLECTIVES=hosts is set.
const collectives* collectives_of(machine& m, std::string& why);

/// A group of GPUs that all-reduce, from the view of one member. All-reduces are ordered with its
/// kernels, and throw std::runtime_error if they cannot be enqueued.
class device_communicator {
 public:
  virtual ~device_communicator() = default;
  virtual void sum(float* values, std::size_t count) = 0;
  virtual void sum(bf16* values, std::size_t count) = 0;
  /// May run concurrently with kernels that are launched later, until machine::join_beside.
  virtual void sum_beside(float* values, std::size_t count) { sum(values, count); }

  /// From any thread. Why pending all-reduces will never complete; empty: they may.
  virtual std::string trouble() { return {}; }
  virtual void abort(const std::string& why) = 0;
  /// Results are no longer needed: pending all-reduces end with `why`, completed ones stay valid.
  virtual void close(const std::string& why) { abort(why); }
  /// Timeout of an all-reduce.
  virtual double patience_s() const = 0;
};

/// By NCCL.
class nccl_communicator final : public device_communicator {
 public:
  nccl_communicator(std::shared_ptr<machine> m, std::unique_ptr<communicator> c)
      : machine_{std::move(m)}, communicator_{std::move(c)} {}
  ~nccl_communicator() override { communicator_->leave(machine_); }

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

/// Through the host, without NCCL: by a thread group, with a fixed order of additions. Synchronizes
/// with the GPU each time.
class host_communicator final : public device_communicator {
 public:
  host_communicator(std::shared_ptr<machine> m, std::shared_ptr<thread_communicator> members);

  void sum(float* values, std::size_t count) override;
  void sum(bf16* values, std::size_t count) override;
  void abort(const std::string& why) override { members_->abort(why); }
  double patience_s() const override { return members_->patience_s(); }

 private:
  template <class T>
  void through_host(T* values, std::size_t count);

  std::shared_ptr<machine> machine_;
  std::shared_ptr<thread_communicator> members_;
  block_pool host_;
  std::vector<float> wide_;
};

}  // namespace troupe::gpu::cuda
