#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "actors/control/trainings.hpp"
#include "actors/worlds/virtual_cluster.hpp"
#include "harness/facts.hpp"
#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "harness/source_dir.hpp"
#include "runtime/host/log.hpp"
#include "runtime/journal/sqlite_journal.hpp"

// Clusters that change while jobs run on them.

using namespace troupe;
using namespace troupe::actors;
using troupe::test::asked;
using troupe::test::has_facts;

namespace {

constexpr std::uint64_t long_work = 1'000'000;

virtual_cluster_options options_of(std::shared_ptr<const cluster> c) {
  virtual_cluster_options o;
  o.cluster = std::move(c);
  o.policy = planners::make_policy("frenzy");
  return o;
}

/// The small cluster without its last node, which may join.
virtual_cluster_options four_of_five() {
  auto four = harness::small_cluster();
  four->nodes.pop_back();
  auto o = options_of(four);
  o.machines = harness::small_cluster();
  return o;
}

query_reply status_of(virtual_cluster& v) {
  return asked<query_reply>(v, query_jobs{0, 0});
}

std::string where(const query_reply& r, job_id id) {
  for (const auto& j : r.jobs)
    if (j.job == id && !j.where.empty()) return r.nodes[j.where.front().node].name;
  return "";
}

job_status job(const query_reply& r, job_id id) {
  const auto at = std::ranges::find(r.jobs, id, &job_status::job);
  REQUIRE(at != r.jobs.end());
  return *at;
}

job_spec on(const std::string& type, std::string name, std::uint64_t iterations = long_work) {
  auto spec = harness::small_job(std::move(name), iterations, 1);
  spec.request.type = spec.limits.required_gpu_type = type;
  return spec;
}

/// A controller that was started with a file in which node c-0, whose job runs, has fewer GPUs.
struct busy_with_changed_file {
  busy_with_changed_file() {
    std::shared_ptr<runtime::memory_disk> disk;
    {
      virtual_cluster before{options_of(first)};
      before.submit({{1, on("RTX2080Ti", "job")}});
      before.world().run_until(10);
      REQUIRE(where(status_of(before), 1) == "c-0");
      disk = before.world().disk(controller_address);
    }
    const auto copy = *disk;
    --changed->nodes[4].gpus;
    auto o = options_of(changed);
    o.machines = first;
    v.emplace(o);
    *v->world().disk(controller_address) = copy;
    v->world().crash(controller_address, 0.1);
    v->world().run_until(1);
  }

  const std::shared_ptr<cluster> first = harness::small_cluster();
  const std::shared_ptr<cluster> changed = harness::small_cluster();
  std::optional<virtual_cluster> v;
};

}  // namespace

TEST_CASE("a node that is added gets work, and nothing else notices") {
  auto o = four_of_five();
  virtual_cluster v{o};
  const auto four = [](const std::string& type, std::string name) {
    auto spec = on(type, std::move(name));
    spec.program.command = {"a program"};
    spec.request.gpus = 4;
    spec.request.exact = true;
    return spec;
  };
  v.submit({{1, four("A100-40GB", "stays")}, {2, four("A40", "fills")}, {5, four("", "waits")}});
  v.world().run_until(10);
  CHECK(job(status_of(v), 1).state == job_state::running);
  CHECK(job(status_of(v), 2).state == job_state::running);
  CHECK(job(status_of(v), 3).state == job_state::waiting);
  const auto reply = asked<reconfigure_reply>(v, reconfigure{11, *harness::small_cluster()});
  REQUIRE(reply.done);
  CHECK(reply.what.added == std::vector<std::string>{"c-0"});
  CHECK(reply.stopping.empty());
  v.join(4);
  v.world().run_until(v.world().now_s() + 20);
  const auto r = status_of(v);
  CHECK(job(r, 3).state == job_state::running);
  CHECK(where(r, 3) == "c-0");
  CHECK(job(r, 1).progress.attempts == 1);
  CHECK(job(r, 2).progress.attempts == 1);
}

