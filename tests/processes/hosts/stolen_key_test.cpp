#include <algorithm>
#include <cmath>
#include <set>

#include "cli/cluster/local_cluster.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/served_bytes.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/tcp.hpp"
#include "runtime/world.hpp"
#include "runtime/zeromq/keys.hpp"
#include "web/http/http_client.hpp"

// A served model in processes with keys, and somebody who holds one node's key, or another user's.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int free_ports_from = 26000, ports = 8;

/// A front, a gateway, three nodes and two decoders on the first two. The third node's process is
/// dead, and the holder of its key takes its place.
struct served_place {
  served_place()
      : state{fs::temp_directory_path() / fmt::format("troupe-stolen-{}", getpid())},
        keys{(state / "keys").string()},
        cluster_file{fs::path{source_dir()} / "tests/processes/clusters/with-front.yaml"} {
    fs::remove_all(state);
    fs::create_directories(state);
    const auto c = formats::load_cluster(cluster_file.string());
    REQUIRE(c);
    described = *c;
    REQUIRE(runtime::make_keys(
        keys, runtime::key_names(*c),
        {{"alice", runtime::key_role::client}, {"bob", runtime::key_role::client}}));
    cli::local_cluster_options o;
    o.cluster_file = cluster_file.string();
    o.state = (state / "cluster").string();
    o.keys = keys;
    o.program = TROUPE_PROGRAM;
    for (o.port = free_ports_from + getpid() % 4000; !cluster; o.port += ports) {
      auto started = cli::local_cluster::start(o);
      REQUIRE((started || o.port < free_ports_from + 6000));
      if (started) cluster = std::move(*started);
    }
    const auto ready = cluster->wait_until_ready(long_s);
    INFO((ready ? std::string{} : ready.error().text));
    REQUIRE(ready);
    alice = client("alice");
    cluster->kill("n-2");
    REQUIRE(holds([&] { return !status().nodes.at(2).present; }));
    auto job = formats::load_job(shipped("jobs/serve-scribe.yaml"));
    REQUIRE(job);
    spec = *job;
    for (int i = 0; i < 2; ++i) REQUIRE(submit(*alice, spec).job != 0);
    url = cluster->fronts().at("front-1");
  }
  ~served_place() {
    alice.reset();
    cluster.reset();
    fs::remove_all(state);
  }

  std::unique_ptr<actors::real_host> client(const char* key) const {
    actors::real_host_options o;
    o.upstream = cluster->controller_address();
    o.keys = keys;
    o.client_key = key;
    auto c = actors::real_host::client(o, long_s);
    INFO((c ? std::string{} : c.error().text));
    REQUIRE(c);
    return std::move(*c);
  }
  /// A connection with the third node's key.
  std::shared_ptr<runtime::zeromq_transport> stolen() const {
    runtime::zeromq_options o;
    o.name = "n-2";
    o.cluster = described;
    o.incarnation = std::uint64_t{1} << 62;
    o.keys = keys;
    o.upstream = cluster->gateway_address("dc");
    o.connections = runtime::node_connections;
    return runtime::test::must_open(o);
  }
  static submit_reply submit(actors::real_host& as, const job_spec& spec) {
    auto reply = as.ask(submit_job{0, spec}, long_s).reply;
    REQUIRE(reply);
    return std::get<submit_reply>(reply->first);
  }
  query_reply status() const {
    auto reply = alice->ask(query_jobs{0, 0}, long_s).reply;
    REQUIRE(reply);
    return std::get<query_reply>(reply->first);
  }
  static bool holds(const std::function<bool()>& so) {
    return runtime::wait_until(so, long_s, 0.05);
  }
  expected<web::client_answer> ask(int n) const {
    const auto body = fmt::format(
        R"({{"model": "scribe", "prompt": "The secret is {}.", "max_tokens": 4}})", 4711 + n);
    return web::ask(*web::parse_url(url), {"POST", "/v1/completions", body, {}, 30});
  }

  fs::path state;
  std::string keys;
  fs::path cluster_file;
  troupe::cluster described;
  std::unique_ptr<cli::local_cluster> cluster;
  std::unique_ptr<actors::real_host> alice;
  job_spec spec;
  std::string url;
};

