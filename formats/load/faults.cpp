#include <algorithm>

#include "formats/load/load.hpp"
#include "formats/parse/reader.hpp"
#include "messages/domain/address.hpp"

namespace troupe::formats {

namespace {

// A fault plan (docs/files.md) for simulated worlds: planned faults with times, and random ones
// with rates. Names are checked against the cluster separately, as one plan serves several
// clusters.
constexpr range fault_time{0, 1e9};

void read_window(map_reader& map, double& from_s, double& until_s, need n) {
  map.read("from_s", from_s, fault_time, n);
  map.read("until_s", until_s, {0, 1e9, true}, n);
  if (map.found().good() && until_s > 0 && until_s <= from_s)
    map.fail("until_s", "found {:g}, expected more than from_s ({:g})", until_s, from_s);
}

// b may be missing: then the partition separates `a` from all others.
void read_partition(map_reader& map, fault_plan& plan) {
  timed_partition p;
  if (!map.read("a", p.a)) map.find("a", need::required);
  map.read("b", p.b);
  read_window(map, p.from_s, p.until_s, need::required);
  map.finish();
  if (map.found().good() && p.a.empty()) map.fail("a", "found no hosts, expected at least one");
  plan.partitions.push_back(std::move(p));
}

void read_crash(map_reader& map, fault_plan& plan) {
  timed_crash c;
  map.read("host", c.host, need::required);
  map.read("at_s", c.at_s, fault_time, need::required);
  map.read("down_s", c.down_s, {0, 1e9, true}, need::required);
  map.finish();
  plan.crashes.push_back(std::move(c));
}

void read_slow(map_reader& map, fault_plan& plan) {
  slow_node s;
  map.read("node", s.node, need::required);
  map.read("factor", s.factor, {1, 1e6}, need::required);
  read_window(map, s.from_s, s.until_s, need::required);
  map.finish();
  plan.slow_nodes.push_back(std::move(s));
}

void read_slow_link(map_reader& map, fault_plan& plan) {
  slow_link s;
  std::vector<std::string> between;
  if (!map.read("between", between)) map.find("between", need::required);
  map.read("factor", s.factor, {1, 1e6}, need::required);
  read_window(map, s.from_s, s.until_s, need::required);
  map.finish();
  if (map.found().good() && between.size() != 2)
    map.fail("between", "found {} datacenters, expected two", between.size());
  if (between.size() == 2) s.a = between[0], s.b = between[1];
  plan.slow_links.push_back(std::move(s));
}

// Rates without the size of the fault would be faults without effect, and a test that passes for
// that reason.
void check_random(map_reader& map, const fault_plan& p) {
  if (!map.found().good()) return;
  const bool crashes = p.node_crashes_per_hour > 0 || p.gateway_crashes_per_hour > 0 ||
                       p.controller_crashes_per_hour > 0;
  if ((crashes || p.torn_append > 0) && p.mean_down_s == 0)
    map.fail("mean_down_s", "missing or 0 although hosts crash; expected a number above 0");
  if (p.wall_steps_per_hour > 0 && p.wall_skew_s == 0)
    map.fail("wall_skew_s", "missing or 0 although wall clocks step; expected a number above 0");
  if (p.reordering > 0 && p.reorder_delay_s == 0)
    map.fail("reorder_delay_s",
             "missing or 0 although frames are reordered; expected a number above 0");
}

fault_plan read_faults(findings& found, const value& tree) {
  map_reader map{found, tree, ""};
  fault_plan p;
  map.read_name("name", p.name, need::required);
  read_window(map, p.from_s, p.until_s, need::optional);
  map.read("loss", p.loss, zero_to_one);
  map.read("duplication", p.duplication, zero_to_one);
  map.read("reordering", p.reordering, zero_to_one);
  map.read("reorder_delay_s", p.reorder_delay_s, {0, 3600});
  constexpr range rate{0, 3600};
  map.read("node_crashes_per_hour", p.node_crashes_per_hour, rate);
  map.read("gateway_crashes_per_hour", p.gateway_crashes_per_hour, rate);
  map.read("controller_crashes_per_hour", p.controller_crashes_per_hour, rate);
  map.read("mean_down_s", p.mean_down_s, fault_time);
  map.read("torn_append", p.torn_append, zero_to_one);
  map.read("wall_skew_s", p.wall_skew_s, fault_time);
  map.read("wall_steps_per_hour", p.wall_steps_per_hour, rate);
  map.read("clock_drift", p.clock_drift, {0, 0.5});
  map.each("partitions", [&](auto& at) { read_partition(at, p); });
  map.each("crashes", [&](auto& at) { read_crash(at, p); });
  map.each("slow_nodes", [&](auto& at) { read_slow(at, p); });
  map.each("slow_links", [&](auto& at) { read_slow_link(at, p); });
  map.finish();
  check_random(map, p);
  return p;
}

}  // namespace

expected<fault_plan> load_faults(const std::filesystem::path& file) {
  return read_file(file, read_faults);
}

// A misspelled host would be a fault that never happens.
expected<void> check_faults(const fault_plan& plan, const cluster& c, const std::string& file) {
  std::vector<std::string> hosts{"controller"};
  for (const auto& dc : c.datacenters) hosts.push_back(dc.name + "/gateway");
  const auto nodes = names_of(c.nodes), datacenters = names_of(c.datacenters);
  auto places = datacenters;
  hosts.insert(hosts.end(), nodes.begin(), nodes.end());
  places.insert(places.end(), hosts.begin(), hosts.end());

  findings found{file};
  const auto check = [&](const std::string& name, const std::vector<std::string>& known,
                         std::string_view list, std::size_t i, std::string_view key) {
    if (std::ranges::find(known, name) == known.end())
      found.add(0, inside(inside(list, i), key), "the cluster {} has no '{}'{}", c.name,
                shown(name), hint(name, known));
  };
  for (std::size_t i = 0; i < plan.partitions.size(); ++i) {
    for (const auto& host : plan.partitions[i].a) check(host, places, "partitions", i, "a");
    for (const auto& host : plan.partitions[i].b) check(host, places, "partitions", i, "b");
  }
  for (std::size_t i = 0; i < plan.crashes.size(); ++i)
    check(plan.crashes[i].host, hosts, "crashes", i, "host");
  for (std::size_t i = 0; i < plan.slow_nodes.size(); ++i)
    check(plan.slow_nodes[i].node, nodes, "slow_nodes", i, "node");
  for (std::size_t i = 0; i < plan.slow_links.size(); ++i)
    for (const auto& name : {plan.slow_links[i].a, plan.slow_links[i].b})
      check(name, datacenters, "slow_links", i, "between");
  if (!found.good()) return found.result();
  return {};
}

}  // namespace troupe::formats
