#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "gpu/cuda/host/stage.hpp"
#include "gpu/device/operation_queue.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/operations.hpp"

namespace troupe::gpu::cuda {

/// Requirements of the CUDA device beyond check(): its kernels work on eight values at a time.
expected<void> check_shape(const stage_spec& s);

/// device_lost for gpu_lost, out_of_memory for gpu_out_of_memory, `other` for any other exception
/// of a machine.
reason::kind code_of(const std::runtime_error& e, reason::kind other = reason::kind::unavailable);

/// The GPU with this number, or the error of make_cuda_device.
expected<std::shared_ptr<machine>> open_machine_here(int index);

/// A stage shared by several machines, as one device: with NCCL's all-reduces if the first machine
/// has them and all machines can join, else with the host's, and `by_hosts_since` says why. `s`
/// must be valid. Throws std::runtime_error on failure.
std::unique_ptr<stage_device> share_stage(const stage_spec& s,
                                          std::vector<std::shared_ptr<machine>> machines,
                                          communicator_patience patience = {},
                                          std::string* by_hosts_since = nullptr);

/// A stage on a machine. One thread launches operations ahead of the GPU; another waits for each in
/// order and delivers its result.
class device final : public member_device {
 public:
  /// Do weights get their initial values, or stay uninitialized (for measuring memory)?
  enum class first_values { set, none };
  /// Throws std::runtime_error if the machine has too little memory. `patience`: timeouts for peers
  /// in other pipelines. `tensor_group`: the ranks with which it shares the stage. `piece_bytes`:
  /// minimum size of the buckets of its all-reduce with peers, equal for all of them.
  device(const stage_spec& s, std::shared_ptr<machine> m, first_values first = first_values::set,
         communicator_patience patience = {},
         std::shared_ptr<device_communicator> tensor_group = nullptr,
         std::size_t piece_bytes = min_piece_bytes);
  ~device() override;

  void submit(operation o, done d) override;
  void submit_values(done d) override;

 private:
  struct microbatch {
    stage_input in;
    stage_memory kept;
  };
  /// An operation that was launched on the GPU.
  struct pending {
    expected<outcome> result = outcome{};
    done completed{};
    double begin_s = 0;
    void* event = nullptr;
    bool timed = false;
    void *from = nullptr, *to = nullptr;              // timing events around its kernels
    std::shared_ptr<device_communicator> with{};      // null: no all-reduce
    const double *loss = nullptr, *norm = nullptr;    // on the host, valid after the event
    std::vector<std::shared_ptr<const void>> held{};  // until then
  };

  template <class What>
  void enqueue(const What& o, bool timed, done completed);
  void complete_operations();
  void wait_for(const pending& p);
  template <class What>
  void start(const What& o, pending& p);
  void settle();
  void perform(const operations::forward& o, pending& p);
  void perform(const operations::recompute& o, pending& p);
  void perform(const operations::backward& o, pending& p);
  void perform(const operations::gradients& o, pending& p);
  void perform(const operations::reset&, pending& p);
  void perform(const operations::update& o, pending& p);
  void perform(const operations::make_communicator_id& o, pending& p);
  void perform(const operations::join_communicator& o, pending&);
  void perform(const operations::sum& o, pending& p);
  void perform(const operations::save& o, pending& p);
  void perform(const operations::load& o, pending& p);
  void perform(const operations::weights&, pending& p);
  void perform(const operations::digest&, pending& p);
  void perform(const operations::values&, pending& p);

  template <class Launch>
  auto timed(Launch launch, pending& p);
  template <class Ask>
  auto in_one_pass(Ask ask, pending& p);
  void rehearse();
  std::shared_ptr<device_communicator> peers();
  std::shared_ptr<device_communicator> beside_backward();
  void end_group(const std::string& why);
  void forget_passes(const std::string& why);
  void broke(const reason& why);

  template <class T>
  buffer<T> bring(std::span<const T> values, pending& p);
  buffer<float> bring_floats(const payload& from, pending& p);
  payload take_out(const buffer<float>& from, std::size_t values, pending& p);
  const double* take_out(const buffer<double>& one, pending& p);
  own_and_tied take_out_both(const buffer<float>& values, pending& p);
  stage_input input_of(const operations::forward& o, pending& p);
  void bring_tokens(const payload& tokens, stage_input& in, pending& p);

  stage_spec spec_;
  std::shared_ptr<machine> machine_;
  const std::shared_ptr<device_communicator> tensor_group_;
  stage stage_;
  const communicator_patience patience_;
  microbatch_progress progress_;
  bool summed_ = false;      // gradients are the sums over all members
  bool sums_begun_ = false;  // some of them are, or are being all-reduced
  bool went_back_ = false;   // gradients are not 0
  std::map<std::uint32_t, std::shared_ptr<microbatch>> held_;
  std::atomic<bool> leaving_ = false;

  std::mutex guard_;
  std::shared_ptr<device_communicator> peers_;  // null: none joined
  std::optional<reason> broken_;  // why gradients and weights are invalid, until one is loaded
  std::condition_variable wake_;
  std::deque<pending> asked_;
  bool closed_ = false;  // no operation is accepted
  std::thread completer_;
  operation_queue submitter_;
};

}  // namespace troupe::gpu::cuda
