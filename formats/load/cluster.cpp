#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "formats/load/link_reader.hpp"
#include "formats/load/load.hpp"
#include "formats/load/part_readers.hpp"
#include "formats/parse/reader.hpp"
#include "messages/admission/admission.hpp"
#include "messages/admission/gpu_guess.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::formats {

// A cluster file (docs/files.md) lists places, machines and links. Names are resolved to indices
// here, and groups (`count`) become single nodes, so that the rest of the program knows indices
// only. Types of GPUs that no node has are left out: planners iterate over all types.
namespace {

constexpr std::size_t max_nodes = 262'144;
constexpr std::uint32_t max_gpus_a_node = 1024;
constexpr std::size_t max_fronts = 1024;

bool has_port(std::string_view text, std::size_t colon) {
  const auto n = parse_number(text.substr(colon + 1));
  return n && *n >= 1 && *n <= 65535 && *n == static_cast<int>(*n);
}

/// Numbers by policy and name.
std::vector<policy_setting> read_policy_settings(findings& found, const value& v) {
  std::vector<policy_setting> all;
  const map_reader check{found, v, "policy_options"};
  for (std::size_t i = 0; i < v.items.size() && found.good(); ++i) {
    const auto& names = v.items[i].keys;
    map_reader map{found, v.items[i], inside("policy_options", v.keys[i])};
    for (std::size_t k = 0; k < names.size() && found.good(); ++k) {
      auto& s = all.emplace_back();
      s.policy = v.keys[i];
      s.name = names[k];
      map.read(s.name, s.value, {-1e12, 1e12});
      s.origin =
          complaint(found.file(), v.items[i].key_lines[k], inside(map.place(), s.name), "").text;
    }
  }
  return all;
}

/// State of reading one cluster file.
class cluster_loader {
 public:
  cluster_loader(findings& found, std::span<const gpu_type> catalogue,
                 std::filesystem::path directory)
      : found_(found),
        catalogue_(catalogue),
        gpu_names_(names_of(catalogue)),
        directory_(std::move(directory)) {}

  // Order of dependence: prices, overrides and links refer to types and datacenters that nodes have
  // introduced.
  cluster load(const value& tree) {
    map_reader map{found_, tree, ""};
    map.read_name("name", out_.name, need::required);
    read_endpoint(map, "controller", out_.controller);
    map.each(
        "datacenters", [&](auto& at) { read_datacenter(at); }, 1, need::required);
    map.each("fronts", [&](auto& at) { read_front(at); });
    map.each("wan", [&](auto& at) { read_wan(at); });
    map.section("settings", [&](map_reader& settings) { read_settings(settings); });
    if (const auto* v = map.find("gpus")) read_overrides(*v);
    map.each("prices", [&](auto& at) { read_price(at); });
    if (const auto* v = map.find("policy_options")) read_policy_settings(found_, *v);
    map.finish();
    return std::move(out_);
  }

 private:
  // ZeroMQ would accept more forms (wildcards, interfaces); others must be able to connect to this
  // one. 107 bytes are the longest path of a Unix socket.
  void read_endpoint(map_reader& map, std::string_view key, std::string& out) {
    if (!map.read(key, out)) return;
    const bool tcp = out.starts_with("tcp://") && out.size() < 256;
    const bool ipc = out.starts_with("ipc://") && out.size() > 6 && out.size() < 108;
    const auto colon = out.rfind(':');
    if (!ipc && !(tcp && colon > 6 && has_port(out, colon)))
      map.fail(key, "found '{}', expected an address such as tcp://10.0.0.1:7000", shown(out));
  }

  // One namespace for datacenters, nodes and fronts: a name identifies a host in keys, commands and
  // fault plans.
  void claim(const map_reader& map, const std::string& name, const char* what) {
    if (name.empty() || !found_.good()) return;
    if (name == "controller")
      found_.add(map.line(), inside(map.place(), "name"), "the name 'controller' is reserved");
    const auto [old, fresh] = names_.try_emplace(name, map.place());
    if (!fresh)
      found_.add(map.line(), inside(map.place(), "name"),
                 "duplicate name '{}': this {} is named like {}", name, what, old->second);
  }