TEST_CASE("work on a removed node is queued again; other work and names stay") {
  auto o = options_of(harness::small_cluster());
  virtual_cluster v{o};
  v.submit({{1, on("A40", "ended", 1)}, {20, on("A40", "moves")}, {20, on("A100-40GB", "stays")}});
  v.world().run_until(60);
  auto r = status_of(v);
  REQUIRE(job(r, 1).state == job_state::finished);
  REQUIRE(job(r, 2).state == job_state::running);
  const auto ended = where(r, 1), left = where(r, 2), stays = where(r, 3);
  auto file = *harness::small_cluster();
  std::erase_if(file.nodes, [&](const troupe::node& n) { return n.name == left; });
  std::ranges::reverse(file.nodes);
  const auto reply = asked<reconfigure_reply>(v, reconfigure{12, file});
  REQUIRE(reply.done);
  CHECK(reply.what.removed == std::vector<std::string>{left});
  CHECK(reply.what.added.empty());
  CHECK(reply.stopping == std::vector<job_id>{2});
  v.world().run_until(v.world().now_s() + 30);
  r = status_of(v);
  CHECK(where(r, 1) == ended);
  CHECK(where(r, 3) == stays);
  CHECK(job(r, 3).progress.attempts == 1);
  CHECK(job(r, 2).state == job_state::running);
  CHECK(job(r, 2).progress.attempts == 2);
  CHECK(where(r, 2) != left);
  const auto gone = std::ranges::find(r.nodes, left, &node_status::name);
  REQUIRE(gone != r.nodes.end());
  CHECK(gone->removed.value_or(false));
  CHECK(gone->gpus == 0);
  CHECK(asked<reconfigure_reply>(v, reconfigure{13, file}).what == cluster_difference{});
}

TEST_CASE("a longer heartbeat and a shorter lease stop nothing") {
  auto o = options_of(harness::small_cluster());
  virtual_cluster v{o};
  v.submit({{1, on("A100-40GB", "stays")}});
  v.world().run_until(10);
  auto file = *harness::small_cluster();
  for (const auto& [heartbeat_s, lease_s] :
       {std::pair{2.0, 30.0}, std::pair{0.5, 30.0}, std::pair{0.5, 2.0}, std::pair{1.0, 5.0}}) {
    file.settings.heartbeat_s = heartbeat_s;
    file.settings.lease_s = lease_s;
    REQUIRE(asked<reconfigure_reply>(v, reconfigure{0, file}).done);
    v.world().run_until(v.world().now_s() + 50);
  }
  CHECK(job(status_of(v), 1).progress.attempts == 1);
  CHECK(job(status_of(v), 1).state == job_state::running);
}

TEST_CASE(
    "after a lease became shorter, a silent node's work is not given away before the longer") {
  auto c = harness::small_cluster();
  c->settings.lease_s = 60;
  auto o = options_of(c);
  double stopped_s = 0, again_s = 0;
  virtual_cluster* world = nullptr;
  o.on_work = [&](node_index, const work_order* w, const part_report* ended) {
    if (w && ended) stopped_s = world->world().now_s();
    if (w && !ended) again_s = world->world().now_s();
  };
  // The node receives nothing from the moment of the change.
  bool cut = false;
  address of = 0;
  o.loses = [&](address from, address to, const frame&) { return cut && (from == of || to == of); };
  virtual_cluster v{o};
  world = &v;
  v.submit({{1, on("RTX2080Ti", "job")}});
  v.world().run_until(10);
  of = node_address(4);
  cut = true;
  auto file = *c;
  file.settings.lease_s = 3;
  REQUIRE(asked<reconfigure_reply>(v, reconfigure{5, file}).done);
  // Only the cut node has such GPUs: the job waits, so its loss shows.
  v.world().run_until(v.world().now_s() + 50);
  CHECK(job(status_of(v), 1).state == job_state::running);
  CHECK(stopped_s == 0);
  v.world().run_until(v.world().now_s() + 30);
  CHECK(stopped_s > 60);
  CHECK(job(status_of(v), 1).state == job_state::waiting);
  // From then on the shorter one counts.
  cut = false;
  v.world().run_until(v.world().now_s() + 30);
  REQUIRE(job(status_of(v), 1).state == job_state::running);
  CHECK(again_s > stopped_s);
  cut = true;
  v.world().run_until(v.world().now_s() + 10);
  CHECK(job(status_of(v), 1).state == job_state::waiting);
}

