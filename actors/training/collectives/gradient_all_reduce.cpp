#include "actors/training/collectives/gradient_all_reduce.hpp"

#include <fmt/format.h>

#include "gpu/device/simulated_tensor.hpp"

#include "messages/base/invariant.hpp"

namespace troupe::actors {

// A single stage has both ends, and adds the two gradients itself.
bool tied_to_another(const stage_setup& s) {
  return s.model.tied_head && s.stages > 1 && (s.name.stage == 0 || s.name.stage + 1 == s.stages);
}

bool gradient_all_reduce::needed(const stage_setup& s) {
  return s.pipelines > 1 || tied_to_another(s);
}

gradient_all_reduce::gradient_all_reduce(const stage_setup& s)
    : pipelines_{s.pipelines},
      pipeline_{s.name.pipeline},
      stages_{s.stages},
      stage_{s.name.stage},
      sends_tied_{tied_to_another(s) && s.name.stage > 0},
      adds_tied_{tied_to_another(s) && s.name.stage == 0},
      peers_sum_{s.pipelines, s.name.pipeline,
                 s.sites ? s.sites->datacenters : std::vector<std::uint32_t>{}} {}

gradient_all_reduce::outgoing_tensors gradient_all_reduce::begin(payload own,
                                                                 std::uint64_t own_bytes,
                                                                 payload tied,
                                                                 std::uint64_t tied_bytes) {
  TROUPE_INVARIANT(!started_, "a stage adds its gradients once in an iteration");
  own_ = std::move(own), own_bytes_ = own_bytes;
  tied_ = std::move(tied), tied_bytes_ = tied_bytes;
  started_ = true;
  outgoing_tensors out;
  if (sends_tied_) add_tied(out, tensor::kind::tied_partial, 0);
  advance(out);
  return out;
}

// A tied gradient may arrive before this stage's own are complete: it is kept until advance() can
// use it. Duplicates come from requests for tensors that were only slow.
gradient_all_reduce::outgoing_tensors gradient_all_reduce::receive(const tensor& t, payload body) {
  outgoing_tensors out;
  if (t.what == tensor::kind::tied_partial || t.what == tensor::kind::tied_sum) {
    if (received_tied_) return out;  // a duplicate
    received_tied_ = std::move(body);
  } else {
    add(out, peers_sum_.receive(t, std::move(body)));
  }
  if (started_ && !complete_) advance(out);
  return out;
}

std::vector<gradient_all_reduce::missing_tensor> gradient_all_reduce::missing() const {
  std::vector<missing_tensor> result;
  if (!started_ || complete_) return result;
  for (const auto& m : peers_sum_.missing())
    result.push_back({m.what, m.from_pipeline, stage_, m.chunk});
  if (adds_tied_ && !received_tied_)
    result.push_back({tensor::kind::tied_partial, pipeline_, stages_ - 1});
  if (sends_tied_ && !received_tied_) result.push_back({tensor::kind::tied_sum, pipeline_, 0});
  if (asks_peers_ && !received_tied_)
    for (std::uint32_t p = 0; p < pipelines_; ++p)
      if (p != pipeline_) result.push_back({tensor::kind::tied_sum, p, stage_});
  return result;
}

/// Goes as far as what has arrived allows. The order is fixed: the first stage adds the tied
/// gradients, then the pipelines all-reduce, then the last stage receives the tied sum. So the sum
/// is (first + last) in each pipeline, and over the pipelines in their order, which is the order of
/// a single stage with both ends: the bits are the same however the model is cut.
void gradient_all_reduce::advance(outgoing_tensors& out) {
  TROUPE_INVARIANT(started_ && !complete_,
                   "a sum goes on between its stage's gradients and its end");
  if (!peers_sum_started_ && !start_peers_sum(out)) return;
  if (!summed_ && !finish_peers_sum(out)) return;
  if (sends_tied_) {
    if (!received_tied_ || !check_tied_size()) return;
    tied_ = *received_tied_;
  }
  complete_ = true;
}

/// Is the received gradient as large as this stage's?
bool gradient_all_reduce::check_tied_size() {
  TROUPE_INVARIANT(received_tied_, "a tied gradient is compared after it has arrived");
  const auto wanted = tied_.bytes().size(), came = received_tied_->bytes().size();
  if (came != wanted && error_.empty())
    error_ = fmt::format("a tied embedding's gradients have {} bytes, expected {}", came, wanted);
  return came == wanted;
}

/// Starts the all-reduce between the pipelines, in the first stage once it has both gradients of
/// the tied embedding.
bool gradient_all_reduce::start_peers_sum(outgoing_tensors& out) {
  if (adds_tied_) {
    if (!received_tied_ || !check_tied_size()) return false;
    tied_ = sum_of(tied_, *received_tied_);
  }
  if (pipelines_ > 1)
    add(out, peers_sum_.begin(sends_tied_ ? own_ : joined(own_, tied_),
                              own_bytes_ + (sends_tied_ ? 0 : tied_bytes_)));
  return peers_sum_started_ = true;
}

/// Takes the all-reduced gradients apart again, own and tied. In a simulation each part has the
/// digest of the whole.
bool gradient_all_reduce::finish_peers_sum(outgoing_tensors& out) {
  if (pipelines_ > 1) {
    if (!peers_sum_.complete()) return false;
    const auto sum = peers_sum_.result();
    if (gpu::digest_in(sum)) {
      own_ = sum;
      if (!sends_tied_ && gpu::digest_in(tied_)) tied_ = sum;
    }
    if (const auto size = sum.bytes().size(); size > 0) {
      TROUPE_INVARIANT(own_bytes_ <= size, "the sum of gradients has the bytes of the stage's own");
      own_ = slice(sum, 0, own_bytes_);
      if (!sends_tied_) tied_ = slice(sum, own_bytes_, size - own_bytes_);
    }
  }
  if (adds_tied_) add_tied(out, tensor::kind::tied_sum, stages_ - 1);
  return summed_ = true;
}

void gradient_all_reduce::add(outgoing_tensors& out,
                              std::vector<host_all_reduce::outgoing> more) const {
  for (auto& p : more)
    out.push_back({p.what, p.to_pipeline, stage_, std::move(p.body), p.bytes, p.chunk});
}

void gradient_all_reduce::add_tied(outgoing_tensors& out, tensor::kind what,
                                   std::uint32_t to_stage) const {
  out.push_back({what, pipeline_, to_stage, tied_, tied_bytes_});
}

}  // namespace troupe::actors
