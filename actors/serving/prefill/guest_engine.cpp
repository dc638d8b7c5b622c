#include "actors/serving/prefill/guest_engine.hpp"

#include <utility>

namespace troupe::actors {

namespace {

constexpr double shortest_yield_s = 1e-6;

}  // namespace

// A tile that is being executed is forgotten, too: its result is then dropped.
void tile_queue::forget(const prefill_name& n) {
  if (begun_ && begun_->name == n) begun_.reset();
  std::erase_if(waiting_, [&](const auto& w) { return w.second.name == n; });
}

// The tile that has begun goes first even if an earlier prompt has come meanwhile: its work on the
// device cannot be put aside.
const guest_tile* tile_queue::present() const {
  if (begun_) return &*begun_;
  return waiting_.empty() ? nullptr : &waiting_.begin()->second;
}

const guest_tile& tile_queue::begin() {
  if (!begun_) {
    begun_ = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
  return *begun_;
}

guest_tile tile_queue::take() {
  auto t = std::move(*begun_);
  begun_.reset();
  return t;
}

// Offers all operations that the tile still needs; the executor takes as many as fit its idle
// window.
gpu::guest_work::run simulated_guest::next(double) {
  const auto* t = tiles_.present();
  if (!t) return {};
  if (!tiles_.begun()) executed_ = yields_ = 0;
  offered_ = {t->sequence, t->tile};
  return {t->operations - executed_, t->each_s, static_cast<std::uint32_t>(t->name.number)};
}

// Called when the operations have ended, on the world's clock: their begin follows from their
// number and time. The tile may have been forgotten meanwhile, and another one may be present; its
// operations were not offered, so nothing counts then. A gap before the begin means that the
// training took the device in between: a yield.
void simulated_guest::execute(std::uint32_t count) {
  const auto* t = tiles_.present();
  if (!t || std::pair{t->sequence, t->tile} != offered_) return;
  if (!tiles_.begun()) executed_ = yields_ = 0;
  const double began_s = now_s_() - count * t->each_s;
  if (executed_ > 0 && began_s > last_end_s_ + shortest_yield_s) ++yields_;
  t = &tiles_.begin();
  if (executed_ == 0) tile_began_s_ = began_s;
  last_end_s_ = now_s_();
  executed_ += count;
  if (executed_ < t->operations) return;
  const auto ended = tiles_.take();
  guest_tile_result r{ended.name, ended.tile};
  r.computed_s = ended.operations * ended.each_s;
  r.steps = ended.operations;
  r.yields = yields_;
  r.took_s = last_end_s_ - tile_began_s_;
  done_(std::move(r));
}

}  // namespace troupe::actors
