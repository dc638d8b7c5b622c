#include "web/openai/batch_loop.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "gpu/inference/batch_queue.hpp"
#include "gpu/inference/completion_room.hpp"
#include "messages/base/find_in.hpp"

namespace troupe::web {

namespace {

class batch_loop final : public generator {
 public:
  batch_loop(std::unique_ptr<gpu::inference_device> device,
             std::shared_ptr<const gpu::tokenizer> words, const batch_limits& limits)
      : device_{std::move(device)},
        words_{std::move(words)},
        limits_{limits},
        pages_{device_->free_pages()},
        longest_{static_cast<std::uint32_t>(std::min<std::uint64_t>(
            device_->spec().model.positions, std::uint64_t{pages_} * gpu::tile_positions))},
        queue_{{.running = limits.running, .prefill = limits.prefill, .shares = limits.shares},
               pages_} {
    publish();
    thread_ = std::thread{[this] { run(); }};
  }
  ~batch_loop() override {
    {
      const std::lock_guard hold{mutex_};
      ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  expected<std::vector<std::uint64_t>> submit(std::vector<submission> all) override {
    for (const auto& s : all)
      if (auto ok = gpu::check(s.what, s.prompt, room()); !ok) return refuse(ok.error());
    std::vector<std::uint64_t> ids;
    {
      const std::lock_guard hold{mutex_};
      if (auto ok = gpu::check_sequences(present_, all.size(), limits_.sequences); !ok)
        return refuse(ok.error());
      present_ += all.size();
      for (auto& s : all) {
        ids.push_back(next_++);
        arrived_.push_back({ids.back(), std::move(s)});
      }
    }
    wake_.notify_one();
    return ids;
  }

  void cancel(const std::vector<std::uint64_t>& sequences) override {
    {
      const std::lock_guard hold{mutex_};
      cancelled_.insert(cancelled_.end(), sequences.begin(), sequences.end());
    }
    wake_.notify_one();
  }

  generator_state state() const override {
    const std::lock_guard hold{mutex_};
    return state_;
  }

 private:
  struct sequence {
    sequence_listener listener;
    sequence_steps steps;
    bool begun = false;
  };
  /// It was submitted, and the thread has not taken it yet.
  struct arrival {
    std::uint64_t id = 0;
    submission what;
  };

  /// The device's model is not changed by its thread.
  gpu::completion_room room() const {
    const auto& m = device_->spec().model;
    return {m.name, m.positions, m.vocabulary, pages_};
  }

  // The loop: take what has arrived, admit, execute a round, give out its results. Only this thread
  // uses the device and the queue; callers leave submissions and cancellations under the lock.
  void run() {
    while (take_arrivals()) {
      queue_.admit();
      publish();
      gpu::execute(*device_, queue_.next(), [this](const gpu::batch_result& r) { take(r); });
      publish();
    }
  }

  /// Waits until there is something to do; false: the end.
  bool take_arrivals() {
    std::unique_lock hold{mutex_};
    wake_.wait(hold,
               [&] { return ends_ || !arrived_.empty() || !cancelled_.empty() || !queue_.idle(); });
    if (ends_) return false;
    const auto fresh = std::exchange(arrived_, {});
    const auto gone = std::exchange(cancelled_, {});
    hold.unlock();
    for (auto& a : fresh) add(a);
    for (const auto id : gone) end(id);
    return true;
  }

  // The text and its stop texts stay here: the queue and the device know tokens only.
  void add(const arrival& a) {
    const auto& s = a.what;
    sequences_.emplace(a.id, sequence{s.listener, {s, words_.get()}, false});
    gpu::batch_sequence added{a.id, s.what, s.prompt, {}};
    added.adapter = s.adapter;
    queue_.add(std::move(added));
  }

  void end(std::uint64_t id) {
    queue_.end(id);
    if (sequences_.erase(id) == 0) return;
    const std::lock_guard hold{mutex_};
    --present_;
  }

  // A result has scored tokens of the prompt, then the next one, or a failure. The last scored
  // token ends a request that only scores, so the sequence is looked up for each.
  void take(const gpu::batch_result& r) {
    if (r.unkept != 0) return queue_.forget(r.unkept);
    for (const auto& t : r.scored) {
      auto* s = find_in(sequences_, r.sequence);
      if (!s) return;
      notify(r.sequence, s->steps.next(t, true));
    }
    auto* s = find_in(sequences_, r.sequence);
    if (!s) return;  // it has failed in this round
    if (r.failed)
      return notify(r.sequence, {{}, false, {}, gpu::completion::finish::none, &*r.failed});
    if (!r.next) return;
    queue_.took(r.sequence, r.next->chosen.token);
    auto step = s->steps.next(*r.next, false);
    if (!std::exchange(s->begun, true)) step.cached = queue_.cached_prompt(r.sequence);
    notify(r.sequence, step);
  }

  /// At the end its pages are free before the listener is called.
  void notify(std::uint64_t id, const sequence_step& step) {
    const auto listener = sequences_.at(id).listener;
    if (step.failed || step.finished != gpu::completion::finish::none) {
      end(id);
      publish();
    }
    listener(step);
  }

  // Callers read a copy: the queue belongs to the thread.
  void publish() {
    const auto free = queue_.free_pages();
    const auto& n = queue_.counted();
    const std::lock_guard hold{mutex_};
    state_ = {pages_ - free,
              free,
              static_cast<std::uint32_t>(queue_.running()),
              static_cast<std::uint32_t>(queue_.waiting()),
              longest_,
              queue_.cached_pages(),
              n.set_back,
              n.computed_prompt,
              n.cached_prompt};
  }

  const std::unique_ptr<gpu::inference_device> device_;
  const std::shared_ptr<const gpu::tokenizer> words_;
  const batch_limits limits_;
  const std::uint32_t pages_, longest_;

  gpu::batch_queue queue_;                       // of the thread, as the next one
  std::map<std::uint64_t, sequence> sequences_;  // and those that have not ended

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<arrival> arrived_;
  std::vector<std::uint64_t> cancelled_;
  std::uint64_t next_ = 1;
  std::size_t present_ = 0;
  bool ends_ = false;
  generator_state state_;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<generator> make_batch_loop(std::unique_ptr<gpu::inference_device> device,
                                           std::shared_ptr<const gpu::tokenizer> words,
                                           const batch_limits& limits) {
  return std::make_unique<batch_loop>(std::move(device), std::move(words), limits);
}

}  // namespace troupe::web
