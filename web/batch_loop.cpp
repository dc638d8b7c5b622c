#include "web/batch_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace troupe::web {

namespace {

std::span<const float> floats_of(const payload& p) {
  return {reinterpret_cast<const float*>(p.bytes().data()), p.bytes().size() / sizeof(float)};
}

struct sequence {
  std::uint64_t id;
  sequence_request request;
  sequence_listener listener;
  gpu::completion text;
  std::size_t computed = 0;  // positions of the prompt in the cache
  bool over = false;

  sequence(std::uint64_t i, batch_loop::submission s, const gpu::tokenizer* words)
      : id{i},
        request{std::move(s.request)},
        listener{std::move(s.listener)},
        text{request.limits, words} {}

  std::uint32_t positions() const {
    return static_cast<std::uint32_t>(request.prompt.size()) + request.limits.max_tokens;
  }
  bool prefilled() const { return computed == request.prompt.size(); }
};
using sequence_ptr = std::unique_ptr<sequence>;

}  // namespace

class batch_loop::thread {
 public:
  thread(std::unique_ptr<gpu::inference_device> device, std::shared_ptr<const gpu::tokenizer> words,
         const batch_limits& limits)
      : device_{std::move(device)},
        words_{std::move(words)},
        limits_{limits},
        pages_{device_->free_pages()} {
    publish();
    thread_ = std::thread{[this] { run(); }};
  }
  ~thread() {
    {
      const std::lock_guard hold{mutex_};
      ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  expected<std::vector<std::uint64_t>> submit(std::vector<submission> all) {
    for (const auto& s : all)
      if (auto ok = check(s.request); !ok) return refuse(ok.error());
    std::vector<std::uint64_t> ids;
    {
      const std::lock_guard hold{mutex_};
      if (present_ + all.size() > limits_.sequences)
        return refuse(reason::kind::insufficient,
                      fmt::format("{} sequences are running or waiting, and {} are allowed",
                                  present_, limits_.sequences));
      present_ += all.size();
      for (auto& s : all) {
        ids.push_back(next_++);
        arrived_.push_back(std::make_unique<sequence>(ids.back(), std::move(s), words_.get()));
      }
    }
    wake_.notify_one();
    return ids;
  }

  void cancel(const std::vector<std::uint64_t>& sequences) {
    {
      const std::lock_guard hold{mutex_};
      cancelled_.insert(cancelled_.end(), sequences.begin(), sequences.end());
    }
    wake_.notify_one();
  }

  batch_state state() const {
    const std::lock_guard hold{mutex_};
    return state_;
  }

 private:
  /// The device's model is not changed by its thread.
  expected<void> check(const sequence_request& r) const {
    const auto& m = device_->spec().model;
    const auto no = [](std::string why) { return refuse(reason::kind::invalid, std::move(why)); };
    if (r.prompt.empty()) return no("a prompt needs at least one token");
    const std::uint64_t all = r.prompt.size() + std::uint64_t{r.limits.max_tokens};
    if (all > m.positions)
      return no(fmt::format("{} prompt tokens and {} new ones are more than the {} positions of {}",
                            r.prompt.size(), r.limits.max_tokens, m.positions, m.name));
    if (const auto n = gpu::pages_for(static_cast<std::uint32_t>(all)); n > pages_)
      return no(fmt::format("{} prompt tokens and {} new ones need {} pages, and the cache has {}",
                            r.prompt.size(), r.limits.max_tokens, n, pages_));
    for (const auto token : r.prompt)
      if (token >= m.vocabulary)
        return no(fmt::format("token {} is beyond the vocabulary of {}", token, m.vocabulary));
    return {};
  }

  void run() {
    while (take_arrivals()) {
      admit();
      decode();
      prefill();
      drop_ended();
      publish();
    }
    for (const auto& s : running_) device_->release(s->id);
  }

  /// Waits until there is something to do; false: the end.
  bool take_arrivals() {
    std::unique_lock hold{mutex_};
    wake_.wait(hold, [&] {
      return ends_ || !arrived_.empty() || !cancelled_.empty() || !running_.empty() ||
             !waiting_.empty();
    });
    if (ends_) return false;
    for (auto& s : arrived_) waiting_.push_back(std::move(s));
    arrived_.clear();
    const auto gone = std::exchange(cancelled_, {});
    hold.unlock();
    for (const auto id : gone) {
      for (auto* list : {&running_, &waiting_})
        for (auto& s : *list)
          if (s->id == id) s->over = true;
    }
    drop_ended();
    return true;
  }

  /// In the order of arrival: a long one is not overtaken for ever by short ones.
  void admit() {
    while (!waiting_.empty() && running_.size() < limits_.running) {
      auto& s = waiting_.front();
      if (!device_->reserve(s->id, s->positions())) return;
      running_.push_back(std::move(s));
      waiting_.pop_front();
    }
  }

  /// One token of each sequence whose prompt is computed.
  void decode() {
    std::vector<sequence*> who;
    std::vector<gpu::decode_row> rows;
    for (const auto& s : running_) {
      if (s->over || !s->prefilled()) continue;
      const auto position = s->request.prompt.size() + s->text.tokens().size() - 1;
      who.push_back(s.get());
      rows.push_back({s->id, static_cast<std::uint32_t>(position), s->text.tokens().back()});
    }
    if (rows.empty()) return;
    const auto work = device_->decode(rows, {});
    if (!work) return fail(who, work.error());
    predict(who, gpu::finish(**work));
  }

  /// At most limits_.prefill positions of prompts, in the order of admission.
  void prefill() {
    std::size_t left = limits_.prefill;
    for (const auto& s : running_) {
      if (left < gpu::tile_positions) return;
      if (s->over || s->prefilled()) continue;
      // Chunks begin at multiples of a tile.
      const auto whole = left / gpu::tile_positions * gpu::tile_positions;
      const auto n = std::min(whole, s->request.prompt.size() - s->computed);
      left -= n;
      compute(*s, n);
    }
  }

  void compute(sequence& s, std::size_t n) {
    const auto chunk = std::span{s.request.prompt}.subspan(s.computed, n);
    const auto work = device_->prefill(s.id, static_cast<std::uint32_t>(s.computed),
                                       payload{nullptr, std::as_bytes(chunk)});
    if (!work) return fail({&s}, work.error());
    const auto hidden = gpu::finish(**work);
    s.computed += n;
    if (!s.prefilled()) return;
    const auto width = device_->spec().model.hidden * sizeof(float);
    predict({&s}, {hidden.owner(), hidden.bytes().last(width)});
  }

  /// The next token of each, from the hidden states of its last position.
  void predict(const std::vector<sequence*>& who, const payload& hidden) {
    const auto work = device_->head(hidden);
    if (!work) return fail(who, work.error());
    const auto rows = gpu::finish(**work);
    const auto logits = floats_of(rows);
    const std::size_t width = device_->spec().model.vocabulary;
    for (std::size_t i = 0; i < who.size(); ++i) take(*who[i], logits.subspan(i * width, width));
  }

  void take(sequence& s, std::span<const float> logits) {
    const auto position = s.request.prompt.size() + s.text.tokens().size();
    const auto chosen = gpu::sample(logits, s.request.how, position);
    sequence_step step;
    step.token = chosen.token;
    step.log_probability = chosen.log_probability;
    step.top = top_tokens(logits, s.request.top);
    step.text = s.text.add(chosen);
    step.finished = s.text.finished();
    s.over = step.finished != gpu::completion::finish::none;
    // Free before anybody hears of the end.
    if (s.over) {
      device_->release(s.id);
      publish();
    }
    s.listener(step);
  }

  void fail(const std::vector<sequence*>& who, const reason& why) {
    sequence_step step;
    step.failed = &why;
    for (auto* s : who) {
      s->over = true;
      device_->release(s->id);
      s->listener(step);
    }
  }

  void drop_ended() {
    std::size_t ended = 0;
    for (auto* list : {&running_, &waiting_})
      ended += std::erase_if(*list, [&](const sequence_ptr& s) {
        if (s->over) device_->release(s->id);
        return s->over;
      });
    const std::lock_guard hold{mutex_};
    present_ -= ended;
  }

  void publish() {
    const auto free = device_->free_pages();
    const std::lock_guard hold{mutex_};
    state_ = {pages_ - free, free, static_cast<std::uint32_t>(running_.size()),
              static_cast<std::uint32_t>(waiting_.size())};
  }

  const std::unique_ptr<gpu::inference_device> device_;
  const std::shared_ptr<const gpu::tokenizer> words_;
  const batch_limits limits_;
  const std::uint32_t pages_;

  std::deque<sequence_ptr> running_, waiting_;  // the thread's

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<sequence_ptr> arrived_;
  std::vector<std::uint64_t> cancelled_;
  std::uint64_t next_ = 1;
  std::size_t present_ = 0;
  bool ends_ = false;
  batch_state state_;

  std::thread thread_;
};

batch_loop::batch_loop(std::unique_ptr<gpu::inference_device> device,
                       std::shared_ptr<const gpu::tokenizer> words, const batch_limits& limits)
    : thread_{std::make_unique<thread>(std::move(device), std::move(words), limits)} {}

batch_loop::~batch_loop() = default;

expected<std::vector<std::uint64_t>> batch_loop::submit(std::vector<submission> all) {
  return thread_->submit(std::move(all));
}

void batch_loop::cancel(const std::vector<std::uint64_t>& sequences) {
  thread_->cancel(sequences);
}

batch_state batch_loop::state() const {
  return thread_->state();
}

}  // namespace troupe::web
