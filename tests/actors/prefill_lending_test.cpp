#include "actors/prefill_by_hand.hpp"

// Lendings that are not as their offers said: guests that are late, paused or gone.

namespace troupe::actors {

using namespace prefill_test;
using Catch::Matchers::WithinAbs;

TEST_CASE("guests that are late make later promises later") {
  by_hand x;
  x.offer();
  x.signal(0);
  CHECK(x.answer(x.request(1)).empty());
  x.progress(1, prefill_progress::state::held);
  x.out.clear();
  x.now_s = 13;  // should have ended at 11
  x.offer();
  x.say(x.decoder, x.request(2));
  CHECK_THAT(x.take<prefill_reply>().at(0).promised_s, WithinAbs(2 + 1, 1e-6));
  x.progress(1, prefill_progress::state::ended);
}

TEST_CASE("the decoder hears at once that the guest of its prefill is gone") {
  by_hand x;
  x.lend();
  CHECK(x.answer(x.request(1)).empty());
  x.out.clear();
  prefill_progress gone;
  gone.name = x.name(1);
  gone.now = prefill_progress::state::gone;
  SECTION("because its training is delayed too often") {
    gone.why = {reason::kind::unavailable, "paused_by_delay_budget: ..."};
    x.say(node_address(*x.c, 0), gone);
    CHECK(x.take<prefill_progress>().size() == 1);
    CHECK(x.guest_of(x.request(2)) == node_address(*x.c, 1));
    gone.name = x.name(2);
    x.say(node_address(*x.c, 1), gone);
    CHECK(x.answer(x.request(3)) == "paused_by_delay_budget");
    x.signal(0, 1);
    CHECK(x.guest_of(x.request(4)) == node_address(*x.c, 0));
  }
  SECTION("because its time was over") {
    x.progress(1, prefill_progress::state::held);
    x.say(node_address(*x.c, 0), gone);
    CHECK(x.take<prefill_progress>().size() == 1);
    CHECK(x.controller.promised() == 0);
    CHECK(x.guest_of(x.request(2)) == node_address(*x.c, 0));
  }
  SECTION("because its stage has ended: it gets no more until the stage begins an iteration") {
    x.say(node_address(*x.c, 0), gone);
    CHECK(x.guest_of(x.request(2)) == node_address(*x.c, 1));
    x.signal(0);  // a repetition
    CHECK(x.guest_of(x.request(3)) == node_address(*x.c, 1));
    x.signal(0, 1);
    CHECK(x.guest_of(x.request(4)) == node_address(*x.c, 0));
  }
}

TEST_CASE("promises allow for how late prefills usually end, plans do not") {
  by_hand x;
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

}  // namespace troupe::actors
