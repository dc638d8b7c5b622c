#include "actors/control/leases/roster.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "actors/control/ledger/ledger.hpp"
#include "harness/facts.hpp"
#include "harness/small_cluster.hpp"
#include "messages/base/random.hpp"
#include "runtime/host/shared_cluster.hpp"

using namespace troupe;
using namespace troupe::actors;
using troupe::test::has_facts;

namespace {

bool is_idle(node_index) {
  return false;
}

merged_cluster merged(const cluster& present, const cluster& file,
                      const std::function<bool(node_index)>& busy = is_idle) {
  auto m = merge(present, file, present.version + 1, busy);
  REQUIRE(m);
  return *m;
}

template <class T>
std::vector<std::string> names_in(const std::vector<T>& all) {
  std::vector<std::string> names;
  for (const auto& x : all) names.push_back(x.name);
  return names;
}

/// A file with some of twenty hosts, in any order.
cluster some_file(random_source& random) {
  auto c = *harness::small_cluster();
  c.nodes.clear();
  c.wan.clear();
  c.gpus = {c.gpus[random.below(3)]};
  c.datacenters.clear();
  for (std::uint64_t d = random.below(4);; ++d) {
    c.datacenters.push_back({"dc" + std::to_string(d), ""});
    if (random.chance(0.5)) break;
  }
  std::set<std::uint64_t> hosts;
  for (auto n = 1 + random.below(8); n > 0; --n) hosts.insert(random.below(20));
  for (const auto h : hosts)
    c.nodes.insert(c.nodes.begin() + static_cast<std::ptrdiff_t>(random.below(c.nodes.size() + 1)),
                   {"n" + std::to_string(h),
                    static_cast<std::uint32_t>(random.below(c.datacenters.size())),
                    0,
                    static_cast<std::uint32_t>(1 + random.below(8)),
                    {"x", 1, 1},
                    {"x", 1, 1}});
  if (random.chance(0.5)) c.fronts.push_back({"f" + std::to_string(random.below(3)), 0, ""});
  c.settings.heartbeat_s = 1 + static_cast<double>(random.below(3));
  c.settings.lease_s = 10;
  return c;
}

template <class T>
bool begins_with(const std::vector<T>& all, const std::vector<T>& first) {
  auto names = names_in(all);
  if (names.size() < first.size()) return false;
  names.resize(first.size());
  return names == names_in(first);
}

}  // namespace

TEST_CASE("after 1,000 edits of the file every name has the index that it had first") {
  random_source random{7};
  auto now = some_file(random);
  for (int edit = 0; edit < 1000; ++edit) {
    const auto file = some_file(random);
    const auto m = merged(now, file);
    const auto& c = m.cluster;
    REQUIRE(begins_with(c.nodes, now.nodes));
    REQUIRE(begins_with(c.datacenters, now.datacenters));
    REQUIRE(begins_with(c.gpus, now.gpus));
    REQUIRE(begins_with(c.fronts, now.fronts));
    REQUIRE(indices_exist(c));
    REQUIRE(c.settings == file.settings);
    // The nodes that are not removed are those of the file, with the same hardware.
    std::map<std::string, std::string> wanted, found;
    const auto add = [](auto& to, const cluster& of) {
      for (const auto& n : of.nodes)
        if (!n.removed)
          to[n.name] =
              std::to_string(n.gpus) + of.gpus[n.gpu].name + of.datacenters[n.datacenter].name;
    };
    add(wanted, file);
    add(found, c);
    REQUIRE(wanted == found);
    for (const auto& n : c.nodes) REQUIRE(n.removed == (n.gpus == 0));
    // Once more changes nothing, in any order of the file.
    auto turned = file;
    std::ranges::reverse(turned.nodes);
    REQUIRE(merged(c, turned).cluster == c);
    REQUIRE(merged(c, turned).what == cluster_difference{});
    REQUIRE((c == now) == (c.version == now.version));
    now = c;
  }
  CHECK(now.nodes.size() == 20);
}

