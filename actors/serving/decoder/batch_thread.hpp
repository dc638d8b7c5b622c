#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/serving/decoder/batch_executor.hpp"
#include "gpu/inference/inference_device.hpp"
#include "messages/domain/serving.hpp"

namespace troupe::actors {

/// Loads a served model onto a device of this kind. Takes seconds. Fails if its files
/// cannot be served, if the cache does not hold one sequence of the longest context, or if the
/// device does not serve. adapter_bytes: that other values take beside the model's.
expected<std::unique_ptr<gpu::inference_device>> load_model(const serving& s,
                                                            const std::string& backend,
                                                            std::uint64_t adapter_bytes = 0);

/// The adapters that it serves, by name. Fails if one's files are not those of the job, or do not
/// fit the model completely.
expected<std::map<std::string, gpu::adapter_ref>> load_adapters(const serving& s);

/// A device with the whole model, and the adapters that sequences can be computed with.
struct loaded_model {
  std::unique_ptr<gpu::inference_device> device;
  std::map<std::string, gpu::adapter_ref> adapters;
};
expected<loaded_model> load_with_adapters(const serving& s, const std::string& backend);

/// A real device, which a thread of its own uses.
class batch_thread final : public batch_executor {
 public:
  using create = std::function<expected<loaded_model>()>;

  /// make: called on the thread.
  explicit batch_thread(create make);
  /// Waits for the round that is being executed.
  ~batch_thread() override;

  void open(std::function<void(expected<decoder_model>)> done) override;
  void execute(gpu::batch_round r,
               std::function<void(expected<std::vector<gpu::batch_result>>)> done) override;

 private:
  void post(std::function<void()> what);
  void run();

  create make_;
  std::unique_ptr<gpu::inference_device> device_;  // the thread's
  std::mutex mutex_;
  std::condition_variable wake_;
  std::function<void()> next_;
  bool ends_ = false;
  std::thread thread_;
};

/// The description of a device that has a whole model.
decoder_model model_of(const gpu::inference_device& d);

}  // namespace troupe::actors
