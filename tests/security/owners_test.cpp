#include "actors/worlds/real_host.hpp"
#include "harness/facts.hpp"
#include "planners/policy/policy.hpp"
#include "runtime/host/log.hpp"
#include "security/keyed.hpp"

using namespace troupe;
using namespace troupe::test;

// A real controller, and all holders of a key of its cluster.

namespace {

/// A controller with its journal, and clients that come with a key each.
class controller_world {
 public:
  controller_world() {
    actors::real_host_options o;
    o.cluster = std::make_shared<const cluster>(two_datacenters());
    o.listen = "tcp://127.0.0.1:*";
    o.keys = keys_.path();
    o.state = state_.path();
    auto started = actors::real_host::controller(o, planners::make_policy("frenzy"), true);
    INFO((started ? std::string{} : started.error().text));
    REQUIRE(started);
    controller_ = std::move(*started);
  }

  /// A client with that key; nothing, with the reason, if it is refused.
  expected<std::unique_ptr<actors::real_host>> client(const std::string& key) const {
    actors::real_host_options o;
    o.upstream = controller_->endpoint();
    o.keys = keys_.path();
    o.client_key = key;
    return actors::real_host::client(std::move(o), long_s);
  }

  const key_directory& keys() const { return keys_; }
  std::string endpoint() const { return controller_->endpoint(); }

 private:
  key_directory keys_;
  scratch state_;
  std::unique_ptr<actors::real_host> controller_;
};

template <class Reply>
Reply ask(actors::real_host& who, message m) {
  auto a = who.ask(std::move(m), long_s).reply;
  INFO((a ? std::string{} : a.error().text));
  REQUIRE(a);
  REQUIRE(std::holds_alternative<Reply>(a->first));
  return std::get<Reply>(a->first);
}

}  // namespace

TEST_CASE("a host's key cannot be used as a client's, nor a user's key as a host's") {
  controller_world w;
  for (const auto& name : runtime::key_names(two_datacenters())) {
    INFO(name);
    const bool is_person = name == "client" || name == "operator";
    const auto c = w.client(name);
    CHECK(c.has_value() == is_person);
    if (!c) CHECK(c.error().text.find("is a host's: clients need user keys") != std::string::npos);
  }
  // Nor is a person's key a host's.
  auto o = w.keys().host("dc1/gateway", w.endpoint());
  o.listen.clear();
  std::filesystem::copy_file(w.keys().path() + "/alice.key", w.keys().path() + "/dc1/gateway.key",
                             std::filesystem::copy_options::overwrite_existing);
  auto g = must_open(o);
  g->listen([](const frame&) {});
  const auto greeted = g->wait_until_greeted(long_s);
  REQUIRE_FALSE(greeted);
  CHECK(troupe::test::has_facts(greeted.error().text, {"dc1/gateway", "alice"}));
}

TEST_CASE("others may see a user's job, but not cancel it, suspend it or read its log") {
  controller_world w;
  auto alice = *w.client("alice"), bob = *w.client("bob"), root = *w.client("root");
  const auto job = ask<submit_reply>(*alice, a_job()).job;
  REQUIRE(job != 0);
  const auto seen = ask<query_reply>(*bob, query_jobs{});
  REQUIRE(seen.jobs.size() == 1);
  CHECK(seen.jobs[0].owner == "alice");

  const auto no = ask<cancel_reply>(*bob, cancel_job{0, job});
  CHECK_FALSE(no.done);
  CHECK(no.why.code == reason::kind::refused);
  CHECK(troupe::test::has_facts(no.why.text, {"job 1", "alice", "bob", "cancel"}));
  const auto still_no = ask<suspend_reply>(*bob, suspend_job{0, job, true});
  CHECK_FALSE(still_no.done);
  CHECK(troupe::test::has_facts(still_no.why.text, {"job 1", "alice", "bob", "suspend"}));
  CHECK(troupe::test::has_facts(ask<log_chunk>(*bob, read_log{0, job, 0, 0, 0}).why.text,
                                {"job 1", "alice", "bob", "log"}));
  CHECK(ask<log_chunk>(*alice, read_log{0, job, 0, 0, 0}).why.code == reason::kind::unavailable);
  CHECK(ask<log_chunk>(*root, read_log{0, job, 0, 0, 0}).why.code == reason::kind::unavailable);

  CHECK(ask<cancel_reply>(*alice, cancel_job{0, job}).done);
  const auto second = ask<submit_reply>(*alice, a_job()).job;
  CHECK(ask<cancel_reply>(*root, cancel_job{0, second}).done);
}

