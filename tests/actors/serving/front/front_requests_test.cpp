#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

#include "actors/serving/front/front_fixture.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

TEST_CASE("a decoder that the controller has not stated gets no request, and is counted") {
  front_fixture f;
  decoder_state forged;
  forged.lease = lease_id{1} << 40, forged.sequence = 1, forged.model = "m", forged.context = 256;
  forged.pages = forged.free_pages = 1u << 20, forged.max_sequences = 4096;
  f.front.on_message(a1, forged);
  CHECK(f.front.refused() == 0);  // the front does not know yet
  f.state(a0, 1);
  f.front.on_message(a1, forged);
  CHECK(f.front.refused() == 1);
  f.submit(7);
  CHECK(f.count<generate>(a1) == 0);
  CHECK(f.count<generate>(a0) == 1);

  // Nor do others state decoders.
  serving_leases theirs;
  theirs.epoch = 99, theirs.models.push_back(harness::model_named("m"));
  theirs.decoders.push_back({forged.lease, node_of(a1), 0, 0});
  for (const auto from : {a1, b0, address{1}, this_front}) f.front.on_message(from, theirs);
  forged.sequence = 2;
  f.front.on_message(a1, forged);
  CHECK(f.front.decoders().all().size() == 1);
}

TEST_CASE("requests of a decoder whose lease is over go on elsewhere at once") {
  front_fixture f;
  f.state(a0, 1), f.state(b0, 2);
  f.submit(7);
  f.answer(a0, 0, {5, 6});
  f.leases.erase({a0, 1});
  f.state_leases();
  CHECK(f.latest<generate>(b0).first.replay == 2);
  f.answer(a0, 2, {99});
  CHECK(f.received[7].tokens == tokens{5, 6});
}

TEST_CASE("a request is repeated until it is answered, with the same body") {
  front_fixture f;
  f.state(a0, 1);
  f.submit(7);
  const auto first = f.latest<generate>(a0);
  CHECK(first.first.name == request_name{this_front, 3, 7, 1});
  CHECK(first.first.lease == 1);
  CHECK(tokens_of(first.second) == tokens{10, 20, 30});
  f.wait(1);
  CHECK(f.count<generate>(a0) == 3);
  CHECK(f.latest<generate>(a0).first == first.first);
  CHECK(tokens_of(f.latest<generate>(a0).second) == tokens{10, 20, 30});
  f.answer(a0, 0, {});
  f.wait(1);
  CHECK(f.count<generate>(a0) == 3);
}

TEST_CASE("tokens are told in order and once, whatever is repeated, lost or late") {
  front_fixture f;
  f.state(a0, 1);
  f.submit(7);
  f.answer(a0, 0, {5, 6});
  CHECK(f.latest<generated_ack>(a0).first == generated_ack{{this_front, 3, 7, 1}, 1, 2, false});
  f.answer(a0, 3, {8});  // the third is lost
  CHECK(f.latest<generated_ack>(a0).first.tokens == 2);
  f.answer(a0, 0, {5, 6});
  f.answer(a0, 1, {6, 7, 8});
  CHECK(f.received[7].tokens == tokens{5, 6, 7, 8});
  f.answer(a0, 5, {10}, ending::length);  // its end comes too early
  CHECK(f.received[7].ends.empty());
  f.answer(a0, 2, {7, 8, 9, 0}, ending::stop);
  CHECK(f.latest<generated_ack>(a0).first == generated_ack{{this_front, 3, 7, 1}, 1, 6, true});
  f.answer(a0, 2, {7, 8, 9, 0}, ending::stop);
  CHECK(f.latest<generated_ack>(a0).first.finished);
  CHECK(f.received[7].tokens == tokens{5, 6, 7, 8, 9, 0});
  REQUIRE(f.received[7].ends.size() == 1);
  CHECK(f.received[7].ends[0].finish == ending::stop);
  CHECK_FALSE(f.front.is_busy());
}

TEST_CASE("what a decoder must not say is ignored") {
  front_fixture f;
  f.state(a0, 1), f.state(a1, 2, 1);
  f.submit(7, 3);
  const auto asked = f.latest<generate>(a0).first;
  generated g;
  g.name = asked.name, g.lease = 2, g.tokens = {{{5, -1}, {}}};
  f.front.on_message(a1, g);  // another decoder
  g.lease = 1;
  f.front.on_message(a1, g);  // another node
  g.name.attempt = 2;
  f.front.on_message(a0, g);
  g.name = asked.name;
  g.tokens[0].top.resize(1);  // not asked for
  f.front.on_message(a0, g);
  g.tokens.assign(4, {});  // more than max_tokens
  f.front.on_message(a0, g);
  g.first = ~std::uint32_t{0};
  f.front.on_message(a0, g);
  CHECK(f.received[7].all.empty());
  f.answer(a0, 0, {1, 2, 3}, ending::length);
  CHECK(f.received[7].tokens == tokens{1, 2, 3});
}

