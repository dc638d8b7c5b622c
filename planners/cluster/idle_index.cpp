#include "planners/cluster/idle_index.hpp"

#include <algorithm>
#include <numeric>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::planners {

// Everything that depends on the cluster alone. Names compare as text: n10 comes before n2. Stable
// sorts keep the file's order among equals, so that the same file gives
// the same decisions everywhere.
std::shared_ptr<const idle_index::layout> idle_index::lay_out(const cluster& c) {
  auto l = std::make_shared<layout>();
  for (const auto& g : c.gpus) l->memory_bytes.push_back(g.memory_bytes());
  l->types_by_memory = indices<gpu_index>(c.gpus.size());
  std::ranges::stable_sort(l->types_by_memory, {}, [&](gpu_index g) { return l->memory_bytes[g]; });

  auto by_name = indices<node_index>(c.nodes.size());
  std::ranges::stable_sort(
      by_name, {}, [&](node_index n) -> const auto& { return c.nodes[n].name; });
  l->name_rank.resize(c.nodes.size());
  l->shelf_rank.resize(c.nodes.size());
  l->shelves.resize(c.gpus.size());
  for (std::uint32_t rank = 0; rank < by_name.size(); ++rank) {
    const auto n = by_name[rank];
    auto& shelf = l->shelves[c.nodes[n].gpu];
    l->name_rank[n] = rank;
    l->shelf_rank[n] = static_cast<std::uint32_t>(shelf.size());
    shelf.push_back(n);
  }
  l->gpus = mapped(c.nodes, &node::gpus);
  l->type = mapped(c.nodes, &node::gpu);
  return l;
}

// A type's tree has a place for each idle count up to its largest node's, for each of its nodes.
idle_index::idle_index(const cluster& c)
    : fixed_(lay_out(c)), idle_(c.nodes.size()), idle_of_type_(c.gpus.size()) {
  std::vector<std::size_t> max(c.gpus.size());
  for (const auto& n : c.nodes) max[n.gpu] = std::max<std::size_t>(max[n.gpu], n.gpus);
  for (std::size_t g = 0; g < c.gpus.size(); ++g)
    trees_.emplace_back((max[g] + 1) * fixed_->shelves[g].size());
  for (node_index n = 0; n < c.nodes.size(); ++n) set_idle(n, c.nodes[n].gpus);
}

idle_index::position idle_index::place(node_index n, std::uint32_t idle) const {
  return std::size_t{idle} * fixed_->shelves[fixed_->type[n]].size() + fixed_->shelf_rank[n];
}

// Erases the node at its old place and inserts it at the new one; sums by type follow.
void idle_index::set_idle(node_index n, std::uint32_t idle) {
  TROUPE_INVARIANT(n < idle_.size(), "the index has a place for each node");
  idle = std::min(idle, fixed_->gpus[n]);
  const auto old = idle_[n];
  if (idle == old) return;
  const auto g = fixed_->type[n];
  // Nodes without idle GPUs are no members: searches never come across them.
  TROUPE_INVARIANT(old <= fixed_->gpus[n], "a node has no more idle GPUs than it has");
  if (old > 0) trees_[g].erase(place(n, old));
  if (idle > 0) trees_[g].insert(place(n, idle));
  idle_[n] = idle;
  idle_of_type_[g] += idle - old;  // unsigned wrap-around cancels out
  total_ += idle - old;
  TROUPE_INVARIANT(idle_of_type_[g] <= total_, "the idle GPUs of a type are among all idle ones");
  if (!checks_slow_invariants()) return;
  const auto sum = std::accumulate(idle_of_type_.begin(), idle_of_type_.end(), std::uint32_t{0});
  TROUPE_INVARIANT(total_ == sum, "the idle GPUs are those of all types");
  TROUPE_INVARIANT(idle == 0 || node_at(g, place(n, idle)) == n,
                   "a node with idle GPUs is found where its number of them says");
}

std::span<const gpu_index> idle_index::types_above(double bytes) const {
  const auto& types = fixed_->types_by_memory;
  std::size_t first = types.size();
  while (first > 0 && fixed_->memory_bytes[types[first - 1]] > bytes) --first;
  return std::span(types).subspan(first);
}

std::uint32_t idle_index::idle_above(double bytes) const {
  return sum_of(types_above(bytes), [&](gpu_index g) { return idle_of_type_[g]; });
}

idle_index::position idle_index::first_with(gpu_index g, std::uint32_t min) const {
  return trees_[g].at_or_after(std::size_t{min} * fixed_->shelves[g].size());
}

}  // namespace troupe::planners
