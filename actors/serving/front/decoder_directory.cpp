#include "actors/serving/front/decoder_directory.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "gpu/inference/inference_device.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

/// The order of choice; the smallest is taken.
auto rank(const decoder_name& name, const known_decoder& d, const decoder_need& need) {
  return std::tuple{d.datacenter != need.datacenter, ~d.free_pages(), d.sequences(), name.lease,
                    name.node};
}

/// With an adapter of this name; empty: without one.
bool serves(const decoder_state& s, const std::string& adapter) {
  return adapter.empty() || (s.adapters && std::ranges::count(*s.adapters, adapter) > 0);
}

bool is_much_busier(const known_decoder& d, const known_decoder& than) {
  return d.sequences() > 2 * than.sequences() + 4;
}

std::uint32_t known_pages(const decoder_name& name, const decoder_need& need) {
  const auto* pages = find_in(need.known, name);
  return pages ? *pages : 0;
}

}  // namespace

// The three reasons to find none are ordered by how lasting they are: the model has no decoder; it
// has, but every context is too short; all decoders have as many sequences as they may. The caller
// ends or keeps the request by this reason.
expected<decoder_name> choose_decoder(const decoder_table& all, const decoder_need& need) {
  using enum reason::kind;
  std::uint32_t longest = 0;
  bool present = false, fits = false;
  std::vector<const decoder_table::value_type*> able;
  for (const auto& entry : all) {
    const auto& [name, d] = entry;
    if (d.state.model != need.model || d.state.ending || need.without.contains(name)) continue;
    if (!serves(d.state, need.adapter)) continue;
    present = true;
    longest = std::max(longest, d.state.context);
    if (d.state.context < need.positions) continue;
    fits = true;
    if (d.sequences() >= d.state.max_sequences) continue;
    able.push_back(&entry);
  }
  if (!able.empty()) {
    std::ranges::sort(able, {}, [&](const auto* e) { return rank(e->first, e->second, need); });
    // The first of those with the longest prefix is the best of them by load.
    const auto* best = able.front();
    for (const auto* e : able)
      if (e->second.datacenter == able.front()->second.datacenter &&
          known_pages(e->first, need) > known_pages(best->first, need) &&
          !is_much_busier(e->second, able.front()->second))
        best = e;
    return best->first;
  }
  if (!present)
    return refuse(unavailable, fmt::format("no decoder for '{}' is available",
                                           need.adapter.empty() ? need.model : need.adapter));
  if (!fits)
    return refuse(invalid, fmt::format("prompt and completion have {} positions, and the decoders "
                                       "of '{}' hold {}",
                                       need.positions, need.model, longest));
  return refuse(insufficient,
                fmt::format("all decoders of '{}' are at their request limit", need.model));
}

// The new leases are compared with what decoders have described at once: one that the controller no
// longer names must not get requests until it falls silent.
bool decoder_directory::state(const serving_leases& s) {
  if (!s.is_newer_than(statement_)) return false;
  statement_ = s;
  leases_.clear();
  for (const auto& d : s.decoders)
    if (d.node < cluster_->nodes.size() && d.model < s.models.size())
      leases_[{node_address(d.node), d.lease}] = d;
  std::erase_if(all_, [this](const auto& entry) {
    return !check(entry.first.node, entry.second.state).has_value();
  });
  std::erase_if(counted_, [this](const auto& entry) { return !leases_.contains(entry.first); });
  std::erase_if(counts_, [this](const auto& entry) {
    return std::ranges::count(statement_.models, entry.first, &served_model_files::name) == 0;
  });
  return true;
}

expected<bool> decoder_directory::receive(address from, const decoder_state& s, double now_s) {
  if (auto ok = check(from, s); !ok) return refuse(ok.error());
  const auto* known = find_in(all_, decoder_name{from, s.lease});
  if (known && s.sequence <= known->state.sequence) return false;
  all_[{from, s.lease}] = {s, cluster_->nodes[node_of(from)].datacenter, now_s};
  count({from, s.lease}, s);
  return true;
}

// A decoder's counts only grow. They are remembered while the controller states its lease, however
// often it falls silent.
void decoder_directory::count(const decoder_name& d, const decoder_state& s) {
  auto& known = counted_[d];
  auto& sum = counts_[s.model];
  const auto add = [](std::uint64_t& to, std::uint64_t& before, std::uint64_t now) {
    if (now <= before) return;
    to += now - before;
    before = now;
  };
  add(sum.set_back, known.set_back, s.set_back.value_or(0));
  add(sum.computed_prompt, known.computed_prompt, s.computed_prompt.value_or(0));
  add(sum.cached_prompt, known.cached_prompt, s.cached_prompt.value_or(0));
}

decoder_counts decoder_directory::counts_of(const std::string& model) const {
  const auto* known = find_in(counts_, model);
  return known ? *known : decoder_counts{};
}

// Prompts are sent to whatever is in this directory, so a node's own word is not enough: its lease,
// its start, the model and the model's files must be those that the controller states.
expected<void> decoder_directory::check(address from, const decoder_state& s) const {
  const auto failure = [&](const std::string& why) {
    return refuse(reason::kind::refused, "{} says that lease {} decodes '{:.64}', {}",
                  host_name(*cluster_, from), s.lease, s.model, why);
  };
  const auto* d = find_in(leases_, decoder_name{from, s.lease});
  if (!d) return failure("which is no decoder's lease there by the controller");
  if (s.incarnation != d->incarnation)
    return failure(fmt::format("in its start {}, and the lease is of its start {}", s.incarnation,
                               d->incarnation));
  const auto& m = statement_.models[d->model];
  if (s.model != m.name || s.folder != m.folder)
    return failure(fmt::format("and by the controller it decodes '{}' of {}", m.name, m.folder));
  if (s.files != m.hash && m.hash != 0) return failure("from other files than those of the job");
  if (s.free_pages > s.pages || s.context == 0) return failure("with impossible numbers");
  constexpr std::size_t max_adapters = 1000, max_name = 64;
  if (s.adapters && (s.adapters->size() > max_adapters ||
                     std::ranges::any_of(*s.adapters, [](const std::string& name) {
                       return name.empty() || name.size() > max_name;
                     })))
    return failure("with impossible adapters");
  return {};
}

void decoder_directory::refresh(const decoder_name& d, double now_s) {
  if (auto* known = find_in(all_, d)) known->last_seen_s = now_s;
}

void decoder_directory::forget_silent(double now_s) {
  std::erase_if(all_, [&](const auto& entry) {
    return now_s - entry.second.last_seen_s >= cluster_->settings.lease_s;
  });
}

// A decoder's state is up to a quarter of a heartbeat old. Without the requests given since then, a
// burst would go to one decoder.
void decoder_directory::give(const decoder_name& d, std::uint32_t prompt_tokens) {
  auto* known = find_in(all_, d);
  if (!known) return;
  ++known->given_sequences;
  known->given_pages += gpu::pages_for(prompt_tokens);
}

}  // namespace troupe::actors