TEST_CASE("when its decoder is lost, a request goes on elsewhere, with its tokens as replay") {
  front_fixture f;
  f.state(a0, 1), f.state(b0, 2);
  f.submit(7);
  f.answer(a0, 0, {5, 6});
  SECTION("silent for a lease's duration") {
    for (int i = 0; i < 6; ++i) f.wait(1), f.state(b0, 2);
  }
  SECTION("its node has started again") {
    f.state(a0, 1, 10, 2), f.leases.erase({a0, 1}), f.state(a0, 9, 0, 3);
  }
  SECTION("it says that it cannot") {
    f.answer(a0, 2, {}, ending::failed, {reason::kind::device_lost, "gone"});
    CHECK(f.latest<generated_ack>(a0).first.finished);
  }
  const auto next = f.received[7].ends.empty() && f.count<generate>(b0) > 0 ? b0 : a0;
  const auto again = f.latest<generate>(next);
  CHECK(again.first.name.attempt >= 2);
  CHECK(again.first.replay == 2);
  CHECK(again.first.what.max_tokens == 8);
  CHECK(tokens_of(again.second) == tokens{10, 20, 30, 5, 6});
  f.answer(next, 2, {7, 0}, ending::stop);
  CHECK(f.received[7].tokens == tokens{5, 6, 7, 0});
  REQUIRE(f.received[7].ends.size() == 1);
  CHECK(f.received[7].ends[0].attempts == again.first.name.attempt);
  CHECK(f.received[7].ends[0].decoder == next);
}

TEST_CASE("what the earlier attempt still says is answered as over, and not told") {
  front_fixture f;
  f.state(a0, 1), f.state(b0, 2);
  f.submit(7);
  f.answer(a0, 0, {5});
  for (int i = 0; i < 6; ++i) f.wait(1), f.state(b0, 2);
  f.state(a0, 1);  // it was only stopped
  f.answer(a0, 1, {99, 98});
  CHECK(f.latest<generated_ack>(a0).first == generated_ack{{this_front, 3, 7, 1}, 1, 3, true});
  CHECK(f.received[7].tokens == tokens{5});
  f.answer(b0, 1, {6});
  CHECK(f.received[7].tokens == tokens{5, 6});
}

TEST_CASE("a declined request is offered to others, and its end has the last decoder's reason") {
  front_fixture f;
  const reason full{reason::kind::insufficient, "full"};
  SECTION("nobody can") {
    f.submit(7);
    REQUIRE(f.received[7].ends.size() == 1);
    CHECK(f.received[7].ends[0].why.code == reason::kind::unavailable);
  }
  SECTION("one declines, the other does it") {
    f.state(a0, 1), f.state(b0, 2);
    f.submit(7);
    f.answer(a0, 0, {}, ending::failed, full);
    f.answer(b0, 0, {0}, ending::stop);
    CHECK(f.received[7].ends.at(0).finish == ending::stop);
  }
  SECTION("all decline") {
    f.state(a0, 1), f.state(b0, 2);
    f.submit(7);
    f.answer(a0, 0, {}, ending::failed, full);
    f.answer(b0, 0, {}, ending::failed, full);
    CHECK(f.received[7].ends.at(0).why == full);
  }
  SECTION("it is wrong, whoever is asked") {
    f.state(a0, 1), f.state(b0, 2);
    f.submit(7);
    f.answer(a0, 0, {}, ending::failed, {reason::kind::invalid, "token 99 is unknown"});
    CHECK(f.received[7].ends.at(0).why.code == reason::kind::invalid);
    CHECK(f.count<generate>(b0) == 0);
  }
  SECTION("too long for all") {
    f.state(a0, 1);
    f.submit(7, 254);
    CHECK(f.received[7].ends.at(0).why.code == reason::kind::invalid);
  }
  CHECK_FALSE(f.front.is_busy());
}

TEST_CASE("after three attempts a request ends with a reason") {
  front_fixture f;
  f.state(a0, 1), f.state(a0, 2), f.state(a1, 3), f.state(b0, 4);
  f.submit(7);
  const reason gone{reason::kind::unavailable, "gone"};
  const auto deny = [&](address node) { f.answer(node, 0, {}, ending::failed, gone); };
  deny(a0), deny(a0), deny(a1);
  REQUIRE(f.received[7].ends.size() == 1);
  CHECK(f.received[7].ends[0].finish == ending::failed);
  CHECK(f.received[7].ends[0].attempts == 3);
  CHECK(f.count<generate>(b0) == 0);
}