TEST_CASE("a merge names what was added, removed and changed") {
  const auto present = *harness::small_cluster();
  auto file = present;
  file.nodes[1].name = "new";
  file.nodes[0].gpus = 8;
  std::swap(file.nodes[2], file.nodes[4]);
  file.settings.heartbeat_s = 2;
  const auto m = merged(present, file);
  CHECK(m.what.added == std::vector<std::string>{"new"});
  CHECK(m.what.removed == std::vector<std::string>{"a-1"});
  REQUIRE(m.what.changed.size() == 2);
  CHECK(has_facts(m.what.changed[0], {"a-0", "8 A100-40GB", "4 A100-40GB"}));
  CHECK(m.what.changed[1] == "heartbeat_s: 2 instead of 1");
}

TEST_CASE("the GPUs of a node do not change while it has work") {
  const auto present = *harness::small_cluster();
  auto file = present;
  file.nodes[0].gpus = 2;
  const auto no = merge(present, file, 1, [](node_index n) { return n == 0; });
  REQUIRE_FALSE(no);
  CHECK(has_facts(no.error().text, {"a-0", "drain"}));
  CHECK(merge(present, file, 1, [](node_index n) { return n == 1; }));
  // A removed node whose work has not ended does not come back.
  file = present;
  file.nodes.erase(file.nodes.begin());
  const auto gone = merged(present, file).cluster;
  CHECK_FALSE(merge(gone, present, 2, [](node_index n) { return n == 0; }));
  const auto back = merged(gone, present);
  CHECK(back.what.added == std::vector<std::string>{"a-0"});
  CHECK(names_in(back.cluster.nodes) == names_in(present.nodes));
}

TEST_CASE("a file of another cluster, and one that no reader would accept, are refused") {
  const auto present = *harness::small_cluster();
  auto other = present;
  other.name = "other";
  const auto no = merge(present, other, 1, is_idle);
  REQUIRE_FALSE(no);
  CHECK(has_facts(no.error().text, {"'other'", "'small'"}));
  REQUIRE(check_cluster(present));
  const auto refused = [&](auto change) {
    auto c = present;
    change(c);
    return !check_cluster(c);
  };
  CHECK(refused([](cluster& c) { c.nodes.clear(); }));
  CHECK(refused([](cluster& c) { c.nodes[0].gpu = 3; }));
  CHECK(refused([](cluster& c) { c.nodes[0].datacenter = 3; }));
  CHECK(refused([](cluster& c) { c.nodes[0].gpus = 0; }));
  CHECK(refused([](cluster& c) { c.nodes[0].gpus = 1'000'000; }));
  CHECK(refused([](cluster& c) { c.nodes[0].name = c.nodes[1].name; }));
  CHECK(refused([](cluster& c) { c.nodes[0].name = "controller"; }));
  CHECK(refused([](cluster& c) { c.nodes[0].removed = true; }));
  CHECK(refused([](cluster& c) { c.wan[0].b = 7; }));
  CHECK(refused([](cluster& c) { c.wan[0].price_per_gb = -0.01; }));
  CHECK(refused([](cluster& c) { c.wan[0].price_per_gb_back = std::nan(""); }));
  CHECK_FALSE(refused([](cluster& c) { c.wan[0].price_per_gb = 0.01; }));
  CHECK(refused([](cluster& c) { c.settings.heartbeat_s = 0; }));
  CHECK(refused([](cluster& c) { c.settings.lease_s = std::nan(""); }));
  CHECK(refused([](cluster& c) { c.fronts.push_back({"f", 9, ""}); }));
  CHECK(refused([](cluster& c) { c.prices.push_back({9, {}, 1, 0, 0}); }));
}

TEST_CASE(
    "a host follows a newer cluster only if it has all of its own hosts under their numbers") {
  const auto older = *harness::small_cluster();
  auto newer = older;
  newer.nodes.push_back({"new", 0, 0, 4, {}, {}});
  const auto self = node_address(1);
  CHECK(may_follow(older, newer, self));
  std::swap(newer.nodes[0], newer.nodes[1]);
  CHECK_FALSE(may_follow(older, newer, self));
  newer = older;
  newer.nodes.pop_back();
  CHECK_FALSE(may_follow(older, newer, self));
  newer = older;
  newer.nodes[0].datacenter = 99;
  CHECK_FALSE(may_follow(older, newer, self));
}

