#include "actors/control/controller_by_hand.hpp"

#include "actors/control/leases/desired_work.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "messages/domain/work_kind.hpp"

// Jobs that serve a model: what the ledger makes of their ends, and what the controller orders.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

job_spec decoder(std::uint32_t max_restarts = 2) {
  job_spec s;
  s.name = "decoder";
  s.limits.max_restarts = max_restarts;
  s.serve.emplace();
  s.serve->kv_gb = 2;
  s.serve->model = {"m", "/models/m", {}, harness::gpt2()};
  s.model = harness::gpt2();
  s.model.name = "m";
  return s;
}

/// A ledger with one decoder, whose attempts end as the test chooses.
struct one_decoder {
  cluster c = *harness::small_cluster();
  ledger book{c};
  lease_id last = 0;
  double now_s = 100;

  explicit one_decoder(std::uint32_t max_restarts = 2) {
    REQUIRE(book.apply(job_accepted{1, 9, now_s, decoder(max_restarts), "somebody"}));
  }
  void start() {
    lease_granted g;
    g.lease = ++last, g.job = 1, g.at_s = now_s;
    g.parts = {{0, 11, {0}}};
    REQUIRE(book.apply(g));
  }
  void end(lease_outcome how, double after_s) {
    now_s += after_s;
    REQUIRE(book.apply(part_ended{last, 0, now_s, how, 5, 0, "what happened"}));
  }
  void attempt(lease_outcome how, double after_s = 1) { start(), end(how, after_s); }
  const job_record& job() const { return *book.job(1); }
  std::optional<job_state> end_due() const {
    const auto due = book.due(1, now_s);
    return due ? std::optional{due->final_state} : std::nullopt;
  }
};

}  // namespace

TEST_CASE("a decoder that fails is started again, and fails for good after max_restarts in a row") {
  for (const auto how : {lease_outcome::failed, lease_outcome::lost}) {
    one_decoder d{2};
    for (std::uint32_t n = 1; n <= 2; ++n) {
      d.attempt(how);
      CHECK(d.job().state == job_state::waiting);
      CHECK(d.job().progress.losses == n);
      CHECK_FALSE(d.end_due());
    }
    d.attempt(how);
    CHECK(d.end_due() == job_state::failed);
    CHECK_THAT(d.job().detail,
               Catch::Contains("in 3 consecutive attempts of less than 60 s (max_restarts 2)") &&
                   Catch::EndsWith("what happened"));
  }
}

TEST_CASE("a decoder that has served for a while may fail any number of times") {
  one_decoder d{1};
  for (int n = 0; n < 10; ++n) {
    d.attempt(lease_outcome::failed, 1);
    d.attempt(n % 2 == 0 ? lease_outcome::failed : lease_outcome::lost,
              facts_of(work_kind::decoder).proof_s);
    REQUIRE(d.job().state == job_state::waiting);
    REQUIRE(d.job().progress.losses == 0);
  }
  CHECK(d.job().progress.iterations_done == 0);  // it has no iterations, whatever a node reports
  d.attempt(lease_outcome::failed, facts_of(work_kind::decoder).proof_s - 1);
  CHECK_FALSE(d.end_due());
  d.attempt(lease_outcome::failed, facts_of(work_kind::decoder).proof_s - 1);
  CHECK(d.end_due() == job_state::failed);
}

TEST_CASE("with max_restarts 0 the first failure of a decoder is the last") {
  one_decoder d{0};
  d.attempt(lease_outcome::failed);
  CHECK(d.end_due() == job_state::failed);
}

TEST_CASE("a cancelled decoder ends, a preempted one waits") {
  one_decoder d;
  d.start();
  REQUIRE(d.book.apply(lease_revoked{d.last, d.now_s, lease_outcome::preempted, "suspended"}));
  d.end(lease_outcome::preempted, 1);
  CHECK(d.job().state == job_state::waiting);
  CHECK(d.job().progress.losses == 0);
  d.start();
  REQUIRE(d.book.apply(lease_revoked{d.last, d.now_s, lease_outcome::cancelled, "cancelled"}));
  d.end(lease_outcome::cancelled, 1);
  CHECK(d.end_due() == job_state::cancelled);
}

