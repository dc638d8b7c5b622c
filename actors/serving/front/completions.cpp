#include "actors/serving/front/completions.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace troupe::actors {

struct completions::shared {
  mutable std::mutex mutex;
  front_port port;
  front_view view;
  std::uint64_t next = 1;
};

// Until the controller has stated the served models, every name may be one.
bool front_view::may_be_offered(const std::string& name) const {
  return !has_statement || served.contains(name) ||
         std::ranges::any_of(served, [&](const std::string& model) {
           const auto at = models.find(model);
           return at == models.end() || at->second.adapters.contains(name);
         });
}

completions::completions() : shared_{std::make_shared<shared>()} {}

// Calls are passed on under the lock, so that numbers reach the front in ascending order. The
// front's port only posts a message: it neither blocks nor calls back.
std::uint64_t completions::submit(model_prompt p, completion_listener listener) const {
  const std::lock_guard hold{shared_->mutex};
  const auto number = shared_->next++;
  if (shared_->port.submit) shared_->port.submit(number, std::move(p), std::move(listener));
  return number;
}

void completions::cancel(std::uint64_t number, bool enough) const {
  const std::lock_guard hold{shared_->mutex};
  if (shared_->port.cancel) shared_->port.cancel(number, enough);
}

front_view completions::view() const {
  const std::lock_guard hold{shared_->mutex};
  return shared_->view;
}

void completions::connect(front_port port) const {
  const std::lock_guard hold{shared_->mutex};
  shared_->port = std::move(port);
}

void completions::publish(front_view now) const {
  const std::lock_guard hold{shared_->mutex};
  shared_->view = std::move(now);
}

}  // namespace troupe::actors
