#include "actors/serving/front/front_tally.hpp"

#include <vector>

#include "messages/base/statistics.hpp"

namespace troupe::actors {

// Scored tokens are the prompt's and were not generated. A request that is refused for want of room
// counts as declined and not as failed: it is the load that was too high.
void front_tally::count(const completion_update& n, double after_s) {
  using enum generated::ending;
  counts_.tokens += n.tokens.size() - n.scored;
  if (n.first == 0 && !n.tokens.empty()) {
    first_tokens_s_.push_back(after_s);
    if (first_tokens_s_.size() > newest) first_tokens_s_.pop_front();
    if (n.where) ++(n.where->bubbles ? counts_.by_bubbles : counts_.by_decoders);
    if (n.where) counts_.yields += n.where->yields;
  }
  if (n.finish == stop || n.finish == length) ++counts_.finished;
  if (n.finish != failed) return;
  ++(n.why.code == reason::kind::insufficient ? counts_.declined : counts_.failed);
}

void front_tally::write(front_report& to) const {
  to.counts = counts_;
  if (first_tokens_s_.empty()) return;
  const std::vector<double> all{first_tokens_s_.begin(), first_tokens_s_.end()};
  to.ttft_p50_s = statistics::median(all);
  to.ttft_p99_s = statistics::quantile(all, 0.99);
}

}  // namespace troupe::actors
