#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "messages/base/fair_share.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"

namespace troupe {

/// A link shared equally by flows; the transfers of one flow follow one another, as on a
/// connection. Sizes are nanoseconds
/// of the whole link's time.
template <class Flow>
class flow_share {
 public:
  /// `count`: number of identical flows. `share`: the largest part of the link that each can have.
  void start(time_ns now, const Flow& flow, double link_ns, std::uint64_t token,
             std::size_t count = 1, double share = 1) {
    auto& waiting = flows_[flow];
    waiting.push_back({link_ns, token, count, share});
    if (waiting.size() == 1) begin(now, flow, waiting.front());
  }

  std::optional<time_ns> next_end() const { return share_.next_end(); }

  std::optional<std::uint64_t> take_ended(time_ns now) {
    const auto token = share_.take_ended(now);
    if (!token) return token;
    const auto known = under_way_.extract(*token);
    TROUPE_INVARIANT(known, "a transfer that ends was under way");
    const auto at = flows_.find(known.mapped());
    TROUPE_INVARIANT(at != flows_.end() && at->second.front().token == *token,
                     "the transfers of a flow end in their order");
    at->second.pop_front();
    if (at->second.empty())
      flows_.erase(at);
    else
      begin(now, at->first, at->second.front());
    return token;
  }

 private:
  struct transfer {
    double link_ns = 0;
    std::uint64_t token = 0;
    std::size_t count = 1;
    double share = 1;
  };
  void begin(time_ns now, const Flow& flow, const transfer& t) {
    under_way_.emplace(t.token, flow);
    share_.start(now, t.link_ns, t.token, t.count, t.share);
  }

  fair_share share_{1e9, 0};
  std::map<Flow, std::deque<transfer>> flows_;
  std::map<std::uint64_t, Flow> under_way_;
};

}  // namespace troupe