TEST_CASE("programs are not started again when they fail") {
  cluster c = *harness::small_cluster();
  ledger book{c};
  REQUIRE(book.apply(job_accepted{1, 9, 1, harness::small_job("one"), "somebody"}));
  lease_granted g;
  g.lease = g.job = 1;
  g.parts = {{0, 11, {0}}};
  REQUIRE(book.apply(g));
  REQUIRE(book.apply(part_ended{1, 0, 500, lease_outcome::failed, 0, 0, ""}));
  CHECK(book.due(1, 500)->final_state == job_state::failed);
}

TEST_CASE("a ledger with a decoder is the same after compaction") {
  one_decoder d{3};
  d.attempt(lease_outcome::failed);
  d.start();
  ledger copy{d.c};
  for (const auto& e : d.book.snapshot()) REQUIRE(copy.apply(decode_entry(encode(e)).value()));
  CHECK(copy.job(1)->progress.losses == 1);
  CHECK(copy == d.book);
}

TEST_CASE("a decoder's order says what it serves, and neither a program nor a training") {
  one_decoder d;
  d.start();
  const auto w = work_of(d.c, d.book, training_history{}, *d.book.lease(1), 0, true);
  CHECK(w.serve == decoder().serve);
  CHECK(w.command.empty());
  CHECK_FALSE(w.train);
  CHECK(w.devices == std::vector<std::uint16_t>{0});
  CHECK(w.incarnation == 11);
}

TEST_CASE("under every policy a submitted decoder is ordered at a node until it is cancelled") {
  for (const auto name : planners::policy_names()) {
    INFO(name);
    controller_by_hand t{name};
    t.all_report();
    const auto id = t.submit(decoder());
    REQUIRE(id != 0);
    t.pass_round();
    // The smallest sufficient memory: c-0 has RTX2080Ti.
    REQUIRE(t.decoders() == std::vector<node_index>{4});
    const auto s = t.job(id);
    CHECK(s.state == job_state::running);
    CHECK(s.model == "m");
    CHECK(s.iterations == 0);
    CHECK_FALSE(s.eta_s);
    CHECK(s.where == allocation{{4, 1}});
    const auto why = t.ask<explanation>(explain_job{++t.asked, id});
    CHECK_THAT(why.summary, Catch::StartsWith("serving 'm' on GPUs 1 of c-0 (RTX2080Ti)"));
    REQUIRE(why.plans.size() == 1);
    CHECK(why.plans[0].chosen);
    CHECK_THAT(why.plans[0].verdict, Catch::Contains("smallest sufficient memory"));
    t.pass_round();
    CHECK(t.decoders().size() == 1);
    CHECK(t.ask<cancel_reply>(cancel_job{++t.asked, id}).done);
    t.world.run_until(t.world.now_s() + 0.1);
    CHECK(t.decoders().empty());
    t.report(4);
    t.world.run_until(t.world.now_s() + 0.1);
    CHECK(t.job(id).state == job_state::cancelled);
  }
}

TEST_CASE("a decoder that says that it has succeeded has failed, and is started again") {
  controller_by_hand t;
  t.all_report();
  const auto id = t.submit(decoder(0));
  t.pass_round();
  const auto n = t.decoders().at(0);
  part_report p;
  p.lease = t.orders[n].work.at(0).lease;
  p.now = part_report::state::succeeded;
  t.report(n, {p});
  const auto s = t.job(id);
  CHECK(s.state == job_state::failed);
  CHECK_THAT(s.detail, Catch::Contains("the decoder ended although its job was not cancelled"));
}