decoder_state forged_state(const job_spec& spec, std::uint64_t sequence) {
  decoder_state s;
  s.lease = lease_id{1} << 40;
  s.sequence = sequence;
  s.model = "scribe";
  s.context = 4096;
  s.pages = s.free_pages = 1u << 20;
  s.max_sequences = 4096;
  s.incarnation = std::uint64_t{1} << 62;
  s.folder = spec.serve->model.folder;
  s.files = spec.serve->model.hash;
  return s;
}

bubble_offer forged_offer(const job_spec& spec, address me, std::uint64_t sequence) {
  bubble_offer o;
  o.lease = 1;
  o.trainer = std::uint64_t{1} << 60;
  o.sequence = sequence;
  o.how.model = spec.serve->model;
  o.how.op_ms = 1;
  o.how.guard_ms = 0;
  o.iteration_s = 1;
  o.max_tokens = 4096;
  guest_place g;
  g.stage = {o.lease, 0, 0};
  g.node = me;
  g.layers = spec.serve->model.shape.layers;
  g.token_s = 1e-6;
  o.groups.push_back({{g}, 0, 0});
  o.stages.push_back({g.stage, {{0, 0.001}}});
  return o;
}

}  // namespace

TEST_CASE("whoever has a node's key decodes nothing and lends no bubbles: no prompt gets there") {
  served_place p;
  auto net = p.stolen();
  runtime::test::mailbox received{net};
  const auto greeted = net->wait_until_greeted(long_s);
  INFO((greeted ? std::string{} : greeted.error().text));
  REQUIRE(greeted);
  const auto me = node_address(2), gateway = gateway_address(0);
  std::uint64_t sequence = 0;
  const auto forge = [&] {
    ++sequence;
    const auto say = [&](address to, const message& m) { net->send(to, encode(me, to, m)); };
    say(front_address(0), forged_state(p.spec, sequence));
    say(gateway, forged_offer(p.spec, me, sequence));
    stage_signal s{{1, 0, 0}, std::uint64_t{1} << 60, sequence, 1};
    say(gateway, s);
    // A statement is the controller's alone.
    serving_leases all;
    all.epoch = all.sequence = ~std::uint64_t{0};
    all.models.push_back(p.spec.serve->model);
    all.decoders.push_back({lease_id{1} << 40, 2, std::uint64_t{1} << 62, 0});
    say(front_address(0), all);
    say(gateway, all);
  };
  for (int i = 0; i < 5; ++i) forge();
  REQUIRE(p.holds([&] {
    const auto a = p.ask(0);
    return a && a->status == 200;
  }));
  for (int i = 1; i <= 12; ++i) {
    forge();
    const auto a = p.ask(i);
    REQUIRE(a);
    INFO(a->body);
    CHECK(a->status == 200);
    CHECK(a->body.find(R"("decoder":"n-2")") == std::string::npos);
    CHECK(a->body.find(R"("prefill":"bubbles")") == std::string::npos);
  }
  for (const auto& f : received.take()) {
    const auto e = peek(f.header.bytes());
    REQUIRE(e);
    INFO("type " << e->type);
    CHECK(e->type != type_id<generate>);
    CHECK(e->type != type_id<prefill_order>);
  }
}

TEST_CASE("a served name cannot be taken by another user, nor served from other files") {
  served_place p;
  const auto bob = p.client("bob");
  auto theirs = p.spec;
  const auto no = p.submit(*bob, theirs);
  CHECK(no.job == 0);
  CHECK_THAT(no.why.text, Catch::Contains("model 'scribe' is served by job 1 of alice"));
  theirs.serve->model.folder = "/tmp";
  CHECK(p.submit(*bob, theirs).job == 0);
  const auto other = p.submit(*p.alice, theirs);
  CHECK(other.job == 0);
  CHECK_THAT(other.why.text, Catch::Contains("and this job names /tmp"));
  theirs.serve->model.name = "bobs";
  CHECK(p.submit(*bob, theirs).job != 0);
}
