#include "actors/control/leases/roster.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "actors/control/leases/owner_usage.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

// Those of cluster files.
constexpr std::size_t max_hosts = 1'000'000;
constexpr std::uint32_t max_gpus_a_node = 65'535;

template <class T>
std::size_t index_of(const std::vector<T>& all, const std::string& name) {
  return static_cast<std::size_t>(
      std::ranges::find_if(all, [&](const T& x) { return x.name == name; }) - all.begin());
}

expected<void> bad(std::string text) {
  return refuse(reason::kind::invalid, "the cluster is not valid: " + std::move(text));
}

bool is_positive(double x) {
  return std::isfinite(x) && x > 0;
}

bool is_grace(double x) {
  return x >= 0 && x <= admission::max_grace_s;
}

std::string limit_text(const std::optional<double>& limit_s) {
  return limit_s ? fmt::format("{:g}", *limit_s) : "none";
}

std::string hardware(const cluster& c, const node& n) {
  return fmt::format("{} {} in {}", n.gpus, c.gpus[n.gpu].name, c.datacenters[n.datacenter].name);
}

/// Merges by name. Order matters: types and datacenters first, since nodes, fronts, links and
/// prices refer to them, and the indices of the file are translated to the journal's on the way.
class merger {
 public:
  merger(const cluster& present, const cluster& file, const std::function<bool(node_index)>& busy)
      : present_{present}, file_{file}, busy_{busy}, out_{present} {}

  expected<merged_cluster> merge(std::uint64_t version) {
    if (present_.name != file_.name)
      return refuse(reason::kind::invalid, "the file is of cluster '{}', and this is cluster '{}'",
                    file_.name, present_.name);
    merge_types();
    merge_datacenters();
    if (auto ok = merge_nodes(); !ok) return refuse(ok.error());
    merge_fronts();
    for (const auto& f : out_.fronts)
      if (!f.removed && index_of(out_.nodes, f.name) < out_.nodes.size())
        return refuse(reason::kind::invalid,
                      "front '{}' has the name of a node that was removed: the journal "
                      "keeps that name for the node; choose another",
                      f.name);
    merge_links();
    out_.controller = file_.controller;
    out_.settings = file_.settings;
    compare_settings();
    // A difference without a host to name.
    if (!(out_ == present_)) {
      if (what_.added.empty() && what_.removed.empty() && what_.changed.empty())
        what_.changed.emplace_back("figures of GPUs, links or addresses");
      out_.version = std::max(version, present_.version + 1);
    }
    return merged_cluster{std::move(out_), std::move(what_)};
  }

 private:
  // Types are never removed: plans and leases of the journal may name them.
  void merge_types() {
    for (const auto& type : file_.gpus) {
      const auto at = index_of(out_.gpus, type.name);
      types_.push_back(static_cast<gpu_index>(at));
      if (at == out_.gpus.size())
        out_.gpus.push_back(type);
      else
        out_.gpus[at] = type;
    }
  }

  void merge_datacenters() {
    // A removed datacenter keeps its place and its gateway's address.
    for (auto& d : out_.datacenters)
      if (index_of(file_.datacenters, d.name) == file_.datacenters.size() && !d.removed) {
        d.removed = true;
        what_.removed.push_back(d.name + "/gateway");
      }
    for (const auto& d : file_.datacenters) {
      const auto at = index_of(out_.datacenters, d.name);
      sites_.push_back(static_cast<std::uint32_t>(at));
      const bool known = at < out_.datacenters.size();
      if (!known) out_.datacenters.push_back(d);
      if (!known || out_.datacenters[at].removed) what_.added.push_back(d.name + "/gateway");
      out_.datacenters[at] = d;
    }
  }

