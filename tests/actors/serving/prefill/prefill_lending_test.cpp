#include "actors/serving/prefill/prefill_fixture.hpp"

// Lendings that differ from their offers: guests that are late, paused or gone.

namespace troupe::actors {

using namespace tests;
using Catch::Matchers::WithinAbs;

TEST_CASE("guests that are late make later promises later") {
  prefill_fixture x;
  x.offer();
  x.signal(0);
  CHECK(x.answer(x.request(1)).empty());
  x.progress(1, prefill_progress::state::held);
  x.sent.clear();
  x.now_s = 13;  // should have ended at 11
  x.offer();
  CHECK_THAT(x.promise_of(x.request(2)), WithinAbs(2 + 1, 1e-6));
  x.progress(1, prefill_progress::state::ended);
}

TEST_CASE("the decoder hears at once that the guest of its prefill is gone") {
  prefill_fixture x;
  x.lend();
  CHECK(x.answer(x.request(1)).empty());
  x.sent.clear();
  prefill_progress gone;
  gone.name = x.name(1);
  gone.now = prefill_progress::state::gone;
  SECTION("because its training is delayed too often") {
    gone.why = {reason::kind::unavailable, "paused_by_delay_budget: ..."};
    x.receive(node_address(0), gone);
    CHECK(x.take<prefill_progress>().size() == 1);
    CHECK(x.guest_of(x.request(2)) == node_address(1));
    gone.name = x.name(2);
    x.receive(node_address(1), gone);
    CHECK(x.answer(x.request(3)) == "paused_by_delay_budget");
    x.signal(0, 1);
    CHECK(x.guest_of(x.request(4)) == node_address(0));
  }
  SECTION("because its time was over") {
    x.progress(1, prefill_progress::state::held);
    x.receive(node_address(0), gone);
    CHECK(x.take<prefill_progress>().size() == 1);
    CHECK(x.controller.promised() == 0);
    CHECK(x.guest_of(x.request(2)) == node_address(0));
  }
  SECTION("because its stage has ended: it gets no more until the stage begins an iteration") {
    x.receive(node_address(0), gone);
    CHECK(x.guest_of(x.request(2)) == node_address(1));
    x.signal(0);  // a repetition
    CHECK(x.guest_of(x.request(3)) == node_address(1));
    x.signal(0, 1);
    CHECK(x.guest_of(x.request(4)) == node_address(0));
  }
}

TEST_CASE("promises allow for how late prefills usually end, plans do not") {
  prefill_fixture x;
  x.lend();
  std::uint64_t number = 0;
  // Prompts of a second in bubbles of ten, one at a time.
  const auto pass = [&](double until_s) {
    for (; x.now_s + 4 < until_s; x.offer()) x.pass(x.now_s + 4);
    x.pass(until_s);
    x.offer();
  };
  const auto end_late = [&](double late_s) {
    pass(20.0 * static_cast<double>(number + 1));
    const auto promised_s = x.promise_of(x.request(++number));
    pass(x.now_s + 11 + late_s);
    x.progress(number, prefill_progress::state::ended);
    return promised_s;
  };
  const double late_s = GENERATE(0.004, 3);
  const bool small = late_s < 1;
  CHECK_THAT(end_late(late_s), WithinAbs(11, 1e-6));
  for (int again = 0; again < 3; ++again)
    CHECK_THAT(end_late(late_s), WithinAbs(11 + (small ? 0 : late_s), 1e-6));
  SECTION("a limit counts from the promise") {
    pass(20.0 * static_cast<double>(number + 1));
    CHECK(x.answer(x.request(++number, 100, 12)) == (small ? "" : "no_bubble_before_deadline"));
    CHECK(x.answer(x.request(++number, 100, 15)).empty());
  }
}

TEST_CASE("only the trainer of a lease that lends by the controller offers its nodes' bubbles") {
  prefill_fixture x;
  const auto other = node_address(1);
  SECTION("another node's offer is no lending, whatever it names") {
    for (const auto forged_lease : {lease, lease_id{1}, lease_id{1} << 40}) {
      auto o = an_offer();
      o.lease = forged_lease, o.trainer = std::uint64_t{1} << 60;
      for (auto& g : o.groups) g.guests[0].stage.lease = forged_lease;
      for (auto& s : o.stages) s.stage.lease = forged_lease;
      x.receive(other, o);
      x.receive(other, stage_signal{{forged_lease, 1, 0}, o.trainer, 0, 20});
      CHECK(x.answer(x.request(forged_lease)) == "no_guest_for_model");
    }
    const auto notified = x.controller.take_rejections();
    REQUIRE(notified.size() == 3);
    CHECK(notified[0].from == other);
    CHECK(notified[0].why.find("lease 7, whose trainer is on another node") != std::string::npos);
    CHECK(notified[1].why.find("which lends none by the controller") != std::string::npos);
  }
  SECTION("nor does it replace or end one that is there") {
    x.lend();
    auto o = an_offer();
    o.trainer = trainer + 1, o.sequence = 99;
    x.receive(other, o);
    o.groups.clear(), o.stages.clear();
    x.receive(other, o);
    CHECK(x.controller.counts().rejected == 2);
    CHECK(x.answer(x.request(1)).empty());
    CHECK(x.controller.promised() == 1);
  }
  SECTION("nodes without a part of the lease have no guests of it") {
    x.leases.lendings[0].nodes = {node_of(x.trainer_node), 0};
    x.state();
    x.lend();
    CHECK(x.controller.counts().rejected == 1);
    CHECK(x.answer(x.request(1)) == "no_guest_for_model");
  }
  SECTION("nor another model's") {
    x.leases.lendings[0].model = "other";
    x.state();
    x.lend();
    CHECK(x.answer(x.request(1)) == "no_guest_for_model");
  }
  SECTION("a lease that is over lends no more, and its promises are broken") {
    x.lend();
    CHECK(x.answer(x.request(1)).empty());
    x.leases.lendings.clear();
    x.state();
    CHECK(x.controller.promised() == 0);
    CHECK(x.controller.counts().lost == 1);
    x.offer();
    CHECK(x.answer(x.request(2)) == "no_guest_for_model");
  }
  SECTION("the same statement again changes nothing, and an older one neither") {
    x.lend();
    CHECK(x.answer(x.request(1)).empty());
    x.state();
    auto older = x.leases;
    older.sequence = 1, older.lendings.clear();
    x.receive(controller_address, older);
    CHECK(x.controller.promised() == 1);
  }
  SECTION("and a node states nothing") {
    auto forged = x.leases;
    forged.sequence = 99, forged.lendings[0].nodes.front() = 1;
    x.receive(other, forged);
    x.receive(other, an_offer());
    CHECK(x.answer(x.request(1)) == "no_guest_for_model");
  }
}

TEST_CASE("only decoders that the controller states get prefills") {
  prefill_fixture x;
  x.lend();
  auto r = x.request(1);
  r.name.lease = 10;
  x.receive(x.decoder, r);
  r = x.request(2);
  r.model = "other";
  x.receive(x.decoder, r);
  r = x.request(3);
  r.name.decoder = node_address(1);
  x.receive(r.name.decoder, r);
  CHECK(x.sent.empty());
  CHECK(x.controller.counts().rejected == 3);
  CHECK(x.controller.take_rejections().size() == 3);
  CHECK(x.answer(x.request(4)).empty());
}

}  // namespace troupe::actors