TEST_CASE("a drained node gets no work until it is undrained, also by a restarted controller") {
  auto o = options_of(harness::small_cluster());
  virtual_cluster v{o};
  v.submit({{1, on("RTX2080Ti", "runs")}, {30, on("RTX2080Ti", "waits")}});
  v.world().run_until(10);
  REQUIRE(where(status_of(v), 1) == "c-0");
  CHECK(has_facts(asked<drain_reply>(v, drain_nodes{1, {"c-1"}, true, false}).why.text, {"c-1"}));
  const auto reply = asked<drain_reply>(v, drain_nodes{2, {"c-0"}, true, false});
  REQUIRE(reply.done);
  CHECK(reply.jobs == std::vector<job_id>{1});
  v.world().crash(controller_address, 1);
  v.world().run_until(60);
  auto r = status_of(v);
  CHECK(job(r, 1).state == job_state::running);
  CHECK(job(r, 2).state == job_state::waiting);
  CHECK(std::string{state_of(r.nodes[4])} == "draining");
  REQUIRE(asked<drain_reply>(v, drain_nodes{3, {"c-0"}, true, true}).done);
  v.world().run_until(90);
  r = status_of(v);
  CHECK(job(r, 1).state == job_state::waiting);
  CHECK(std::string{state_of(r.nodes[4])} == "drained");
  REQUIRE(asked<drain_reply>(v, drain_nodes{4, {"c-0"}, false, false}).done);
  v.world().run_until(120);
  r = status_of(v);
  CHECK(job(r, 1).state == job_state::running);
  CHECK(job(r, 2).state == job_state::running);
  CHECK(std::string{state_of(r.nodes[4])} == "present");
}

TEST_CASE(
    "a controller that is started with another file follows it, and its own file is not older") {
  auto first = harness::small_cluster();
  std::shared_ptr<runtime::memory_disk> disk;
  {
    auto o = options_of(first);
    virtual_cluster v{o};
    v.submit({{1, on("RTX2080Ti", "job", 1)}});
    v.world().run_until(60);
    auto file = *first;
    file.nodes.erase(file.nodes.begin());
    REQUIRE(asked<reconfigure_reply>(v, reconfigure{5, file}).done);
    // With the file of its last start it stays with what was reconfigured.
    v.world().crash(controller_address, 1);
    v.world().run_until(80);
    CHECK(status_of(v).nodes[0].removed.value_or(false));
    disk = v.world().disk(controller_address);
  }
  const auto copy = *disk;
  auto turned = std::make_shared<cluster>(*first);
  std::ranges::reverse(turned->nodes);
  auto o = options_of(turned);
  o.machines = first;
  virtual_cluster v{o};
  *v.world().disk(controller_address) = copy;
  v.world().crash(controller_address, 0.1);
  v.world().run_until(1);
  const auto r = status_of(v);
  CHECK_FALSE(r.nodes[0].removed.value_or(false));
  CHECK(r.nodes[0].name == "a-0");
  CHECK(where(r, 1) == "c-0");
}

TEST_CASE("a controller starts with a file that changes a busy node, and follows it once it can") {
  busy_with_changed_file f;
  auto& v = *f.v;
  CHECK(status_of(v).nodes[4].gpus == f.first->nodes[4].gpus);
  const auto early = asked<reconfigure_reply>(v, reconfigure{5, *f.changed});
  CHECK_FALSE(early.done);
  CHECK(has_facts(early.why.text, {"c-0", "drain"}));
  REQUIRE(asked<drain_reply>(v, drain_nodes{6, {"c-0"}, true, true}).done);
  v.world().run_until(60);
  CHECK(status_of(v).nodes[4].gpus == f.changed->nodes[4].gpus);
}