  expected<void> merge_nodes() {
    std::map<std::string, node_index> known;
    std::set<std::string> wanted;
    for (node_index n = 0; n < out_.nodes.size(); ++n) known[out_.nodes[n].name] = n;
    for (auto node : file_.nodes) {
      wanted.insert(node.name);
      node.gpu = types_[node.gpu];
      node.datacenter = sites_[node.datacenter];
      const auto at = known.find(node.name);
      if (at == known.end()) {
        what_.added.push_back(node.name);
        out_.nodes.push_back(std::move(node));
      } else if (auto ok = replace(at->second, node); !ok) {
        return ok;
      }
    }
    // Its work is stopped, and its GPUs are free when that has ended; it gets no new work at once.
    for (auto& node : out_.nodes)
      if (!node.removed && !wanted.contains(node.name)) {
        node.removed = true;
        node.gpus = 0;
        what_.removed.push_back(node.name);
      }
    return {};
  }

  // Under a lease a node's GPUs and datacenter stay: plans, device numbers and routes of that lease
  // depend on them. Links and addresses may change.
  expected<void> replace(node_index n, const node& by) {
    auto& old = out_.nodes[n];
    const bool same = old.gpu == by.gpu && old.gpus == by.gpus && old.datacenter == by.datacenter;
    if (old.removed && busy_(n))
      return refuse(reason::kind::unavailable,
                    "node {} was removed, and its work has not ended yet: add it again once it has",
                    old.name);
    if (!same && !old.removed && busy_(n))
      return refuse(reason::kind::unavailable,
                    "node {} has {} and cannot become {} while it has work: drain it first",
                    old.name, hardware(out_, old), hardware(out_, by));
    if (old.removed)
      what_.added.push_back(old.name);
    else if (!same)
      what_.changed.push_back(fmt::format("node {}: {} instead of {}", old.name, hardware(out_, by),
                                          hardware(out_, old)));
    else if (!(old == by))
      what_.changed.push_back(fmt::format("node {}: its links or address", old.name));
    old = by;
    return {};
  }

  void merge_fronts() {
    for (auto& f : out_.fronts)
      if (!f.removed && index_of(file_.fronts, f.name) == file_.fronts.size()) {
        f.removed = true;
        what_.removed.push_back(f.name);
      }
    for (auto f : file_.fronts) {
      f.datacenter = sites_[f.datacenter];
      const auto at = index_of(out_.fronts, f.name);
      if (at == out_.fronts.size()) {
        what_.added.push_back(f.name);
        out_.fronts.push_back(std::move(f));
        continue;
      }
      if (out_.fronts[at].removed)
        what_.added.push_back(f.name);
      else if (!(out_.fronts[at] == f))
        what_.changed.push_back(fmt::format("front {}", f.name));
      out_.fronts[at] = std::move(f);
    }
  }

  void merge_links() {
    out_.wan = file_.wan;
    for (auto& w : out_.wan) w.a = sites_[w.a], w.b = sites_[w.b];
    out_.prices = file_.prices;
    for (auto& p : out_.prices) {
      p.gpu = types_[p.gpu];
      if (p.datacenter) p.datacenter = sites_[*p.datacenter];
    }
    if (!(out_.wan == present_.wan)) what_.changed.emplace_back("links between datacenters");
    if (!(out_.prices == present_.prices)) what_.changed.emplace_back("prices");
  }

  void compare_settings() {
    const auto compare = [this](const char* key, double before, double now) {
      if (before != now)
        what_.changed.push_back(fmt::format("{}: {:g} instead of {:g}", key, now, before));
    };
    const auto &a = present_.settings, &b = out_.settings;
    compare("heartbeat_s", a.heartbeat_s, b.heartbeat_s);
    compare("lease_s", a.lease_s, b.lease_s);
    compare("memory_headroom", a.memory_headroom, b.memory_headroom);
    compare("restart_s", a.restart_s, b.restart_s);
    compare("checkpoint_s", a.checkpoint_s, b.checkpoint_s);
    compare("preempt_grace_s", a.preempt_grace_s, b.preempt_grace_s);
    compare("grace_s", a.grace_s, b.grace_s);
    compare("owner_mib", a.owner_mib.value_or(default_owner_mib),
            b.owner_mib.value_or(default_owner_mib));
    if (a.time_limit_s != b.time_limit_s)
      what_.changed.push_back(fmt::format("time_limit_s: {} instead of {}",
                                          limit_text(b.time_limit_s), limit_text(a.time_limit_s)));
  }

