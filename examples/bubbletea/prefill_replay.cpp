#include "bubbletea/prefill_replay.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace bubbletea {

namespace {

/// A discrete-event simulation with two kinds of events: a device's piece ends, or a device may
/// begin one. Arrivals come from the trace, before the events of the same instant. Ties of events
/// go by the order in which they were scheduled, so that a replay is reproducible.
class replay {
 public:
  replay(planners::prefill_packing packing, std::size_t devices,
         std::span<const planners::prefill_prompt> requests, const replay_options& o)
      : packing_{std::move(packing)},
        requests_{requests},
        options_{o},
        running_(devices, false),
        wakes_at_(devices, never) {
    out_.pieces.resize(devices);
  }

  prefill_replay run() {
    if (options_.saturated > 0) saturate(0);
    while (!due_.empty() || arrives()) {
      const double next_s = due_.empty() ? never : due_.front().at_s;
      if (arrives() && requests_[next_].arrival_s <= next_s) {
        const auto& r = requests_[next_++];
        offer(r, r.arrival_s);
        continue;
      }
      std::pop_heap(due_.begin(), due_.end());
      const auto e = due_.back();
      due_.pop_back();
      if (e.piece == wake)
        awake(e);
      else
        end(e);
    }
    return std::move(out_);
  }

 private:
  static constexpr std::size_t wake = ~std::size_t{0};
  struct event {
    double at_s = 0;
    std::uint64_t sequence = 0;
    std::uint32_t device = 0;
    std::size_t piece = wake;               // that ends
    bool operator<(const event& o) const {  // later
      return at_s != o.at_s ? at_s > o.at_s : sequence > o.sequence;
    }
  };

  bool arrives() const {
    return options_.saturated == 0 && next_ < requests_.size() &&
           requests_[next_].arrival_s < options_.until_s;
  }

  void happen(double at_s, std::uint32_t device, std::size_t piece) {
    due_.push_back({at_s, ++sequence_, device, piece});
    std::push_heap(due_.begin(), due_.end());
  }

  bool offer(const planners::prefill_prompt& r, double now_s) {
    ++out_.offered;
    const auto promised = packing_.admit(r, now_s);
    if (!promised) {
      ++out_.declined[static_cast<std::size_t>(promised.error())];
      return false;
    }
    promised_[r.id] = {r.id, r.tokens, promised->group, r.arrival_s, promised->end_s, 0};
    look(packing_.groups()[promised->group].guests[0].device, now_s);
    return true;
  }

  void saturate(double now_s) {
    if (now_s >= options_.until_s) return;
    std::size_t refused = 0;
    while (packing_.promised() < options_.saturated && refused < requests_.size()) {
      auto r = requests_[next_ % requests_.size()];
      r.id = next_++;
      r.arrival_s = now_s;
      r.latest_s = never;
      refused = offer(r, now_s) ? 0 : refused + 1;
    }
  }

  /// Lets an idle device begin what it can.
  void look(std::uint32_t device, double now_s) {
    if (running_[device]) return;
    const auto next = packing_.next(device, now_s);
    if (next.piece) {
      running_[device] = true;
      happen(next.piece->end_s, device, out_.pieces[device].size());
      out_.pieces[device].push_back(*next.piece);
    } else if (next.again_s < wakes_at_[device]) {
      wakes_at_[device] = next.again_s;
      happen(next.again_s, device, wake);
    }
  }

  void awake(const event& e) {
    if (wakes_at_[e.device] != e.at_s) return;
    wakes_at_[e.device] = never;
    look(e.device, e.at_s);
  }

  void end(const event& e) {
    const auto piece = out_.pieces[e.device][e.piece];
    running_[e.device] = false;
    if (packing_.ended(piece)) {
      const auto at = promised_.find(piece.request);
      at->second.end_s = e.at_s;
      out_.served.push_back(at->second);
      promised_.erase(at);
      if (options_.saturated > 0) saturate(e.at_s);
    }
    look(e.device, e.at_s);
    if (const auto after = packing_.device_after(piece)) look(*after, e.at_s);
  }

  planners::prefill_packing packing_;
  std::span<const planners::prefill_prompt> requests_;
  replay_options options_;
  std::vector<bool> running_;
  std::vector<double> wakes_at_;
  std::vector<event> due_;  // a heap
  std::uint64_t sequence_ = 0;
  std::size_t next_ = 0;
  std::map<std::uint64_t, served_prefill> promised_;
  prefill_replay out_;
};

}  // namespace

std::uint64_t prefill_replay::all_declined() const {
  return std::accumulate(declined.begin(), declined.end(), std::uint64_t{0});
}

planners::idle_windows prefill_replay::used(std::size_t device) const {
  planners::idle_windows all;
  for (const auto& p : pieces[device]) all.push_back({p.begin_s, p.end_s});
  return all;
}

prefill_replay replay_prefills(planners::prefill_packing packing, std::size_t devices,
                               std::span<const planners::prefill_prompt> requests,
                               const replay_options& options) {
  return replay{std::move(packing), devices, requests, options}.run();
}

}  // namespace bubbletea