TEST_CASE("the arguments of a command are shown to its owner and to operators alone") {
  controller_world w;
  auto alice = *w.client("alice"), bob = *w.client("bob"), root = *w.client("root");
  auto job = a_job();
  job.spec.program.command = {"curl", "-H", "Authorization: secret"};
  const auto alices = ask<submit_reply>(*alice, job).job;
  const auto bobs = ask<submit_reply>(*bob, job).job;
  REQUIRE(alices != 0);
  REQUIRE(bobs != 0);
  const auto words = [](actors::real_host& who, job_id of, message question) {
    const auto reply = ask<query_reply>(who, std::move(question));
    const auto found = std::ranges::find(reply.jobs, of, &job_status::job);
    REQUIRE(found != reply.jobs.end());
    return found->command.size();
  };
  // Twice: replies to questions about all jobs are kept.
  for (int i = 0; i < 2; ++i) {
    for (const auto of : {alices, bobs}) {
      INFO("job " << of);
      const std::size_t to_alice = of == alices ? 3 : 1, to_bob = of == bobs ? 3 : 1;
      for (const message& q : {message{query_jobs{}}, message{query_jobs{0, of}}}) {
        CHECK(words(*alice, of, q) == to_alice);
        CHECK(words(*bob, of, q) == to_bob);
        CHECK(words(*root, of, q) == 3);
      }
      CHECK(ask<explanation>(*alice, explain_job{0, of}).job.command.size() == to_alice);
      CHECK(ask<explanation>(*bob, explain_job{0, of}).job.command.size() == to_bob);
      CHECK(ask<explanation>(*root, explain_job{0, of}).job.command.size() == 3);
    }
  }
}