TEST_CASE("a request that every decoder would compute in the same way is not tried again") {
  front_fixture f;
  f.state(a0, 1), f.state(a1, 3);
  f.submit(7);
  f.answer(a0, 0, {5, 6});
  f.answer(a0, 2, {}, ending::failed, {reason::kind::infeasible, "position 5: the logit is nan"});
  REQUIRE(f.received[7].ends.size() == 1);
  CHECK(f.received[7].ends[0].why ==
        reason{reason::kind::infeasible, "position 5: the logit is nan"});
  CHECK(f.received[7].ends[0].attempts == 1);
  CHECK(f.count<generate>(a1) == 0);
}

TEST_CASE("a request whose only decoder is lost waits a lease's duration for another") {
  front_fixture f;
  f.state(a0, 1);
  f.submit(7), f.submit(8);
  f.answer(a0, 0, {5});
  f.wait(6);
  CHECK(f.front.size() == 2);
  SECTION("which comes") {
    f.state(a1, 2);
    CHECK(f.count<generate>(a1) == 2);
    f.answer(a1, 1, {0}, ending::stop);
    CHECK(f.received[8].tokens == tokens{5, 0});
    CHECK(f.front.size() == 1);
  }
  SECTION("in vain") {
    f.wait(5.2);
    CHECK(f.received[7].ends.at(0).why.code == reason::kind::unavailable);
    CHECK(f.received[8].ends.at(0).tokens.empty());
    CHECK_FALSE(f.front.is_busy());
  }
}

TEST_CASE("a request of which its decoder says nothing is asked for again, and then given up") {
  front_fixture f;
  f.state(a0, 1), f.state(b0, 2);
  f.submit(7);
  f.answer(a0, 0, {5});
  const auto before = f.count<generate>(a0);
  for (int i = 0; i < 4; ++i) f.wait(1), f.state(a0, 1), f.state(b0, 2);
  CHECK(f.count<generate>(a0) > before);
  CHECK(f.latest<generate>(a0).first.name.attempt == 1);
  for (int i = 0; i < 2; ++i) f.wait(1), f.state(a0, 1), f.state(b0, 2);
  CHECK(f.latest<generate>(b0).first.name.attempt == 2);
}

TEST_CASE("a cancelled request is told nothing more, and its cancellation is repeated") {
  front_fixture f;
  f.state(a0, 1);
  f.submit(7);
  f.answer(a0, 0, {5});
  f.front.cancel(7);
  f.front.cancel(8);
  CHECK(f.latest<cancel_generate>(a0).first == cancel_generate{{this_front, 3, 7, 1}, 1});
  f.answer(a0, 1, {6});
  CHECK(f.latest<generated_ack>(a0).first.finished);
  f.wait(1);
  const auto asked = f.count<cancel_generate>(a0);
  CHECK(asked >= 3);
  f.answer(a0, 1, {}, ending::failed, {reason::kind::unavailable, "cancelled"});
  f.wait(1);
  CHECK(f.count<cancel_generate>(a0) == asked);
  CHECK(f.received[7].tokens == tokens{5});
  CHECK(f.received[7].ends.empty());
  CHECK_FALSE(f.front.is_busy());
}

TEST_CASE("a completion whose end was lost with its decoder ends at the front") {
  front_fixture f;
  f.state(a0, 1), f.state(b0, 2);
  f.submit(7, 2), f.submit(8);
  const auto of_8 = f.latest<generate>(a0).first;
  const auto all = f.sent;
  generated g;
  for (const auto& s : all)
    if (const auto* asked = std::get_if<generate>(&s.what)) {
      g.name = asked->name, g.lease = asked->lease;
      g.tokens.assign(asked->name.number == 7 ? 2 : 1,
                      {{asked->name.number == 7 ? 4u : 0u, -1}, {}});
      f.front.on_message(s.to, g);
    }
  for (int i = 0; i < 6; ++i) f.wait(1), f.state(b0, 2);
  CHECK(f.received[7].ends.at(0).finish == ending::length);
  CHECK(f.received[8].ends.at(0).finish == ending::stop);
  CHECK(f.count<generate>(b0) == 0);
}

