#include "planners/cluster/datacenter_groups.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/folds.hpp"

namespace troupe::planners {

namespace {

// Groups are the maximal cliques of the links (Bron and Kerbosch). There may be exponentially many;
// a cluster file with more than these is not one of a real network, and every datacenter is still
// in one of the groups.
class clique_search {
 public:
  explicit clique_search(const link_graph& g) : g_{g} {}

  std::vector<std::vector<std::uint32_t>> all() {
    search({}, g_.used, {});
    for (const auto d : g_.used)
      if (std::ranges::none_of(found_, [&](const auto& f) { return std::ranges::count(f, d); }))
        found_.push_back({d});
    std::ranges::sort(found_);
    return std::move(found_);
  }

 private:
  using members = std::vector<std::uint32_t>;
  static constexpr std::size_t max = 64;

  members linked_to(std::uint32_t d, const members& others) const {
    members out;
    for (const auto o : others)
      if (g_.linked[d][o]) out.push_back(o);
    return out;
  }
  void search(const members& chosen, members open, members done) {
    if (found_.size() >= max) return;
    if (open.empty() && done.empty()) {
      found_.push_back(chosen);
      std::ranges::sort(found_.back());
      return;
    }
    if (open.empty()) return;
    // Whatever is linked to the pivot is reached by it.
    const auto pivot = *std::ranges::max_element(
        open, {}, [&](std::uint32_t d) { return linked_to(d, open).size(); });
    for (const auto d : members{open}) {
      if (g_.linked[pivot][d]) continue;
      auto next = chosen;
      next.push_back(d);
      search(next, linked_to(d, open), linked_to(d, done));
      std::erase(open, d);
      done.push_back(d);
    }
  }

  const link_graph& g_;
  std::vector<members> found_;
};

}  // namespace

link_graph::link_graph(const cluster& c)
    : linked(c.datacenters.size(), std::vector<bool>(c.datacenters.size())) {
  std::vector<bool> has_gpus(c.datacenters.size());
  for (const auto& n : c.nodes)
    if (n.gpus > 0) has_gpus[n.datacenter] = true;
  for (std::uint32_t d = 0; d < has_gpus.size(); ++d)
    if (has_gpus[d]) used.push_back(d);
  for (const auto& w : c.wan) linked[w.a][w.b] = linked[w.b][w.a] = true;
}

bool link_graph::all_linked() const {
  for (const auto a : used)
    for (const auto b : used)
      if (a < b && !linked[a][b]) return false;
  return true;
}

datacenter_group group_of(const cluster& c, const std::vector<std::uint32_t>& members) {
  datacenter_group group(c.datacenters.size());
  for (const auto d : members) group[d] = true;
  return group;
}

std::vector<datacenter_group> each_alone(const cluster& c, const link_graph& g) {
  return mapped(g.used, [&](std::uint32_t d) { return group_of(c, {d}); });
}

std::string names_of(const cluster& c, const std::vector<std::uint32_t>& datacenters) {
  std::string out;
  for (std::size_t i = 0; i < datacenters.size(); ++i)
    out += (i == 0                        ? ""
            : i + 1 == datacenters.size() ? " and "
                                          : ", ") +
           c.datacenters[datacenters[i]].name;
  return out;
}

std::vector<datacenter_group> linked_groups(const cluster& c) {
  const link_graph g{c};
  if (g.all_linked()) return {group_of(c, g.used)};
  return mapped(clique_search{g}.all(), [&](const auto& m) { return group_of(c, m); });
}

idle_index idle_in(const cluster& c, const idle_index& idle, const datacenter_group& group) {
  auto out = idle;
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (!group[c.nodes[n].datacenter] && out.idle(n) > 0) out.set_idle(n, 0);
  return out;
}

std::uint64_t gpus_in(const cluster& c, gpu_index g, const datacenter_group& group) {
  std::uint64_t sum = 0;
  for (const auto& n : c.nodes)
    if (n.gpu == g && group[n.datacenter]) sum += n.gpus;
  return sum;
}

std::string unlinked_text(const cluster& c) {
  const link_graph g{c};
  std::vector<std::uint32_t> lonely;
  for (const auto a : g.used)
    if (std::ranges::any_of(g.used, [&](auto b) { return a != b && !g.linked[a][b]; }))
      lonely.push_back(a);
  if (lonely.empty()) return {};
  if (lonely.size() == 2) return names_of(c, lonely) + ", which have no link (wan)";
  return names_of(c, lonely) + ", not all of which have a link (wan)";
}

}  // namespace troupe::planners
