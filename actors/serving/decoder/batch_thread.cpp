#include "actors/serving/decoder/batch_thread.hpp"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"

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
    TROUPE_INVARIANT(!next_);
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
      device_ = std::move(*made);
      done(model_of(*device_));
    } catch (const std::exception& e) {
      done(
          refuse(reason::kind::unavailable, fmt::format("loading the model failed: {}", e.what())));
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
      done(refuse(reason::kind::unavailable, fmt::format("the device failed: {}", e.what())));
    }
  });
}

}  // namespace troupe::actors