TEST_CASE("requests between two statements of a decoder are counted") {
  front_fixture f;
  f.state(a0, 1, 10), f.state(a1, 2, 9);
  f.submit(1), f.submit(2), f.submit(3), f.submit(4);
  CHECK(f.count<generate>(a0) == 2);
  CHECK(f.count<generate>(a1) == 2);
  for (std::uint64_t n = 5; n < 9; ++n) f.submit(n);
  f.submit(9);
  CHECK(f.received[9].ends.at(0).why.code == reason::kind::insufficient);
  f.state(a0, 1, 10);
  f.submit(10);
  CHECK(f.received[10].ends.empty());
}

TEST_CASE("a prompt is sent to the decoder that had one with the same beginning") {
  front_fixture f;
  f.state(a0, 1, 19), f.state(a1, 2, 20);
  tokens first(200, 5);
  f.submit(1, 8, first);
  REQUIRE(f.count<generate>(a1) == 1);  // the emptier one
  // Now it is the fuller one.
  f.state(a1, 2, 4);
  auto second = first;
  second[150] = 6;
  f.submit(2, 8, second);
  CHECK(f.count<generate>(a1) == 2);
  CHECK(f.count<generate>(a0) == 0);
  // Less than a page is the same; another prompt.
  second[20] = 6;
  f.submit(3, 8, second);
  f.submit(4, 8, {5, 5, 5});
  CHECK(f.count<generate>(a0) == 2);
  // Where the decoder is lost, the other one gets the prompt, and what begins like it.
  f.leases.erase({a1, 2});
  f.state_leases();
  f.state(a1, 3, 20);
  REQUIRE(f.count<generate>(a0) == 4);
  f.state(a0, 1, 4);
  f.submit(5, 8, first);
  CHECK(f.count<generate>(a0) == 5);
}

TEST_CASE("a front reports what became of its requests, and the decoders that it knows") {
  front_fixture f;
  f.state(a0, 5);
  f.submit(1, 2);
  f.wait(0.5);
  f.answer(a0, 0, {11});
  f.wait(0.5);
  f.answer(a0, 1, {12}, ending::length);
  f.submit(2);
  f.answer(a0, 0, {}, ending::failed, {reason::kind::insufficient, "full"});
  f.submit(3);
  f.front.cancel(3);
  f.submit(4);
  f.front.cancel(4, true);
  f.state(a0, 5);  // it has room again
  f.submit(5);
  const auto r = f.front.report();
  CHECK(r.requests == 1);
  CHECK(r.counts.finished == 2);
  CHECK(r.counts.declined == 1);
  CHECK(r.counts.cancelled == 1);
  CHECK(r.counts.failed == 0);
  CHECK(r.counts.tokens == 2);
  CHECK(r.ttft_p50_s == Approx(0.5));
  REQUIRE(r.decoders.size() == 1);
  CHECK(r.decoders[0].node == 0);
  CHECK(r.decoders[0].state.lease == 5);
}

TEST_CASE("a front counts prompts by where they were computed, once, and further attempts") {
  front_fixture f;
  f.state(a0, 5, 20);
  f.state(a1, 6);
  f.submit(1);
  auto g = generated{};
  g.name = f.latest<generate>(a0).first.name, g.lease = 5, g.tokens = {{{11, -1}, {}}};
  g.where = prefill_place{};
  g.where->bubbles = true, g.where->yields = 3;
  f.front.on_message(a0, g);
  f.front.on_message(a0, g);
  f.answer(a0, 1, {}, ending::failed, {reason::kind::unavailable, "gone"});
  const auto c = f.front.report().counts;
  CHECK(c.by_bubbles == 1);
  CHECK(c.by_decoders == 0);
  CHECK(c.yields == 3);
  CHECK(c.tokens == 1);
  CHECK(c.retries == 1);
}

TEST_CASE("a front asks for the adapter that a request names, again in every attempt") {
  front_fixture f;
  f.state(a0, 5, 20);
  f.state(a1, 6);
  for (const auto& [node, lease] : {std::pair{a0, 5u}, {a1, 6u}}) {
    auto s = f.front.decoders().all().at({node, lease}).state;
    s.sequence = ++f.sequence, s.adapters = std::vector<std::string>{"sql"};
    f.front.on_message(node, s);
  }
  model_prompt p{"m", {}, {10, 20, 30}, "sql"};
  p.what.prompt_tokens = 3, p.what.max_tokens = 8;
  f.front.submit(1, p, [](const completion_update&) {});
  CHECK(f.latest<generate>(a0).first.adapter == "sql");
  f.answer(a0, 0, {}, ending::failed, {reason::kind::unavailable, "found no adapter 'sql' here"});
  CHECK(f.latest<generate>(a1).first.adapter == "sql");
  f.submit(2);
  CHECK_FALSE(f.latest<generate>(a0).first.adapter);
}