TEST_CASE("a controller's file that changes a busy node is not followed after a reconfigure") {
  busy_with_changed_file f;
  auto& v = *f.v;
  REQUIRE(asked<reconfigure_reply>(v, reconfigure{5, *f.first}).done);
  REQUIRE(asked<drain_reply>(v, drain_nodes{6, {"c-0"}, true, true}).done);
  v.world().run_until(60);
  CHECK(status_of(v).nodes[4].gpus == f.first->nodes[4].gpus);
}

TEST_CASE("a node that has missed a shorter lease gets it before anything renews the longer one") {
  auto c = harness::small_cluster();
  c->settings.lease_s = 60;
  auto o = options_of(c);
  std::size_t updates = 0, renewals = 0;
  const auto of = node_address(4);
  // Its first update is lost, as if its gateway had ended with it.
  o.loses = [&](address, address to, const frame& f) {
    const auto e = peek(f.header.bytes());
    if (!e || e->to != of || to != of) return false;
    renewals += updates == 1 && e->type == type_id<lease_renewal>;
    return e->type == type_id<cluster_update> && ++updates == 1;
  };
  virtual_cluster v{o};
  v.submit({{1, on("RTX2080Ti", "job")}});
  v.world().run_until(10);
  auto file = *c;
  file.settings.lease_s = 3;
  REQUIRE(asked<reconfigure_reply>(v, reconfigure{5, file}).done);
  v.world().run_until(v.world().now_s() + 10);
  CHECK(updates == 2);
  CHECK(renewals == 0);
  v.world().run_until(v.world().now_s() + 100);
  CHECK(job(status_of(v), 1).progress.attempts == 1);
}

TEST_CASE("a node that was removed and is added again gets work once its new process reports") {
  auto o = options_of(harness::small_cluster());
  virtual_cluster v{o};
  v.world().run_until(10);
  auto without = *harness::small_cluster();
  without.nodes.pop_back();
  REQUIRE(asked<reconfigure_reply>(v, reconfigure{5, without}).done);
  v.world().crash(node_address(4), 1000);
  REQUIRE(asked<reconfigure_reply>(v, reconfigure{6, *harness::small_cluster()}).done);
  v.submit({{v.world().now_s() + 0.1, on("RTX2080Ti", "waits")}});
  v.world().run_until(v.world().now_s() + 2);
  CHECK(job(status_of(v), 1).state == job_state::waiting);
  CHECK(job(status_of(v), 1).progress.attempts == 0);
}

namespace {

/// A controller that opens a recorded journal of two nodes, a and b, of which none is there.
struct opened_journal {
  virtual_cluster v{options_of(two_nodes())};

  explicit opened_journal(const std::string& folder) {
    const auto from = test::source_dir() + "/tests/actors/control/" + folder + "/";
    const test::scratch dir;
    for (const char* name : {"journal.sqlite", "journal.sqlite.witness"})
      std::filesystem::copy_file(from + name, dir.path(name));
    const auto old = runtime::sqlite_journal::open(dir.path("journal.sqlite"));
    if (!old) FAIL(old.error().text);
    std::vector<journal_entry> entries;
    REQUIRE((*old)->replay([&](const journal_entry& e) { entries.push_back(e); }));
    v.world().crash(node_address(0));
    v.world().crash(node_address(1));
    v.world().crash(controller_address);
    auto& disk = *v.world().disk(controller_address);
    disk.id = (*old)->id();
    disk.rows.clear();
    disk.first = 1;
    disk.witnessed = 0;
    auto copy = std::make_shared<runtime::memory_disk>(disk);
    REQUIRE(runtime::memory_journal{copy}.append(entries));
    disk = *copy;
    v.world().restart(controller_address);
    v.world().run_until(3);
  }