  void read_datacenter(map_reader& map) {
    datacenter dc;
    map.read_name("name", dc.name, need::required);
    claim(map, dc.name, "datacenter");
    read_endpoint(map, "gateway", dc.gateway);
    const auto index = static_cast<std::uint32_t>(out_.datacenters.size());
    out_.datacenters.push_back(std::move(dc));
    map.each(
        "nodes", [&](auto& at) { read_nodes(at, index); }, 1, need::required);
    map.finish();
  }

  // A group is read once and copied: its errors have one line.
  void read_nodes(map_reader& map, std::uint32_t dc) {
    node n;
    std::string gpu;
    std::uint32_t count = 1;
    map.read_name("name", n.name, need::required);
    map.read("gpu", gpu, need::required);
    map.read_whole<std::uint32_t>("gpus", n.gpus, 1, max_gpus_a_node, need::required);
    map.read_whole<std::uint32_t>("count", count, 1, max_nodes);
    n.intra = read_link(map, "intra", true);
    n.inter = read_link(map, "inter", false);
    std::uint32_t domain = 0;  // nodes of it
    map.read_whole<std::uint32_t>("nvlink_domain", domain, 1, max_nodes);
    map.read("emulate_speed", n.emulate_speed, range{0, 1, true});
    const auto addresses = read_addresses(map, count);
    map.finish();
    n.datacenter = dc;
    if (found_.good()) n.gpu = gpu_of(map, gpu);
    if (found_.good() && out_.nodes.size() + count > max_nodes)
      map.fail("count", "more than {} nodes in one cluster", max_nodes);
    if (!found_.good()) return;
    const auto group = n.name;
    const auto first_domain = domains_;
    if (domain > 0) domains_ += (count + domain - 1) / domain;
    for (std::uint32_t i = 0; i < count && found_.good(); ++i) {
      if (count > 1) n.name = fmt::format("{}-{}", group, i);
      if (!addresses.empty()) n.address = addresses[i];
      if (domain > 0) n.nvlink_domain = first_domain + i / domain;
      claim(map, n.name, "node");
      out_.nodes.push_back(n);
    }
  }

  /// Addresses of a group's nodes: a string for one node, a list with one entry per node for
  /// several.
  std::vector<std::string> read_addresses(map_reader& map, std::uint32_t count) {
    std::vector<std::string> all;
    const auto* v = map.find("address");
    if (v == nullptr) return all;
    if (v->what == value::kind::list)
      map.read("address", all);
    else if (std::string one; map.read("address", one))
      all.push_back(one);
    if (!found_.good()) return {};
    if (all.size() != count)
      map.fail("address", "found {}, expected one for each of the {} nodes", all.size(), count);
    for (const auto& a : all)
      if (a.empty() || a.size() > 255 || a.find_first_of(" \t/") != std::string::npos)
        map.fail("address", "found '{}', expected a host name or an IP address, without a port",
                 shown(a));
    return found_.good() ? all : std::vector<std::string>{};
  }

  gpu_index gpu_of(map_reader& map, const std::string& name) {
    if (const auto used = used_gpu(name)) return *used;
    const auto type = std::ranges::find(catalogue_, name, &gpu_type::name);
    if (type != catalogue_.end()) {
      out_.gpus.push_back(*type);
      return static_cast<gpu_index>(out_.gpus.size() - 1);
    }
    map.fail("gpu", "unknown GPU '{}'{}", shown(name), hint(name, gpu_names_));
    return 0;
  }