TEST_CASE("a front cannot take the name of a removed node, whose number it would get") {
  const auto whole = *harness::small_cluster();
  auto file = whole;
  const auto name = file.nodes.back().name;
  file.nodes.pop_back();
  const auto without = merged(whole, file).cluster;
  file.fronts.push_back({name, 0, ""});
  const auto m = merge(without, file, without.version + 1, is_idle);
  REQUIRE_FALSE(m);
  CHECK(has_facts(m.error().text, {name, "node that was removed"}));
  file.fronts.back().name = "another";
  CHECK(merged(without, file).what.added == std::vector<std::string>{"another"});
}

TEST_CASE("references to an older cluster outlive its successors") {
  const shared_cluster shared{*harness::small_cluster()};
  const auto& first = *shared;
  auto next = first;
  next.version = 5;
  next.nodes.push_back({"new", 0, 0, 4, {}, {}});
  const auto copy = shared;
  CHECK(shared.adopt(next));
  CHECK_FALSE(shared.adopt(next));
  CHECK(first.nodes.size() == 5);
  CHECK(copy->nodes.size() == 6);
}

TEST_CASE("the ledger keeps the holders of a removed node, and gives its GPUs to nobody") {
  const auto c = *harness::small_cluster();
  ledger l{c};
  REQUIRE(l.apply(cluster_changed{c, 0, 5, 1}));
  REQUIRE(l.apply(job_accepted{1, 7, 1, harness::small_job("job"), "somebody"}));
  lease_granted g;
  g.lease = 1;
  g.job = 1;
  g.parts = {{4, 1, {0, 1}}};
  REQUIRE(l.apply(g));
  auto file = c;
  file.nodes.pop_back();
  const auto next = merged(c, file).cluster;
  REQUIRE(l.apply(cluster_changed{next, 2, 5, 1}));
  CHECK(l.idle(4) == 0);
  CHECK(l.holder(4, 1) == 1);
  CHECK(has_facts(l.must_stop(4).value_or(""), {"c-0", "removed"}));
  CHECK_FALSE(l.must_stop(3));
  // Replay of a snapshot gives the same, whatever file the controller was started with.
  ledger again{file};
  for (const auto& e : l.snapshot())
    if (const auto ok = again.apply(e); !ok) FAIL(ok.error().text);
  CHECK(again == l);
  REQUIRE(l.apply(lease_revoked{1, 3, lease_outcome::preempted, "removed", 9}));
  CHECK(l.lease(1)->grace_s == 9);
  REQUIRE(l.apply(part_ended{1, 0, 4, lease_outcome::preempted, 0, 0, "", {}}));
  CHECK(l.idle(4) == 0);
  CHECK(l.job(1)->state == job_state::waiting);
  // It comes back with other GPUs.
  file = c;
  file.nodes[4].gpus = 3;
  REQUIRE(l.apply(cluster_changed{merged(next, file).cluster, 5, 5, 1}));
  CHECK(l.idle(4) == 3);
}

TEST_CASE("a change of the cluster that moves nodes contradicts the journal") {
  const auto c = *harness::small_cluster();
  ledger l{c};
  REQUIRE(l.apply(cluster_changed{c, 0, 5, 1}));
  auto turned = c;
  std::swap(turned.nodes[0], turned.nodes[1]);
  CHECK_FALSE(l.apply(cluster_changed{turned, 0, 5, 1}));
  turned = c;
  turned.nodes.pop_back();
  CHECK_FALSE(l.apply(cluster_changed{turned, 0, 5, 1}));
  CHECK(l.roster()->cluster == c);
}

TEST_CASE("a drained node has free GPUs and no idle ones") {
  const auto c = *harness::small_cluster();
  ledger l{c};
  REQUIRE(l.apply(cluster_changed{c, 0, 5, 1}));
  REQUIRE(l.apply(node_drained{0, 1, true, false, "op"}));
  CHECK(l.idle(0) == 0);
  CHECK(l.free(0) == 4);
  CHECK_FALSE(l.must_stop(0));
  ledger again{c};
  for (const auto& e : l.snapshot()) REQUIRE(again.apply(e));
  CHECK(again == l);
  REQUIRE(l.apply(node_drained{0, 2, true, true, "op"}));
  CHECK(has_facts(l.must_stop(0).value_or(""), {"a-0", "op"}));
  REQUIRE(l.apply(node_drained{0, 3, false, false, "op"}));
  CHECK(l.idle(0) == 4);
  CHECK_FALSE(l.apply(node_drained{5, 3, true, false, "op"}));
}