TEST_CASE("decoders and programs share the GPUs, and a decoder waits until one is idle") {
  controller_by_hand t;
  t.all_report();
  auto small = decoder();
  small.limits.required_gpu_type = "A40";
  for (int i = 0; i < 4; ++i) REQUIRE(t.submit(small) != 0);
  const auto fifth = t.submit(small);
  t.pass_round();
  CHECK(t.decoders() == std::vector<node_index>{2, 2, 3, 3});
  CHECK(t.job(fifth).state == job_state::waiting);
  CHECK(t.job(fifth).waiting_reason == "resources");
  CHECK_THAT(t.ask<explanation>(explain_job{++t.asked, fifth}).summary,
             Catch::StartsWith("waits for an idle GPU of type A40 with more than"));
  const auto program = t.submit(harness::small_job("program", 1'000'000));
  t.pass_round();
  CHECK(t.job(program).state == job_state::running);
  for (const auto& share : t.job(program).where) CHECK((share.node != 2 && share.node != 3));
  CHECK(t.ask<cancel_reply>(cancel_job{++t.asked, 1}).done);
  t.pass_round();
  CHECK(t.job(fifth).state == job_state::running);
}

TEST_CASE("who decodes is stated to gateways on every change, and each heartbeat") {
  controller_by_hand t{"frenzy", [](cluster& c) { c.fronts = {{"front-1", 0, ""}}; }};
  t.all_report();
  std::map<address, serving_leases> stated;  // the latest
  const auto last = [&](address to) {
    for (address g = 1; g <= 3; ++g)
      for (auto& [e, s] : t.take_with_envelopes<serving_leases>(g)) stated[e.to] = s;
    return stated.at(to);
  };
  const auto id = t.submit(decoder());
  REQUIRE(id != 0);
  CHECK(last(1).models.size() == 1);
  t.pass_round();
  REQUIRE(t.decoders().size() == 1);
  const auto n = t.decoders().front();
  const auto lease = t.orders[n].work.at(0).lease;
  for (const address to : {1, 2, 3}) {
    const auto s = last(to);
    CHECK(s.decoders == std::vector<decoder_lease>{{lease, n, 7, 0}});
    CHECK(s.epoch == t.orders[n].epoch);
    CHECK(s.journal == t.orders[n].journal);
  }
  const auto before = last(1).sequence;
  t.world.run_until(t.world.now_s() + 3 * t.cluster_->settings.heartbeat_s);
  CHECK(last(1).sequence >= before + 2);

  auto theirs = decoder();
  theirs.serve->model.folder = "/models/theirs";
  const auto no = t.ask<submit_reply>(submit_job{++t.asked, theirs});
  CHECK(no.job == 0);
  CHECK_THAT(no.why.text, Catch::Contains("model 'm' is served by job 1 from /models/m, and this"));
  CHECK(t.submit(decoder()) != 0);  // a second decoder of the same
}

TEST_CASE("a name is that of one model or of one adapter of one model") {
  controller_by_hand t{"frenzy"};
  t.all_report();
  const auto with = [](const std::string& model, const std::string& adapter, std::uint64_t hash) {
    auto s = decoder();
    s.serve->model.name = s.model.name = model;
    s.serve->adapters = std::vector<served_adapter>{{adapter, "/adapters/" + adapter, hash}};
    return s;
  };
  REQUIRE(t.submit(with("m", "sql", 5)) != 0);
  REQUIRE(t.submit(with("m", "sql", 5)) != 0);  // a second decoder of the same
  const auto why = [&](const job_spec& s) {
    const auto no = t.ask<submit_reply>(submit_job{++t.asked, s});
    CHECK(no.job == 0);
    return no.why.text;
  };
  const auto another = "'sql' is the name of another adapter that job 1 serves";
  CHECK_THAT(why(with("m", "sql", 6)), Catch::Contains(another));
  CHECK_THAT(why(with("n", "sql", 5)), Catch::Contains(another));
  CHECK_THAT(why(with("sql", "x", 5)),
             Catch::Contains("'sql' is the name of an adapter that job 1 serves"));
  CHECK_THAT(why(with("n", "m", 5)), Catch::Contains("'m' is the name of a model that job 1"));
}
