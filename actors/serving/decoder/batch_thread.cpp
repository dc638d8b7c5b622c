#include "actors/serving/decoder/batch_thread.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "gpu/device/device_type.hpp"
#include "gpu/device/processors.hpp"
#include "gpu/inference/host_memory.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/model_files.hpp"

namespace troupe::actors {

decoder_model model_of(const gpu::inference_device& d) {
  const auto& m = d.spec().model;
  decoder_model r;
  r.positions = m.positions;
  r.vocabulary = m.vocabulary;
  r.layers = m.layers;
  r.pages = d.spec().pages;
  r.page_bytes = gpu::page_bytes(m);
  r.hidden_bytes = m.hidden * sizeof(float);
  return r;
}

// The files' hash is compared with the job's before they are read: fronts encode prompts by the
// same files. The cache must hold one sequence of the longest context, since pages for all of its
// positions are taken at admission; with fewer pages such a request would be refused for ever.
expected<std::unique_ptr<gpu::inference_device>> load_model(const serving& s,
                                                            const std::string& backend,
                                                            std::uint64_t adapter_bytes) {
  const auto* type = gpu::type_of(device_kind_of(backend).value_or(device_kind::sim));
  if (!type || !type->make_inference)
    return refuse(reason::kind::infeasible, "models are served on devices of kind {}, not '{}'",
                  real_devices(&device_facts::can_serve), backend);
  const auto threads = s.threads.value_or(1);
  if (auto ok = gpu::check_threads("threads", threads); !ok) return refuse(ok.error());
  if (auto ok = check_model_files(s.model); !ok) return refuse(ok.error());
  const auto model = gpu::read_inference_model(s.model.folder);
  if (!model) return refuse(model.error());
  const auto context = s.context == 0 ? model->positions : std::min(s.context, model->positions);
  const auto bytes = static_cast<double>(gpu::page_bytes(*model)) * model->layers;
  const auto pages = s.kv_gb * bytes_per_gb / bytes;
  if (pages < gpu::pages_for(context))
    return refuse(reason::kind::invalid,
                  "kv_gb: a sequence of {} positions needs {:.3g} GB, and the cache has {:.3g}",
                  context, bytes * gpu::pages_for(context) / bytes_per_gb, s.kv_gb);
  auto spec = gpu::whole_model(*model, static_cast<std::uint32_t>(std::min(pages, 1e9)));
  spec.threads = threads;
  if (device_kind_of(backend) == device_kind::cpu)
    if (auto ok = gpu::check_cache(*model, spec.pages, spec.threads, gpu::host_memory_bytes(),
                                   "kv_gb", adapter_bytes);
        !ok)
      return refuse(ok.error());
  spec.weights = s.model.folder;
  spec.seed = s.model.random_weights;
  return type->make_inference(spec);
}

expected<std::map<std::string, gpu::adapter_ref>> load_adapters(const serving& s) {
  std::map<std::string, gpu::adapter_ref> all;
  if (!s.adapters) return all;
  const auto model = gpu::read_inference_model(s.model.folder);
  if (!model) return refuse(model.error());
  for (const auto& a : *s.adapters) {
    auto read = gpu::open_adapter(a.folder, *model, s.model.folder);
    if (!read) return refuse(read.error());
    // Behind it: values of files that are replaced meanwhile must not be served.
    if (auto ok = check_adapter_files(a); !ok) return refuse(ok.error());
    all.emplace(a.name, std::move(*read));
  }
  return all;
}

expected<loaded_model> load_with_adapters(const serving& s, const std::string& backend) {
  auto adapters = load_adapters(s);
  if (!adapters) return refuse(adapters.error());
  std::uint64_t bytes = 0;
  for (const auto& [name, a] : *adapters) bytes += a->bytes();
  auto device = load_model(s, backend, bytes);
  if (!device) return refuse(device.error());
  return loaded_model{std::move(*device), std::move(*adapters)};
}

batch_thread::batch_thread(create make) : make_{std::move(make)}, thread_{[this] { run(); }} {}

batch_thread::~batch_thread() {
  {
    const std::lock_guard hold{mutex_};
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

// The decoder has one call under way at a time: open, then round after round. One slot therefore
// takes the place of a queue. A call that the thread has not taken when the end comes is discarded.
void batch_thread::post(std::function<void()> what) {
  {
    const std::lock_guard hold{mutex_};
    TROUPE_INVARIANT(!next_, "one call to the device is under way at a time");
    next_ = std::move(what);
  }
  wake_.notify_one();
}

void batch_thread::run() {
  for (;;) {
    std::unique_lock hold{mutex_};
    wake_.wait(hold, [this] { return ends_ || next_; });
    if (ends_) return;
    const auto what = std::exchange(next_, nullptr);
    hold.unlock();
    what();
  }
}

// An exception of the device must neither leave the thread nor reach the actor: it becomes the
// result of the call, and the decoder ends with it as its reason.
void batch_thread::open(std::function<void(expected<decoder_model>)> done) {
  post([this, done = std::move(done)] {
    try {
      auto made = make_();
      if (!made) return done(refuse(made.error()));
      device_ = std::move(made->device);
      auto m = model_of(*device_);
      m.adapters = std::move(made->adapters);
      done(std::move(m));
    } catch (const std::exception& e) {
      done(refuse(reason::kind::unavailable, "loading the model failed: {}", e.what()));
    }
  });
}

void batch_thread::execute(gpu::batch_round r,
                           std::function<void(expected<std::vector<gpu::batch_result>>)> done) {
  post([this, r = std::move(r), done = std::move(done)] {
    try {
      std::vector<gpu::batch_result> results;
      gpu::execute(*device_, r, [&](gpu::batch_result x) { results.push_back(std::move(x)); });
      done(std::move(results));
    } catch (const std::exception& e) {
      done(refuse(reason::kind::unavailable, "the device failed: {}", e.what()));
    }
  });
}

}  // namespace troupe::actors