TEST_CASE("a job description of more than a megabyte is refused with a sentence and not stored") {
  controller_world w;
  auto alice = *w.client("alice");
  auto large = a_job();
  large.spec.program.environment["SIZE"] = std::string(2 << 20, 'x');
  const auto reply = ask<submit_reply>(*alice, large);
  CHECK(reply.job == 0);
  CHECK(reply.why.text.find("the controller accepts 1048576") != std::string::npos);
  CHECK(ask<query_reply>(*alice, query_jobs{}).jobs.empty());
  large.spec.program.environment.clear();
  for (char name = 'A'; name < 'A' + 16; ++name)
    large.spec.program.environment[std::string(1, name)] = std::string(60'000, 'x');
  CHECK(ask<submit_reply>(*alice, large).job == 1);
}

TEST_CASE(
    "hosts submit nothing, and cannot forge frames of clients, other datacenters or trainers") {
  controller_world w;
  auto root = *w.client("root");
  const auto job = ask<submit_reply>(*root, a_job()).job;
  auto o = w.keys().host("dc1/gateway", w.endpoint());
  o.listen.clear();
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  const auto say = [&](address from, const message& m) {
    REQUIRE(gateway->send(0, encode(from, 0, m)));
  };
  const auto report = [&](address node, std::uint64_t sequence) {
    node_report r;
    r.incarnation = 7, r.sequence = sequence;
    r.cluster = o.cluster->version;  // the controller's, with its welcome
    say(node, r);
  };
  // Both nodes are there; the job gets a lease on one of them.
  std::optional<std::pair<address, lease_id>> leased;
  std::uint64_t sequence = 0;
  REQUIRE(eventually([&] {
    ++sequence;
    report(a0, sequence);
    report(a1, sequence);
    for (const auto& f : at_gateway.take()) {
      const auto m = decode(f.header.bytes());
      const auto* orders = m ? std::get_if<node_orders>(&m->second) : nullptr;
      if (orders && !orders->work.empty())
        leased = std::pair{m->first.to, orders->work.front().lease};
    }
    return leased.has_value();
  }));
  const auto [trainer, lease] = *leased;
  const address bystander = trainer == a0 ? a1 : a0;

  const auto schedule_shown = [&] {
    return ask<training_reply>(*root, query_training{0, job}).report.schedule;
  };
  training_report t;
  t.lease = lease, t.job = job, t.sequence = 1, t.schedule = "forged";
  t.events = {"forged"};
  for (const address from : {bystander, b0, dc1, client_1, controller_address}) say(from, t);
  auto of_another_lease = t;
  of_another_lease.lease = 1ULL << 63;
  say(trainer, of_another_lease);
  // Whatever a host sends in any name, it submits and cancels nothing.
  for (const address from : {a0, a1, b0, dc1, dc2, client_1, first_client_address})
    for (const message& m : {message{a_job()}, message{cancel_job{9, job}}}) say(from, m);
  CHECK(schedule_shown().empty());
  t.schedule = "true", t.events = {"true"};
  say(trainer, t);
  CHECK(eventually([&] { return schedule_shown() == "true"; }));
  const auto all = ask<query_reply>(*root, query_jobs{});
  REQUIRE(all.jobs.size() == 1);
  CHECK(all.jobs[0].state == job_state::running);
}

TEST_CASE("a client's frames reach no node, and cannot have another client's address") {
  controller_world w;
  auto root = *w.client("root");
  auto o = w.keys().host("dc1/gateway", w.endpoint());
  o.listen.clear();
  auto gateway = must_open(o);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  auto alice = must_open(w.keys().client("alice", w.endpoint()));
  mailbox at_alice{alice};
  REQUIRE(alice->wait_until_greeted(long_s));
  const auto me = alice->self();
  for (const address from : {me, me - 1, controller_address, a0, dc1})
    for (const address to : {a0, dc1, me, controller_address})
      for_each_message([&](const message& m) {
        if (type_of(m) <= last_session_type || (from == me && to == controller_address)) return;
        REQUIRE(eventually([&] { return alice->send(0, encode(from, to, m)); }));
      });
  // After all of that its own request is answered, and the gateway has received none of the others.
  alice->send(0, encode(me, 0, query_jobs{77, 0}));
  REQUIRE(eventually([&] {
    for (const auto& f : at_alice.take())
      if (const auto m = decode(f.header.bytes());
          m && std::holds_alternative<query_reply>(m->second))
        return true;
    return false;
  }));
  for (const auto& f : at_gateway.take()) CHECK(peek(f.header.bytes())->from == controller_address);
  // A node's log finds its way through the controller, and nothing else does.
  for (const message& m :
       {message{node_report{}}, message{query_reply{}}, message{log_chunk{5, 0, 0, false, {}}}})
    gateway->send(0, encode(a0, me, m));
  REQUIRE(at_alice.has(1));
  const auto came = at_alice.take();
  CHECK(peek(came[0].header.bytes())->type == type_id<log_chunk>);
}

TEST_CASE("a node follows only its controller's orders") {
  key_directory keys;
  auto g = keys.host("dc1/gateway");
  auto gateway = must_open(g);
  mailbox at_gateway{gateway};
  scratch state;
  actors::real_host_options o;
  o.cluster = std::make_shared<const cluster>(two_datacenters());
  o.upstream = gateway->endpoint();
  o.keys = keys.path();
  o.state = state.path();
  auto node = actors::real_host::node(o, 0);
  REQUIRE(node);
  std::optional<node_report> last;
  const auto receive = [&] {
    for (const auto& f : at_gateway.take())
      if (auto m = decode(f.header.bytes()); m && std::holds_alternative<node_report>(m->second))
        last = std::get<node_report>(m->second);
    return last.has_value();
  };
  REQUIRE(eventually(receive));
  node_orders orders;
  orders.epoch = 1, orders.incarnation = last->incarnation;
  const auto order = [&](address from, const std::string& file) {
    ++orders.sequence;
    work_order work;
    work.lease = orders.sequence, work.incarnation = last->incarnation;
    work.devices = {0};
    work.command = {"touch", state.path(file)};
    work.working_directory = state.path();
    orders.work = {work};
    REQUIRE(eventually([&] { return gateway->send(a0, encode(from, a0, orders)); }));
  };
  for (const address from : {client_1, a1, b0, dc1, dc2}) order(from, "forged");
  order(controller_address, "ordered");
  REQUIRE(eventually([&] { return std::filesystem::exists(state.path("ordered")); }));
  CHECK_FALSE(std::filesystem::exists(state.path("forged")));
  CHECK(eventually([&] { return receive() && last->orders == orders.sequence; }));
}
