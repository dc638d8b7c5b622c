#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "actors/serving/prefill/prefill_fixture.hpp"
#include "messages/base/random.hpp"
#include "messages/base/time.hpp"

namespace troupe::actors {

using namespace tests;
using Catch::Matchers::WithinAbs;

TEST_CASE("a prefill is promised at once, and ordered until the guest has it") {
  prefill_fixture x;
  x.lend();
  x.now_s = 1;
  const auto reply = x.reply_to(x.request(1));
  CHECK(reply.declined.text.empty());
  CHECK_THAT(reply.promised_s, WithinAbs(10, 1e-6));  // from 10 to 11
  CHECK(reply.guests == std::vector<address>{node_address(0)});
  const auto order = x.only<prefill_order>();
  CHECK(order.name == x.name(1));
  CHECK(order.tokens == 100);
  CHECK(order.sequence > std::uint64_t{5} << 32);
  CHECK_THAT(order.latest_s, WithinAbs(22, 1e-6));
  x.pass(1.35);
  CHECK(x.take<prefill_order>().size() == 3);
  x.progress(1, prefill_progress::state::held);
  x.pass(4);
  CHECK(x.take<prefill_order>().empty());
  x.progress(1, prefill_progress::state::ended);
  CHECK(x.controller.promised() == 0);
  CHECK(x.controller.counts().ended == 1);
  REQUIRE(x.sent.size() == 1);
  CHECK(x.only<prefill_progress>(x.decoder).now == prefill_progress::state::ended);
}

TEST_CASE("prompts of a group follow each other, and free groups come first") {
  prefill_fixture x;
  x.lend();
  x.receive(x.decoder, x.request(1, 500));
  x.receive(x.decoder, x.request(2, 300));
  x.receive(x.decoder, x.request(3, 100));
  const auto replies = x.take<prefill_reply>();
  REQUIRE(replies.size() == 3);
  CHECK_THAT(replies[0].promised_s, WithinAbs(15, 1e-6));
  CHECK_THAT(replies[1].promised_s, WithinAbs(13, 1e-6));
  CHECK_THAT(replies[2].promised_s, WithinAbs(14, 1e-6));
  const auto orders = x.take<prefill_order>();
  CHECK(orders[2].sequence > orders[1].sequence);
}

TEST_CASE("what is not promised is declined with the reason") {
  prefill_fixture x;
  CHECK(x.answer(x.request(1)) == "no_guest_for_model");
  auto offer = an_offer();
  offer.max_tokens = 5000;
  x.receive(x.trainer_node, offer);
  CHECK(x.answer(x.request(2)) == "timetable_unknown");
  x.signal(0);
  x.leases.models.push_back(harness::model_named("another"));
  x.leases.decoders.push_back({10, 0, 1, 1});
  x.state();
  auto other = x.request(3);
  other.name.lease = 10;
  other.model = "another";
  CHECK(x.answer(other) == "no_guest_for_model");
  CHECK(x.answer(x.request(4, 100, 5)) == "no_bubble_before_deadline");
  CHECK(x.answer(x.request(5, 100, 10.5)) == "no_bubble_before_deadline");
  CHECK(x.answer(x.request(6, 100, 11.5)).empty());
  CHECK(x.answer(x.request(7, 5001)) == "guest_memory");
  CHECK(x.controller.counts().declined.at("no_bubble_before_deadline") == 2);
}

TEST_CASE("a declined request stays declined, also when it is repeated") {
  prefill_fixture x;
  CHECK(x.answer(x.request(1)) == "no_guest_for_model");
  x.lend();
  CHECK(x.answer(x.request(1)) == "no_guest_for_model");
  CHECK(x.controller.promised() == 0);
}

TEST_CASE("a repeated request gets its promise again and is not ordered twice") {
  prefill_fixture x;
  x.lend();
  CHECK(x.answer(x.request(1)).empty());
  x.progress(1, prefill_progress::state::held);
  x.sent.clear();
  x.now_s = 4;
  CHECK_THAT(x.promise_of(x.request(1)), WithinAbs(7, 1e-6));
  CHECK(x.take<prefill_order>().empty());
  CHECK(x.controller.promised() == 1);
}

TEST_CASE("a cancelled prefill is over, and guests are told until they answer") {
  prefill_fixture x;
  x.lend();
  CHECK(x.answer(x.request(1)).empty());
  CHECK(x.answer(x.request(2)).empty());
  CHECK(x.answer(x.request(3)).empty());  // after 1, on the first guest
  x.sent.clear();
  x.now_s = 1;
  x.receive(x.decoder, cancel_prefill{x.name(1)});
  CHECK(x.only<prefill_progress>().now == prefill_progress::state::gone);
  CHECK(x.take<cancel_prefill>().size() == 1);
  x.pass(1.25);
  CHECK(x.take<cancel_prefill>().size() == 2);
  x.progress(1, prefill_progress::state::gone);
  x.pass(2);
  CHECK(x.take<cancel_prefill>().empty());
  x.sent.clear();
  SECTION("its time is free") {
    CHECK_THAT(x.promise_of(x.request(4)), WithinAbs(10, 1e-6));
  }
  SECTION("a late request for it is not answered") {
    x.receive(x.decoder, x.request(1));
    CHECK(x.sent.empty());
  }
  SECTION("one that was cancelled before it arrived does not begin") {
    x.receive(x.decoder, cancel_prefill{x.name(8)});
    x.sent.clear();
    x.receive(x.decoder, x.request(8));
    CHECK(x.sent.empty());
  }
}

TEST_CASE("messages that their sender may not send change nothing") {
  prefill_fixture x;
  x.lend();
  const auto other = node_address(1), far = node_address(3);
  x.receive(other, x.request(1));
  auto theirs = x.request(2);
  theirs.name.decoder = far;
  x.receive(far, theirs);
  x.receive(x.decoder, x.request(3, 0));
  x.receive(x.decoder, x.request(4, 2'000'000));
  x.receive(x.decoder, x.request(5), payload{std::vector<std::byte>(399)});
  auto endless = x.request(6);
  endless.within_s = -never;
  x.receive(x.decoder, endless);
  CHECK(x.sent.empty());
  CHECK(x.controller.counts().rejected == 6);

  CHECK(x.answer(x.request(7)).empty());
  x.sent.clear();
  x.receive(other, cancel_prefill{x.name(7)});
  prefill_progress ended;
  ended.name = x.name(7);
  ended.now = prefill_progress::state::ended;
  x.receive(other, ended);
  ended.guest = 1;
  x.receive(node_address(0), ended);
  x.receive(other, stage_signal{{lease, 0, 0}, trainer, 9, 0});
  CHECK(x.sent.empty());
  CHECK(x.controller.promised() == 1);
  CHECK(x.controller.counts().rejected == 10);
}

TEST_CASE("a promise allows for what the guest has measured of its own operations") {
  prefill_fixture x;
  x.lend();
  const auto measured = [&](std::uint64_t iteration, double factor) {
    x.now_s = 20.0 * static_cast<double>(iteration);
    for (std::uint32_t pipeline : {0, 1})
      x.receive(node_address(pipeline),
                stage_signal{{lease, pipeline, 0}, trainer, iteration, 0, factor});
  };
  const auto promised_s = [&](std::uint64_t number) {
    const auto s = x.promise_of(x.request(number, 64));
    x.receive(x.decoder, cancel_prefill{x.name(number)});
    return s - 10;  // the bubble begins then
  };
  measured(1, 1);
  CHECK_THAT(promised_s(1), WithinAbs(0.64, 1e-3));
  measured(2, 5);
  CHECK_THAT(promised_s(2), WithinAbs(3.2, 1e-3));
  measured(3, 5.1);  // too little for a new plan
  CHECK_THAT(promised_s(3), WithinAbs(3.2, 1e-3));
  measured(4, 0.5);
  CHECK_THAT(promised_s(4), WithinAbs(0.32, 1e-3));
  const auto before = x.controller.counts().rejected;
  std::uint64_t iteration = 4;
  for (const double nonsense : {0.0, -1.0, 1e9, never, std::nan("")})
    measured(++iteration, nonsense);
  CHECK(x.controller.counts().rejected == before + 10);
  CHECK_THAT(promised_s(5), WithinAbs(0.32, 1e-3));
}

TEST_CASE("offers that make no sense are refused") {
  prefill_fixture x;
  const auto refused = [&](const std::function<void(bubble_offer&)>& spoil) {
    auto o = an_offer();
    spoil(o);
    const auto before = x.controller.counts().rejected;
    x.receive(x.trainer_node, o);
    CHECK(x.answer(x.request(before + 1)) == "no_guest_for_model");
    return x.controller.counts().rejected == before + 1;
  };
  CHECK(refused([](auto& o) { o.iteration_s = 0; }));
  CHECK(refused([](auto& o) { o.iteration_s = never; }));
  CHECK(refused([](auto& o) { o.how.rule = "psychic"; }));
  CHECK(refused([](auto& o) { o.how.op_ms = -1; }));
  CHECK(refused([](auto& o) { o.stages.pop_back(); }));
  CHECK(refused([](auto& o) { o.stages[0].busy.clear(); }));
  CHECK(refused([](auto& o) { std::swap(o.stages[0].busy[0], o.stages[0].busy[1]); }));
  CHECK(refused([](auto& o) { o.stages[0].busy[1].end_s = 3; }));
  CHECK(refused([](auto& o) { o.groups[0].guests.clear(); }));
  CHECK(refused([](auto& o) { o.groups[0].guests[0].layers = 0; }));
  CHECK(refused([](auto& o) { o.groups[0].guests[0].token_s = -1; }));
  CHECK(refused([](auto& o) { o.groups[0].guests[0].stage.lease = 8; }));
  CHECK(refused([](auto& o) { o.groups[1].guests[0] = o.groups[0].guests[0]; }));
  CHECK(refused([&](auto& o) { o.groups[0].guests[0].node = node_address(3); }));
}

TEST_CASE("silence of a lease's duration ends the lending and its promises") {
  prefill_fixture x;
  x.lend();
  CHECK(x.answer(x.request(1)).empty());
  x.progress(1, prefill_progress::state::held);
  x.pass(4.9);
  x.sent.clear();
  SECTION("unless the trainer repeats its offer") {
    x.offer();
    x.pass(9.8);
    CHECK(x.controller.promised() == 1);
  }
  SECTION("else decoder and guest are told") {
    x.pass(5.1);
    CHECK(x.controller.promised() == 0);
    CHECK(x.only<prefill_progress>().now == prefill_progress::state::gone);
    CHECK(!x.take<cancel_prefill>().empty());
    CHECK(x.controller.counts().lost == 1);
    CHECK(x.answer(x.request(2)) == "no_guest_for_model");
  }
}

TEST_CASE("a new timetable keeps promises, a new trainer breaks them") {
  prefill_fixture x;
  x.lend();
  CHECK(x.answer(x.request(1)).empty());
  x.sent.clear();
  auto next = an_offer();
  next.sequence = 2;
  SECTION("new times") {
    for (auto& s : next.stages) s.busy = {{0, 4}, {4, 14}};
    x.receive(x.trainer_node, next);
    CHECK(x.controller.promised() == 1);
    CHECK_THAT(x.promise_of(x.request(2)), WithinAbs(15, 1e-6));
  }
  SECTION("an older one changes nothing") {
    next.sequence = 0;
    next.stages[0].busy = {{0, 4}, {4, 14}};
    x.receive(x.trainer_node, next);
    CHECK_THAT(x.promise_of(x.request(2)), WithinAbs(11, 1e-6));
  }
  SECTION("a restarted trainer") {
    next.trainer = trainer + 1;
    x.receive(x.trainer_node, next);
    CHECK(x.controller.promised() == 0);
    CHECK(x.take<prefill_progress>().size() == 1);
    CHECK(x.answer(x.request(2)) == "timetable_unknown");
  }
  SECTION("no more groups") {
    next.groups.clear();
    next.stages.clear();
    x.receive(x.trainer_node, next);
    CHECK(x.controller.promised() == 0);
    CHECK(x.answer(x.request(2)) == "no_guest_for_model");
  }
}

TEST_CASE("a stage that says when it began moves its windows") {
  prefill_fixture x;
  x.offer();
  x.signal(0);
  x.now_s = 23;
  x.signal(0, 1, 0.5);  // its iteration began at 22.5
  x.signal(0, 1, 2.5);  // repeated
  CHECK_THAT(x.promise_of(x.request(1)), WithinAbs(32.5 + 1 - 23, 1e-6));
}

TEST_CASE("no bubble of the first iteration is promised, in which guests compute nothing yet") {
  prefill_fixture x;
  x.offer();
  x.signal(0, 0, 0);
  CHECK_THAT(x.promise_of(x.request(1)), WithinAbs(20 + 10 + 1, 1e-6));
}

TEST_CASE("a promise that nobody speaks of any more expires") {
  prefill_fixture x;
  x.lend();
  CHECK(x.answer(x.request(1)).empty());
  for (int i = 1; i <= 30; ++i) {
    x.pass(i);
    x.offer();
  }
  CHECK(x.controller.promised() == 0);
  CHECK(x.controller.counts().expired == 1);
  CHECK(x.controller.next_s() > 30);
}

TEST_CASE("under look-ahead a bubble's orders are sent just before they can be executed") {
  prefill_fixture x;
  auto o = an_offer();
  o.how.rule = "look-ahead";
  o.groups.pop_back();
  x.receive(x.trainer_node, o);
  x.signal(0);
  // A bubble of 10 s: 7 s, then 4 s, then 3 s. The first and the last fill it.
  CHECK(x.answer(x.request(1, 700)).empty());
  CHECK(x.answer(x.request(2, 400)).empty());
  CHECK(x.answer(x.request(3, 299)).empty());
  CHECK(x.take<prefill_order>().empty());
  for (double s = 4; s < 40; s += 4) {
    x.pass(s);
    x.receive(x.trainer_node, o);
    for (const auto& order : x.take<prefill_order>()) {
      x.progress(order.name.number, prefill_progress::state::held);
      CHECK(order.name.number == (s <= 12 ? 1 : s <= 20 ? 3 : 2));
    }
  }
}

}  // namespace troupe::actors
