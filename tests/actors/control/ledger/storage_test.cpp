#include <catch2/catch.hpp>

#include <caf/all.hpp>
#include <set>

#include "actors/protocol/failure_watch.hpp"
#include "actors/protocol/host_threads.hpp"
#include "actors/worlds/virtual_cluster.hpp"
#include "harness/logged_errors.hpp"
#include "harness/small_cluster.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/journal/observed_journal.hpp"

// The controller and its journal: group commits, snapshots, full and damaged disks, other journals.

using namespace troupe;
using namespace troupe::actors;
using harness::logged_errors;
using harness::small_cluster;
using harness::small_job;
using runtime::append_fate;

namespace {

virtual_cluster_options storage_options() {
  virtual_cluster_options o;
  o.cluster = small_cluster();
  o.policy = planners::make_policy("fcfs");
  o.faults.mean_down_s = 3;
  return o;
}

std::vector<arrival> jobs_from(double first_s, int count, double every_s,
                               std::uint64_t iterations = 50) {
  std::vector<arrival> result;
  for (int i = 0; i < count; ++i) {
    auto spec = small_job("job", iterations, 1);
    spec.request.gpus = 1;
    result.push_back({first_s + i * every_s, spec});
  }
  return result;
}

ledger replay_of(const cluster& c, const std::vector<journal_entry>& entries) {
  ledger l{c};
  for (const auto& e : entries) {
    auto ok = l.apply(e);
    INFO((ok ? std::string{} : ok.error().text));
    REQUIRE(ok);
  }
  return l;
}

}  // namespace

TEST_CASE(
    "waiting messages are journalled in one commit, and nothing is sent before it is durable") {
  constexpr int jobs = 50;
  std::vector<std::uint64_t> sent_before;  // by write: frames that had left the controller
  runtime::virtual_world* w = nullptr;
  runtime::virtual_options o;
  o.on_append = [&](double) {
    sent_before.push_back(w ? w->count().network.sent : 0);
    return append_fate::kept;
  };
  const auto c = small_cluster();
  runtime::virtual_world world{*c, o};
  w = &world;
  std::size_t durable = 0;
  world.add_host(controller_address, [&](const runtime::host& h) {
    controller_options options;
    options.cluster = c;
    auto observed = h;
    observed.journal = std::make_shared<runtime::observed_journal>(
        h.journal, [&](const journal_entry&) { ++durable; });
    auto a = spawn_actor<orchestrator_state>(world.system(), observed, options);
    for (std::uint64_t i = 1; i <= jobs; ++i)
      caf::anon_send(a, inbound<submit_job>{gateway_address(0), {i, small_job("j")}, {}, {}});
    return std::vector<caf::actor>{caf::actor_cast<caf::actor>(a)};
  });
  world.run_until(0.5);
  // The cluster and the epoch's beginning, and all jobs.
  REQUIRE(sent_before.size() == 2);
  CHECK(sent_before[1] == 0);
  CHECK(durable == jobs + 2);
  CHECK(world.count().network.sent == jobs);
}

