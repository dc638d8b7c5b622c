#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/host/timed_calls.hpp"

namespace troupe::web {

/// Threads that prepare prompts: each model has a queue for completions and one for chats, whose
/// template may take long, so that none waits for another. With many models some share a thread.
class prompt_queues {
 public:
  /// In order within one model's completions, or chats. From any thread.
  void soon(const std::string& model, bool chat, std::function<void()> what) {
    const std::lock_guard hold{mutex_};
    auto [at, is_new] = places_.try_emplace({model, chat}, next_);
    if (is_new) next_ = (next_ + 1) % max_threads;
    if (threads_.size() <= at->second) threads_.resize(at->second + 1);
    auto& thread = threads_[at->second];
    if (!thread) thread = std::make_unique<runtime::timed_calls>();
    thread->soon(std::move(what));
  }
  /// A model that is asked again gets a place again.
  void forget(const std::string& model) {
    const std::lock_guard hold{mutex_};
    places_.erase({model, false});
    places_.erase({model, true});
  }

 private:
  static constexpr std::size_t max_threads = 16;

  std::mutex mutex_;
  std::map<std::pair<std::string, bool>, std::size_t> places_;
  std::size_t next_ = 0;
  std::vector<std::unique_ptr<runtime::timed_calls>> threads_;
};

}  // namespace troupe::web