  const cluster& present_;
  const cluster& file_;
  const std::function<bool(node_index)>& busy_;
  cluster out_;
  cluster_difference what_;
  std::vector<gpu_index> types_;      // by the file's index
  std::vector<std::uint32_t> sites_;  // likewise
};

}  // namespace

/// The reader of cluster files has checked this; here it comes over the network, and everything
/// behind it indexes by these numbers.
expected<void> check_cluster(const cluster& c) {
  if (c.nodes.empty() || c.datacenters.empty() || c.gpus.empty())
    return bad("it has no node, datacenter or GPU type");
  if (c.nodes.size() > max_hosts || c.datacenters.size() > max_hosts || c.fronts.size() > max_hosts)
    return bad("it has too many hosts");
  std::set<std::string> names{"controller"};
  const auto is_new = [&](const std::string& name) {
    return !name.empty() && names.insert(name).second;
  };
  for (const auto& d : c.datacenters)
    if (!is_new(d.name) || d.removed) return bad(fmt::format("datacenter '{}'", d.name));
  for (const auto& n : c.nodes)
    if (!is_new(n.name) || n.removed || n.datacenter >= c.datacenters.size() ||
        n.gpu >= c.gpus.size() || n.gpus == 0 || n.gpus > max_gpus_a_node ||
        !is_positive(n.intra.gbps) || !is_positive(n.inter.gbps) ||
        !(n.emulate_speed > 0 && n.emulate_speed <= 1) || !has_valid_rates(n.intra) ||
        !has_valid_rates(n.inter))
      return bad(fmt::format("node '{}'", n.name));
  for (const auto& f : c.fronts)
    if (!is_new(f.name) || f.removed || f.datacenter >= c.datacenters.size())
      return bad(fmt::format("front '{}'", f.name));
  std::set<std::string> types;
  for (const auto& g : c.gpus)
    if (!types.insert(g.name).second || !is_positive(g.memory_gb) || !is_positive(g.fp16_tflops))
      return bad(fmt::format("GPU type '{}'", g.name));
  for (const auto& w : c.wan)
    if (w.a >= c.datacenters.size() || w.b >= c.datacenters.size() || w.a == w.b ||
        !is_positive(w.node_gbps) || !std::isfinite(w.rtt_ms) || w.rtt_ms < 0 ||
        !are_absent_or_rates(w.rates) || !are_absent_or_rates(w.flow_rates) || !has_valid_prices(w))
      return bad("a link between datacenters");
  for (const auto& p : c.prices)
    if (p.gpu >= c.gpus.size() || (p.datacenter && *p.datacenter >= c.datacenters.size()))
      return bad("a price");
  const auto& s = c.settings;
  if (!is_positive(s.heartbeat_s) || !is_positive(s.lease_s) || s.lease_s < 2 * s.heartbeat_s ||
      !(s.memory_headroom >= 0) || !(s.restart_s >= 0) || !is_positive(s.checkpoint_s) ||
      !is_grace(s.preempt_grace_s) || !is_grace(s.grace_s) ||
      (s.time_limit_s && !is_positive(*s.time_limit_s)) ||
      (s.owner_mib && !is_positive(*s.owner_mib)))
    return bad("its settings");
  return {};
}

expected<merged_cluster> merge(const cluster& present, const cluster& file, std::uint64_t version,
                               const std::function<bool(node_index)>& busy) {
  return merger{present, file, busy}.merge(version);
}

}  // namespace troupe::actors
