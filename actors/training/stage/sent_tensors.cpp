#include "actors/training/stage/sent_tensors.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

bool is_to(const tensor& t, const stage_name& who) {
  return t.to_pipeline == who.pipeline && t.to_stage == who.stage;
}

/// Can a stage send `later` only after it has received `t`?
bool shows_receipt(const tensor& later, const tensor& t) {
  switch (later.what) {
    case tensor::kind::gradient:
      return t.what == tensor::kind::activation && t.microbatch == later.microbatch;
    case tensor::kind::sum:
      return t.what == tensor::kind::partial;
    case tensor::kind::running_sum:
      return t.what == tensor::kind::running && t.microbatch == later.microbatch;
    case tensor::kind::tied_sum:
      return t.what == tensor::kind::tied_partial;
    case tensor::kind::commit:
      return t.what == tensor::kind::ready;
    default:
      return false;
  }
}

/// The request's micro-batches are sorted.
bool requests(const tensor_request& r, const tensor& t) {
  if (t.what != r.what || t.iteration != r.iteration || !is_to(t, r.from)) return false;
  if (t.what != tensor::kind::activation && t.what != tensor::kind::gradient && !is_chunk(t.what))
    return true;
  return std::binary_search(r.microbatches.begin(), r.microbatches.end(), t.microbatch);
}

}  // namespace

template <class Predicate>
void sent_tensors::erase_if(Predicate p) {
  std::erase_if(kept_, [&](const kept& k) {
    if (!p(k)) return false;
    TROUPE_INVARIANT(bytes_ >= k.body.bytes().size(),
                     "the bytes of a kept tensor are among all that are kept");
    bytes_ -= k.body.bytes().size();
    return true;
  });
}

// The newest is always kept, however large: it is the one that is most likely still to be needed.
void sent_tensors::keep(const tensor& t, payload body, double now_s, bool lost) {
  bytes_ += body.bytes().size();
  kept_.push_back({t, std::move(body), now_s, 1, lost});
  while (bytes_ > max_bytes && kept_.size() > 1) {
    bytes_ -= kept_.front().body.bytes().size();
    kept_.erase(kept_.begin());
  }
}

// A stage begins an iteration only with the sums of the one before, and the word to update: so a
// tensor of a later iteration shows that its sender has had all of the earlier.
void sent_tensors::on_received(const tensor& t) {
  erase_if([&](const kept& k) {
    if (!is_to(k.header, t.from)) return false;
    return k.header.iteration < t.iteration ||
           (k.header.iteration == t.iteration && shows_receipt(t, k.header));
  });
}

void sent_tensors::begin_iteration(std::uint64_t iteration) {
  erase_if([&](const kept& k) { return k.header.iteration + 1 < iteration; });
}

void sent_tensors::forget_from(std::uint64_t iteration) {
  erase_if([&](const kept& k) { return k.header.iteration >= iteration; });
}

// A tensor that the transport has dropped is due at once. For others the receiver gives the time
// that its kind usually takes, and the factor doubles that with each resend, so that a slow link is
// not filled with copies.
std::vector<sent_tensors::resent> sent_tensors::take_due(tensor_request r, double now_s) {
  std::vector<resent> result;
  std::sort(r.microbatches.begin(), r.microbatches.end());
  const double limit_s = std::max(min_resend_s, r.older_than_s);
  for (auto& k : kept_) {
    if (!requests(r, k.header) || (!k.lost && now_s - k.sent_s < limit_s * k.factor)) continue;
    k.factor = std::min(2 * k.factor, max_factor);
    k.lost = false;
    k.sent_s = now_s;
    result.push_back({k.header, k.body});
  }
  return result;
}

void request_timeout::add_sample(tensor::kind k, double took_s) {
  auto& longest_s = now_[static_cast<std::size_t>(k)];
  longest_s = std::max(longest_s, took_s);
}

// The longest of two iterations: a single fast iteration must not make the next one impatient.
void request_timeout::next_iteration() {
  before_ = std::exchange(now_, {});
}

double request_timeout::after_s(tensor::kind k, double expected_s) const {
  const auto i = static_cast<std::size_t>(k);
  const double longest_s = std::max(now_[i], before_[i]);
  return min_s + 1.5 * (longest_s > 0 ? longest_s : expected_s);
}

}  // namespace troupe::actors
