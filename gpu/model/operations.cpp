#include "gpu/model/operations.hpp"

#include <cstring>

#include "gpu/model/parameters.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

std::uint64_t activation_bytes(const stage_spec& s) {
  return tokens_of(s) * s.model.hidden * sizeof(float);
}

// Tokens are indices into the embedding, on a GPU without any check, so each is checked here.
expected<void> check_tokens(const stage_spec& s, const payload& p) {
  const auto count = tokens_of(s);
  const auto bytes = p.bytes();
  if (bytes.size() != count * sizeof(std::uint32_t))
    return refuse(reason::kind::invalid, "a micro-batch has {} tokens of 4 bytes; got {} bytes",
                  count, bytes.size());
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, bytes.data() + i * sizeof token, sizeof token);
    if (token >= s.model.vocabulary)
      return refuse(reason::kind::invalid, "token {} is not in a vocabulary of {}", token,
                    s.model.vocabulary);
  }
  return {};
}

}  // namespace

// A schedule's error is found here, before a device would use memory of another micro-batch.
expected<void> microbatch_progress::check(const operations::forward& o) const {
  if (!kept_.contains(o.microbatch)) return {};
  return refuse(reason::kind::invalid, "micro-batch {} has already run forward", o.microbatch);
}

expected<void> microbatch_progress::check(const operations::recompute& o) const {
  if (kept_.contains(o.microbatch)) return {};
  return refuse(reason::kind::invalid, "micro-batch {} has not run forward yet", o.microbatch);
}

expected<void> microbatch_progress::check(const operations::backward& o) const {
  const auto found = kept_.find(o.microbatch);
  if (found != kept_.end() && found->second) return {};
  return refuse(
      reason::kind::invalid,
      "micro-batch {}: activations not available; run forward with keep or recompute first",
      o.microbatch);
}

expected<void> check_payloads(const stage_spec& s, const operations::forward& o, bool) {
  const int wanted = s.has_head ? 2 : 1, given = !o.input.empty() + !o.targets.empty();
  if (given != wanted)
    return refuse(reason::kind::invalid, "forward on this stage takes {} payloads, got {}", wanted,
                  given);
  if (s.has_embedding) {
    if (auto ok = check_tokens(s, o.input); !ok) return ok;
  } else if (o.input.bytes().size() != activation_bytes(s)) {
    return refuse(reason::kind::invalid, "an activation has {} bytes; got {}", activation_bytes(s),
                  o.input.bytes().size());
  }
  return s.has_head ? check_tokens(s, o.targets) : expected<void>{};
}

expected<void> check_payloads(const stage_spec& s, const operations::backward& o, bool) {
  if (s.has_head || o.gradient.bytes().size() == activation_bytes(s)) return {};
  return refuse(reason::kind::invalid, "backward takes one payload, a gradient of {} bytes",
                activation_bytes(s));
}

// A tied embedding that is split over two stages has half of its gradient on each: an update with
// only one half would let the two copies diverge.
expected<void> check_payloads(const stage_spec& s, const operations::update& o, bool summed) {
  const auto size = size_of(s);
  if (o.sums.empty()) {
    // After the all-reduce the first stage has the whole sum.
    if (size.tied_parameters > 0 && !(s.has_embedding && (s.has_head || summed)))
      return refuse(
          reason::kind::invalid,
          "a tied embedding split over two stages must be updated with the summed gradient");
    return {};
  }
  const auto fits = [&](const payload& p, std::uint64_t parameters) {
    return p.bytes().size() == parameters * sizeof(float) || (summed && p.bytes().empty());
  };
  if (!fits(o.sums.own, size.own_parameters) || !fits(o.sums.tied, size.tied_parameters))
    return refuse(reason::kind::invalid,
                  "update takes no payload, or gradients of {} own and {} tied parameters",
                  size.own_parameters, size.tied_parameters);
  return {};
}

// Only the first stage sums the tied matrix, so only it takes another stage's part.
expected<void> check_payloads(const stage_spec& s, const operations::sum& o, bool) {
  const auto tied = size_of(s).tied_parameters;
  if (!o.tied || (s.has_embedding && o.tied->bytes().size() == tied * sizeof(float))) return {};
  return refuse(
      reason::kind::invalid,
      "sum takes no payload, or on the first stage another stage's gradients of {} tied parameters",
      tied);
}

}  // namespace troupe::gpu