  // A pair of datacenters may have one link, which is symmetric but for prices. A connection cannot
  // be faster than all connections of a node together.
  void read_wan(map_reader& map) {
    wan_link w;
    std::vector<std::string> ends;
    if (!map.read("between", ends)) map.find("between", need::required);
    map.read("rtt_ms", w.rtt_ms, {0, 60'000}, need::required);
    map.read("node_gbps", w.node_gbps, {0, 1e6, true}, need::required);
    map.read("connection_gbps", w.connection_gbps, {0, 1e6}, need::required);
    map.read("jitter_ms", w.jitter_ms, {0, 60'000});
    map.read("emulate", w.emulate);
    read_rates(map, w.rates, w.flow_rates);
    map.read("price_per_gb", w.price_per_gb, {0, max_price_per_gb});
    map.read("price_per_gb_back", w.price_per_gb_back, {0, max_price_per_gb});
    map.finish();
    if (!found_.good()) return;
    if (ends.size() != 2)
      return map.fail("between", "found {} names, expected two datacenters", ends.size());
    w.a = datacenter_of(map, "between", ends[0]);
    w.b = datacenter_of(map, "between", ends[1]);
    if (!found_.good()) return;
    if (w.a == w.b) return map.fail("between", "'{}' twice, expected two datacenters", ends[0]);
    if (w.connection_gbps > w.node_gbps)
      return map.fail("connection_gbps", "found {:g}, expected at most node_gbps ({:g})",
                      w.connection_gbps, w.node_gbps);
    for (const auto& other : out_.wan)
      if (std::minmax(other.a, other.b) == std::minmax(w.a, w.b))
        return map.fail("between", "duplicate link between '{}' and '{}'", ends[0], ends[1]);
    out_.wan.push_back(w);
  }

  std::uint32_t datacenter_of(map_reader& map, std::string_view key, const std::string& name) {
    const auto at = std::ranges::find(out_.datacenters, name, &datacenter::name);
    if (at != out_.datacenters.end())
      return static_cast<std::uint32_t>(at - out_.datacenters.begin());
    map.fail(key, "unknown datacenter '{}'{}", shown(name), hint(name, names_of(out_.datacenters)));
    return 0;
  }

  // A front is placed in a datacenter, whose gateway it uses; it may share a machine with nodes.
  void read_front(map_reader& map) {
    front f;
    std::string datacenter;
    map.read_name("name", f.name, need::required);
    map.read("datacenter", datacenter, need::required);
    read_http(map, f.http);
    map.finish();
    claim(map, f.name, "front");
    if (!found_.good()) return;
    f.datacenter = datacenter_of(map, "datacenter", datacenter);
    if (out_.fronts.size() == max_fronts)
      map.fail("name", "more than {} fronts in one cluster", max_fronts);
    out_.fronts.push_back(std::move(f));
  }

  /// address:port, without a scheme.
  static void read_http(map_reader& map, std::string& out) {
    if (!map.read("http", out)) return;
    const auto colon = out.rfind(':');
    const bool right = colon != std::string::npos && colon > 0 && has_port(out, colon) &&
                       out.size() < 256 && out.find_first_of(" \t/") == std::string::npos;
    if (!right)
      map.fail("http", "found '{}', expected an address and a port such as 127.0.0.1:8000",
               shown(out));
  }

  void read_settings(map_reader& map) {
    auto& s = out_.settings;
    map.read("heartbeat_s", s.heartbeat_s, {0, 3600, true});
    map.read("lease_s", s.lease_s, {0, 86'400, true});
    map.read("memory_headroom", s.memory_headroom, {0, 10});
    map.read("restart_s", s.restart_s, {0, 86'400});
    map.read("preempt_grace_s", s.preempt_grace_s, {0, admission::max_grace_s});
    map.read("grace_s", s.grace_s, {0, admission::max_grace_s});
    map.read("time_limit_s", s.time_limit_s, positive);
    map.read("owner_mib", s.owner_mib, {0, 1e6, true});
    map.read("checkpoint_s", s.checkpoint_s, {0, 1e7, true});
    // A single lost heartbeat must not end a lease.
    if (found_.good() && s.lease_s < 2 * s.heartbeat_s)
      map.fail("lease_s", "found {:g}, expected at least twice heartbeat_s ({:g})", s.lease_s,
               s.heartbeat_s);
  }

  // Overrides change the catalogue's types for this cluster alone.
  void read_overrides(const value& v) {
    map_reader map{found_, v, "gpus"};
    for (std::size_t i = 0; i < v.keys.size() && found_.good(); ++i) {
      const auto gpu = used_gpu(v.keys[i]);
      if (!gpu) return found_.add(v.key_lines[i], "gpus", gpu.error().text);
      auto& type = out_.gpus[*gpu];
      map_reader one{found_, v.items[i], inside("gpus", v.keys[i])};
      if (one.read("efficiency", type.efficiency, {0, 1, true})) set_given_efficiency(type);
      one.read("fp32_efficiency", type.fp32_efficiency, {0, 1, true});
      one.read("kernel_us", type.kernel_us, {0, 1e6});
      one.read("price_per_hour", type.price_per_hour, {0, 1e6});
      one.read_whole<std::uint32_t>("quota", type.quota, 1, 1'000'000);
      read_named_profile(one, directory_, type.profile);
      one.finish();
    }
  }

  /// The index of a type that some node has.
  expected<gpu_index> used_gpu(const std::string& name) const {
    const auto used = names_of(out_.gpus);
    if (const auto at = std::ranges::find(used, name); at != used.end())
      return static_cast<gpu_index>(at - used.begin());
    return refuse(reason::kind::invalid, "no node of this cluster has GPU '{}'{}", shown(name),
                  hint(name, used));
  }

  // At most one price for a type and place; the more specific one wins (price_at).
  void read_price(map_reader& map) {
    gpu_price p;
    std::string gpu, datacenter;
    map.read("gpu", gpu, need::required);
    const bool everywhere = !map.read("datacenter", datacenter);
    map.read("per_hour", p.per_hour, {0, 1e6}, need::required);
    map.section("spot", [&](map_reader& spot) {
      spot.read("per_hour", p.spot_per_hour, {0, 1e6, true}, need::required);
      spot.read("interruptions_per_hour", p.interruptions_per_hour, {0, 3600}, need::required);
    });
    map.finish();
    if (!found_.good()) return;
    const auto type = used_gpu(gpu);
    if (!type) return map.fail("gpu", type.error().text);
    p.gpu = *type;
    if (!everywhere) p.datacenter = datacenter_of(map, "datacenter", datacenter);
    for (const auto& other : out_.prices)
      if (other.gpu == p.gpu && other.datacenter == p.datacenter)
        return map.fail("gpu", "duplicate price of '{}'", shown(gpu));
    out_.prices.push_back(p);
  }

  findings& found_;
  std::span<const gpu_type> catalogue_;
  std::vector<std::string> gpu_names_;
  std::filesystem::path directory_;  // the file's
  std::map<std::string, std::string>
      names_;                  // of hosts and datacenters, and their places in the file
  std::uint32_t domains_ = 0;  // NVLink domains that are numbered
  cluster out_;
};

}  // namespace

expected<cluster> load_cluster(const std::filesystem::path& file,
                               std::span<const gpu_type> catalogue) {
  return read_file(file, [&](findings& found, const value& tree) {
    return cluster_loader{found, catalogue, file.parent_path()}.load(tree);
  });
}

expected<cluster> load_cluster(const std::filesystem::path& file) {
  return load_catalogue(catalogue_for(file)).and_then([&](const std::vector<gpu_type>& catalogue) {
    return load_cluster(file, catalogue);
  });
}

expected<std::vector<policy_setting>> load_policy_settings(
    const std::filesystem::path& cluster_file) {
  return read_file(cluster_file, [&](findings& found, const value& tree) {
    const auto at = tree.index_of("policy_options");
    return at < tree.items.size() ? read_policy_settings(found, tree.items[at])
                                  : std::vector<policy_setting>{};
  });
}

}  // namespace troupe::formats
