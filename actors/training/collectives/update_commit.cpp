#include "actors/training/collectives/update_commit.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

update_commit::outgoing update_commit::begin(std::vector<double> norms,
                                             std::optional<pipeline_record> own) {
  TROUPE_INVARIANT(!norms_ && !said_, "a stage is ready to update once in an iteration");
  norms_ = std::move(norms);
  if (own) add(*own);
  return advance();
}

// Duplicates come from requests for tensors that were only slow.
update_commit::outgoing update_commit::receive(const tensor& t, const payload& body) {
  double sum = 0;
  const auto size = body.bytes().size();
  if (size != sizeof sum && size != sizeof sum + 1) {
    error_ =
        fmt::format("a stage agrees to an update with {} bytes, expected {}", size, sizeof sum);
    return {};
  }
  if (size > sizeof sum) skips_ |= static_cast<std::uint8_t>(body.bytes()[sizeof sum]);
  std::memcpy(&sum, body.bytes().data(), sizeof sum);
  if (t.records)
    for (const auto& r : *t.records) add(r);
  if (t.what == tensor::kind::commit) {
    if (total_) return {};
    if (!said_) {
      error_ = "a stage is told to update before it is ready to";
      return {};
    }
    total_ = sum;
    return pass_on();
  }
  if (t.from.pipeline < ready_peers_.size() && t.from.pipeline != pipeline_)
    ready_peers_[t.from.pipeline] = true;
  else if (!behind_)
    behind_ = sum;
  return advance();
}

void update_commit::agree(const agreed_update& u) {
  TROUPE_INVARIANT(norms_, "a stage that is ready to update agrees");
  said_ = true;
  total_ = u.squared_norm;
  for (const auto& r : u.records) add(r);
}

void update_commit::add(const pipeline_record& r) {
  const auto at = std::ranges::lower_bound(records_, r.pipeline, {}, &pipeline_record::pipeline);
  if (at == records_.end() || at->pipeline != r.pipeline) records_.insert(at, r);
}

bool update_commit::peers_are_ready() const {
  return std::all_of(ready_peers_.begin() + 1, ready_peers_.end(), [](bool b) { return b; });
}

update_commit::outgoing update_commit::advance() {
  if (!norms_ || said_) return {};
  if (is_lead() && (!peers_are_ready() || (!is_last() && !behind_))) return {};
  said_ = true;
  double sum = behind_.value_or(0);
  for (const auto n : std::views::reverse(*norms_)) sum += n;
  if (!is_lead()) return {to(0, stage_, tensor::kind::ready, sum)};
  if (stage_ > 0) return {to(0, stage_ - 1, tensor::kind::ready, sum)};
  total_ = sum;
  return pass_on();
}

/// The next lead comes first: its word has a longer way to go.
update_commit::outgoing update_commit::pass_on() const {
  outgoing out;
  if (!is_lead()) return out;
  if (!is_last()) out.push_back(to(0, stage_ + 1, tensor::kind::commit, *total_));
  for (std::uint32_t p = 1; p < ready_peers_.size(); ++p)
    out.push_back(to(p, stage_, tensor::kind::commit, *total_));
  return out;
}

std::vector<gradient_all_reduce::missing_tensor> update_commit::missing() const {
  if (!norms_ || total_) return {};
  if (said_) return {{tensor::kind::commit, 0, is_lead() ? stage_ - 1 : stage_}};
  std::vector<gradient_all_reduce::missing_tensor> all;
  if (!is_last() && !behind_) all.push_back({tensor::kind::ready, 0, stage_ + 1});
  for (std::uint32_t p = 1; p < ready_peers_.size(); ++p)
    if (!ready_peers_[p]) all.push_back({tensor::kind::ready, p, stage_});
  return all;
}

gradient_all_reduce::outgoing update_commit::to(std::uint32_t pipeline, std::uint32_t stage,
                                                tensor::kind what, double sum) const {
  std::vector<std::byte> body(sizeof sum);
  std::memcpy(body.data(), &sum, sizeof sum);
  if (skips_ != 0) body.push_back(std::byte{skips_});
  const auto size = body.size();
  return {what, pipeline, stage, payload{std::move(body)}, size, 0, records_};
}

}  // namespace troupe::actors