TEST_CASE(
    "a controller with a full disk goes down, and continues with every accepted job afterwards") {
  logged_errors errors;
  auto o = storage_options();
  o.on_append = [](double now_s) {
    return now_s > 20 && now_s < 60 ? append_fate::full : append_fate::kept;
  };
  std::optional<ledger> live;
  o.on_state = [&](const cluster_state& s) { live = s.book; };
  virtual_cluster v{o};
  v.submit(jobs_from(1, 30, 2));
  v.world().run_until(19.9);  // jobs submitted at 19 are answered
  const auto before = v.accepted().size();
  v.world().run_until(59.0);
  CHECK(v.world().count().failures > 3);  // it comes back, and fails again
  CHECK(v.accepted().size() == before);   // and no client gets a reply meanwhile
  CHECK(errors.has("the disk is full"));
  REQUIRE(v.world().run_until(
      [&] { return live && live->jobs().size() == 30 && live->unfinished() == 0; }, 20'000.0));
  CHECK(std::set<job_id>{v.accepted().begin(), v.accepted().end()}.size() == 30);
  CHECK(replay_of(*o.cluster, v.journal()) == *live);
}

TEST_CASE("a write that reached the disk but was not confirmed creates no duplicate job") {
  logged_errors errors;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    auto o = storage_options();
    o.seed = seed;
    random_source random{seed};
    o.on_append = [random](double now_s) mutable {
      return now_s > 1 && now_s < 200 && random.chance(0.1) ? append_fate::unreported
                                                            : append_fate::kept;
    };
    std::optional<ledger> live;
    o.on_state = [&](const cluster_state& s) { live = s.book; };
    virtual_cluster v{o};
    v.submit(jobs_from(1, 12, 10));
    REQUIRE(v.world().run_until(
        [&] {
          return v.world().now_s() > 250 && live && v.accepted().size() == 12 &&
                 live->unfinished() == 0;
        },
        20'000.0));
    CHECK(v.world().count().torn_appends > 0);
    CHECK(live->jobs().size() == 12);
    CHECK(replay_of(*o.cluster, v.journal()) == *live);
  }
}

TEST_CASE("a compacted journal is short, and a controller that starts from it continues") {
  auto o = storage_options();
  o.limits = {.compact_after = 60, .keep_ended = 5};
  std::optional<ledger> live;
  o.on_state = [&](const cluster_state& s) { live = s.book; };
  std::size_t entries = 0;
  o.on_entry = [&](const journal_entry&) { ++entries; };
  virtual_cluster v{o};
  v.submit(jobs_from(1, 120, 3, 400));
  std::size_t longest = 0;
  for (double t = 10; t < 420; t += 10) {
    v.world().run_until(t);
    longest = std::max(longest, v.journal().size());
    if (static_cast<int>(t) % 70 == 0) {
      v.world().crash(controller_address);
      v.world().restart(controller_address);
    }
  }
  REQUIRE(v.world().run_until(
      [&] { return live && v.accepted().size() == 120 && live->unfinished() == 0; }, 20'000.0));
  v.world().run_until(v.world().now_s() + 5);
  CHECK(entries > 450);
  CHECK(longest < 200);
  CHECK(live->next_job() == 121);
  CHECK(live->jobs().size() < 60);
  CHECK(live->jobs().contains(120));
  CHECK(replay_of(*o.cluster, v.journal()) == *live);
  CHECK(v.world().count().failures == 0);
  for (const auto& [id, j] : live->jobs())
    CHECK(j.progress.attempts == 1);  // no restart cost a job its lease
}

TEST_CASE("a cluster without heartbeats compacts its journal and forgets ended jobs, too") {
  auto o = storage_options();
  o.faults = {};
  auto c = *o.cluster;
  c.settings.heartbeat_s = 1e9;
  c.settings.lease_s = 4e9;
  o.cluster = std::make_shared<const cluster>(std::move(c));
  o.limits = {.compact_after = 60, .keep_ended = 5};
  std::optional<ledger> live;
  o.on_state = [&](const cluster_state& s) { live = s.book; };
  virtual_cluster v{o};
  v.submit(jobs_from(1, 120, 3, 400));
  REQUIRE(v.world().run_until(
      [&] { return live && v.accepted().size() == 120 && live->unfinished() == 0; }, 20'000.0));
  CHECK(live->jobs().size() < 60);
  CHECK(v.journal().size() < 200);
  CHECK(replay_of(*o.cluster, v.journal()) == *live);
}

TEST_CASE("a controller with a damaged or truncated journal serves nobody until it is repaired") {
  const bool cut = GENERATE(false, true);
  logged_errors errors;
  auto o = storage_options();
  std::optional<ledger> live;
  o.on_state = [&](const cluster_state& s) { live = s.book; };
  virtual_cluster v{o};
  v.submit(jobs_from(1, 10, 1));
  v.world().run_until(30.0);
  REQUIRE(v.accepted().size() == 10);
  v.world().crash(controller_address);
  const auto disk = v.world().disk(controller_address);
  const auto good = *disk;
  random_source random{5};
  if (cut)
    disk->lose_tail(3);
  else
    disk->flip_bit(random);
  live.reset();
  v.world().restart(controller_address);
  CHECK_FALSE(v.ask(query_jobs{0, 0}, 20).reply);
  CHECK(v.world().count().failures > 1);
  CHECK_FALSE(live);
  CHECK(errors.has(cut ? "were written" : "is damaged"));
  *disk = good;
  REQUIRE(v.world().run_until([&] { return live && live->unfinished() == 0; }, 20'000.0));
  CHECK(live->jobs().size() == 10);
}

TEST_CASE("nodes drop the work of another journal and accept that of a new one, with new leases") {
  auto o = storage_options();
  std::map<std::pair<node_index, lease_id>, int> works;  // 1: is on
  o.on_work = [&](node_index n, const work_order* w, const part_report* ended) {
    if (w) works[{n, w->lease}] = ended ? 0 : 1;
  };
  std::optional<ledger> live;
  o.on_state = [&](const cluster_state& s) { live = s.book; };
  virtual_cluster v{o};
  v.submit(jobs_from(1, 5, 0.1, 1'000'000));
  v.world().run_until(100.0);
  REQUIRE(live->leases().size() == 5);
  const auto last_lease = live->leases().last_key();
  v.world().crash(controller_address);
  runtime::memory_disk empty;
  empty.id = 4711;
  *v.world().disk(controller_address) = empty;
  v.world().restart(controller_address);
  v.submit(jobs_from(101, 3, 0.1));
  REQUIRE(v.world().run_until(
      [&] {
        return v.accepted().size() == 8 && live && live->jobs().size() == 3 &&
               live->unfinished() == 0;
      },
      400.0));
  for (const auto& [where, on] : works) {
    INFO("node " << where.first << ", lease " << where.second);
    CHECK(on == 0);
  }
  for (const auto& [id, j] : live->jobs()) CHECK(j.lease > last_lease);
  CHECK(v.world().count().failures == 0);
}

TEST_CASE("nodes detect an older copy of the journal, and it can be accepted safely") {
  const bool same_epoch = GENERATE(false, true);
  CAPTURE(same_epoch);
  logged_errors errors;
  auto o = storage_options();
  std::optional<ledger> live;
  o.on_state = [&](const cluster_state& s) { live = s.book; };
  virtual_cluster v{o};
  v.submit(jobs_from(1, 4, 0.1, 2000));
  v.world().run_until(50.0);
  const auto disk = v.world().disk(controller_address);
  const auto backup = *disk;  // with its witness: nothing in the state directory knows better
  if (!same_epoch) {
    v.world().crash(controller_address);
    v.world().restart(controller_address);
  }
  v.submit(jobs_from(60, 2, 0.1, 100'000));
  v.world().run_until(100.0);
  REQUIRE(v.accepted().size() == 6);
  v.world().crash(controller_address);
  *disk = backup;
  v.world().restart(controller_address);
  v.world().run_until(120.0);
  CHECK(v.world().count().failures > 0);
  CHECK(errors.has("has lost its latest entries"));
  CHECK(errors.has("--accept-older-journal"));
  // The effect of --accept-older-journal: a new id.
  v.world().crash(controller_address);
  disk->id = 4712;
  live.reset();
  v.world().restart(controller_address);
  REQUIRE(v.world().run_until([&] { return live && live->unfinished() == 0; }, 20'000.0));
  CHECK(live->jobs().size() == 4);
  CHECK(replay_of(*o.cluster, v.journal()) == *live);
}

TEST_CASE("a failure watch reports the error of the first actor that failed") {
  logged_errors errors;
  host_threads config;
  caf::actor_system system{config};
  struct state {
    state() = default;
  };
  const bool at_start = GENERATE(false, true);
  const auto body = [at_start](caf::stateful_actor<state>* self) -> caf::behavior {
    begin_actor(self, "somebody", [&] {
      if (at_start) throw std::runtime_error("it cannot begin");
    });
    return {[](int) { throw std::runtime_error("it cannot go on"); }};
  };
  failure_watch watch;
  auto good = system.spawn([](caf::event_based_actor*) -> caf::behavior { return {[](int) {}}; });
  watch.add(good);
  CHECK_FALSE(watch.why());
  auto bad = system.spawn(body);
  watch.add(bad);
  caf::anon_send(bad, 1);
  REQUIRE(runtime::wait_until([&] { return watch.why().has_value(); }, 10));
  CHECK(*watch.why() == (at_start ? "somebody: it cannot begin" : "somebody: it cannot go on"));
  CHECK(errors.has("it cannot"));
  caf::anon_send_exit(good, caf::exit_reason::user_shutdown);
}
