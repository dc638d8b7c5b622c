#include "actors/serving/known_decoders.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "gpu/inference/inference_device.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t longest_name_bytes = 256, longest_path_bytes = 4096;

/// Smaller is better.
auto rank(const decoder_name& name, const known_decoder& d, const decoder_need& need) {
  return std::tuple{d.datacenter != need.datacenter, ~d.free_pages(), d.sequences(), name.lease,
                    name.node};
}

}  // namespace

expected<decoder_name> choose_decoder(const decoder_table& all, const decoder_need& need) {
  using enum reason::kind;
  std::uint32_t longest = 0;
  bool present = false, fits = false;
  const decoder_table::value_type* best = nullptr;
  for (const auto& entry : all) {
    const auto& [name, d] = entry;
    if (d.says.model != need.model || d.says.ending || need.without.contains(name)) continue;
    present = true;
    longest = std::max(longest, d.says.context);
    if (d.says.context < need.positions) continue;
    fits = true;
    if (d.sequences() >= d.says.most_sequences) continue;
    if (!best || rank(name, d, need) < rank(best->first, best->second, need)) best = &entry;
  }
  if (best) return best->first;
  if (!present)
    return refuse(unavailable, fmt::format("no decoder serves '{}' at present", need.model));
  if (!fits)
    return refuse(invalid, fmt::format("prompt and completion have {} positions, and the decoders "
                                       "of '{}' hold {}",
                                       need.positions, need.model, longest));
  return refuse(insufficient,
                fmt::format("all decoders of '{}' are at their request limit", need.model));
}

bool known_decoders::hear(address from, const decoder_state& s, double now_s) {
  if (!is_believable(from, s)) return false;
  auto& incarnation = incarnations_[from];
  if (s.incarnation < incarnation) return false;
  if (s.incarnation > incarnation) forget_node(from);
  incarnation = s.incarnation;
  const auto at = all_.find({from, s.lease});
  if (at != all_.end() && s.sequence <= at->second.says.sequence) return false;
  // Leases only increase: a node without room for one more has ended its oldest.
  const auto room = cluster_->nodes[node_of(*cluster_, from)].gpus;
  if (at == all_.end() && decoders_of(from) >= room) {
    const auto oldest = all_.lower_bound({from, 0});
    if (oldest->first.lease > s.lease) return false;
    all_.erase(oldest);
  }
  all_[{from, s.lease}] = {s, cluster_->nodes[node_of(*cluster_, from)].datacenter, now_s};
  return true;
}

bool known_decoders::is_believable(address from, const decoder_state& s) const {
  return is_node(*cluster_, from) && s.lease != 0 && !s.model.empty() &&
         s.model.size() <= longest_name_bytes && s.folder.size() <= longest_path_bytes &&
         s.free_pages <= s.pages && s.context > 0;
}

std::size_t known_decoders::decoders_of(address node) const {
  return static_cast<std::size_t>(
      std::distance(all_.lower_bound({node, 0}), all_.lower_bound({node + 1, 0})));
}

void known_decoders::forget_node(address node) {
  all_.erase(all_.lower_bound({node, 0}), all_.lower_bound({node + 1, 0}));
}

void known_decoders::hear_of(const decoder_name& d, double now_s) {
  if (const auto at = all_.find(d); at != all_.end()) at->second.heard_s = now_s;
}

void known_decoders::forget_silent(double now_s) {
  std::erase_if(all_, [&](const auto& entry) {
    return now_s - entry.second.heard_s >= cluster_->settings.lease_s;
  });
}

void known_decoders::give(const decoder_name& d, std::uint32_t positions) {
  const auto at = all_.find(d);
  if (at == all_.end()) return;
  ++at->second.given_sequences;
  at->second.given_pages += gpu::pages_for(positions);
}

}  // namespace troupe::actors