  static std::shared_ptr<cluster> two_nodes() {
    auto c = std::make_shared<cluster>(*harness::small_cluster());
    c->name = "two-nodes";
    c->gpus = {{"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""},
               {"T4", 16, 65, 8.1, 320, 0.45, 0.35, ""}};
    c->datacenters = {{"here", ""}};
    c->wan.clear();
    c->nodes = {{"a", 0, 0, 4, {"x", 1, 1}, {"x", 1, 1}}, {"b", 0, 1, 4, {"x", 1, 1}, {"x", 1, 1}}};
    return c;
  }

  void is(job_id id, const char* name, job_state s, const char* node) {
    INFO("job " << id);
    const auto r = status_of(v);
    CHECK(job(r, id).name == name);
    CHECK(job(r, id).state == s);
    CHECK(where(r, id) == node);
  }
  void queues_again(std::initializer_list<job_id> jobs) {
    v.world().run_until(30);
    const auto r = status_of(v);
    for (const auto id : jobs) {
      CHECK(job(r, id).state == job_state::waiting);
      CHECK(has_facts(job(r, id).detail, {"silent"}));
    }
  }
};

}  // namespace

TEST_CASE("a journal of version 1 is opened; what ran on absent nodes is queued again") {
  opened_journal j{"first_journal"};
  REQUIRE(status_of(j.v).jobs.size() == 7);
  j.is(1, "ended", job_state::finished, "a");
  j.is(2, "failed", job_state::failed, "a");
  j.is(3, "on-a", job_state::running, "a");
  j.is(4, "on-b", job_state::running, "b");
  j.is(5, "held", job_state::waiting, "");
  j.is(6, "train-two-stages", job_state::running, "b");
  j.is(7, "serve-scribe", job_state::running, "b");
  j.queues_again({3, 4, 6, 7});
  CHECK(where(status_of(j.v), 1) == "a");
  // The journal begins with the cluster now: another order of the file changes nothing.
  REQUIRE(j.v.journal().size() > 1);
  CHECK(std::holds_alternative<cluster_changed>(j.v.journal()[1]));
}

TEST_CASE("a journal of version 3 is opened, with what its jobs' files say") {
  opened_journal j{"third_journal"};
  REQUIRE(status_of(j.v).jobs.size() == 7);
  j.is(1, "ended", job_state::finished, "a");
  j.is(2, "failed", job_state::failed, "b");
  j.is(3, "runs", job_state::running, "a");
  j.is(4, "elastic", job_state::running, "a");
  j.is(5, "waits", job_state::running, "b");
  j.is(6, "simulated", job_state::waiting, "");
  j.is(7, "waiting", job_state::waiting, "");
  const auto spec = [&](job_id id) {
    query_jobs q{900 + id, id};
    q.spec = true;
    return *asked<query_reply>(j.v, q).spec;
  };
  CHECK(spec(1).program.environment == std::map<std::string, std::string>{{"A", "b"}});
  CHECK(spec(1).program.working_directory == "/tmp");
  REQUIRE(spec(2).program.retries);
  CHECK(spec(2).program.retries->attempts == 1);
  const auto runs = spec(3);
  CHECK(runs.program.command == std::vector<std::string>{"sleep", "600"});
  CHECK(runs.request.gpus == 2);
  CHECK(runs.limits.required_gpu_type == "A100-40GB");
  CHECK(runs.limits.time_limit_s == 3600.0);
  CHECK(runs.limits.max_restarts == 2);
  CHECK(runs.program.grace_s == 1.0);
  CHECK(runs.priority == 3);
  REQUIRE(spec(4).program.elastic);
  CHECK(spec(4).program.elastic->max_gpus == 2);
  CHECK(spec(4).assumed.model);
  CHECK(spec(5).request.across_datacenters == true);
  CHECK(spec(6).limits.deadline_s == 1e9);
  CHECK(spec(6).merging.dataset_card == std::vector<std::string>{"news"});
  CHECK(job(status_of(j.v), 7).waiting_reason == "suspended");
  j.queues_again({3, 4, 5});
}
