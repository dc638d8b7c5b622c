#include <catch2/catch.hpp>

#include "actors/control/ledger/training_history.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Iterations of 2 s each.
training_report received(lease_id lease, std::uint64_t sequence, std::uint64_t first,
                         std::uint64_t last, job_id job = 7) {
  training_report r;
  r.lease = lease;
  r.job = job;
  r.sequence = sequence;
  for (auto i = first; i <= last; ++i)
    r.iterations.push_back({i, 1, 0, 10.0 * double(i), 10.0 * double(i) + 2, 0});
  return r;
}

std::vector<std::uint64_t> numbers_of(const training_report& r) {
  std::vector<std::uint64_t> all;
  for (const auto& i : r.iterations) all.push_back(i.iteration);
  return all;
}

}  // namespace

TEST_CASE("a report that was heard already changes nothing, and a later one of any lease counts") {
  training_history h;
  h.add(received(1, 5, 1, 3));
  h.add(received(1, 5, 4, 6));
  h.add(received(1, 4, 4, 6));
  CHECK(numbers_of(h.since(7, 0)->first) == std::vector<std::uint64_t>{1, 2, 3});
  h.add(received(2, 1, 4, 4));
  h.add(received(1, 6, 5, 6));
  CHECK(numbers_of(h.since(7, 0)->first) == std::vector<std::uint64_t>{1, 2, 3, 4});
}

TEST_CASE("iterations that are repeated replace those from the first of them on") {
  training_history h;
  h.add(received(1, 1, 1, 5));
  h.add(received(2, 1, 4, 4));
  CHECK(numbers_of(h.since(7, 0)->first) == std::vector<std::uint64_t>{1, 2, 3, 4});
  CHECK(h.since(7, 5)->first.iterations.size() == 1);
  CHECK(h.since(7, 6)->first.iterations.empty());
  CHECK(h.since(7, 7)->first.iterations.size() == 4);  // a position of an earlier controller
  h.add(received(3, 1, 1, 1));
  CHECK(numbers_of(h.since(7, 0)->first) == std::vector<std::uint64_t>{1});
}

TEST_CASE("what is durable of a report are iterations, events and checkpoints, if they are new") {
  training_history h;
  auto r = received(1, 1, 1, 1);
  r.measured.resize(2);
  r.max_in_flight = {1, 2};
  const auto kept = h.to_keep(r);
  REQUIRE(kept);
  CHECK(kept->iterations.size() == 1);
  CHECK(kept->measured.empty());
  CHECK(kept->max_in_flight.empty());
  h.add(r);
  CHECK_FALSE(h.to_keep(r));
  auto next = received(1, 2, 1, 0);
  CHECK_FALSE(h.to_keep(next));  // nothing in it
  next.saved = 1;
  CHECK(h.to_keep(next));
  h.add(next);
  next.sequence = 3;
  CHECK_FALSE(h.to_keep(next));  // the same checkpoint
  next.saved = 0;
  next.events = {"something happened"};
  CHECK(h.to_keep(next));
  next.sequence = 2;
  CHECK_FALSE(h.to_keep(next));
  CHECK(h.saved(7, 1) == 1);
  CHECK(h.saved(7, 2) == 0);
}

TEST_CASE("an estimate of speed has the last twenty iterations and no events") {
  training_history h;
  CHECK_FALSE(h.recent(7));
  auto r = received(1, 1, 1, 5);
  r.events = {"something happened"};
  h.add(r);
  CHECK(h.recent(7)->iterations.size() == 5);
  CHECK(h.recent(7)->events.empty());
  h.add(received(1, 2, 6, 30));
  const auto recent = h.recent(7);
  CHECK(recent->iterations.size() == 20);
  CHECK(recent->iterations.front().iteration == 11);
  CHECK(recent->iterations.back().iteration == 30);
}

TEST_CASE(
    "of a long training every second iteration is kept, and the first, and how long they took") {
  training_history h;
  constexpr auto exact = training_history::exact_iterations;
  h.add(received(1, 1, 1, 2 * exact));
  CHECK(h.since(7, 0)->first.iterations.size() == 2 * exact);
  CHECK(h.median_iteration_s(7, 2) == Approx(2));
  h.add(received(1, 2, 2 * exact + 1, 2 * exact + 1));
  const auto all = numbers_of(h.since(7, 0)->first);
  CHECK(all.size() == exact + 1 + exact / 2);
  CHECK(all[0] == 1);
  CHECK(all[1] == 2);
  CHECK(all[2] == 4);
  CHECK(h.reached(7, 2) == 2 * exact + 1);
  // Those that are repeated may be older than all that is kept exactly.
  h.add(received(2, 1, 9, 9));
  CHECK(numbers_of(h.since(7, 0)->first) == std::vector<std::uint64_t>{1, 2, 4, 6, 8, 9});
  CHECK(h.median_iteration_s(7, 3) == Approx(2));
}

TEST_CASE("of the trainings that ended the last hundred are kept") {
  training_history h;
  for (job_id j = 1; j <= 101; ++j) h.add(received(j, 1, 1, 1, j));
  for (job_id j = 1; j <= 100; ++j) {
    h.ended(j);
    h.ended(j);  // again
  }
  h.ended(5000);  // of no training
  CHECK(h.since(1, 0));
  h.ended(101);
  CHECK_FALSE(h.since(1, 0));
  CHECK(h.since(2, 0));
}

TEST_CASE("a history is made again from its snapshot") {
  training_history h;
  auto r = received(1, 4, 1, 30);
  r.events = {"something happened"};
  r.measured.resize(2);
  h.add(r);
  training_history again;
  const auto all = h.snapshot();
  REQUIRE(all.size() == 1);
  CHECK(all[0].measured.empty());
  for (const auto& x : all) again.add(x);
  CHECK(numbers_of(again.since(7, 0)->first) == numbers_of(h.since(7, 0)->first));
  CHECK(again.since(7, 0)->first.events == r.events);
}

TEST_CASE("reports are put together without an iteration twice") {
  auto known = received(1, 1, 1, 5);
  known.events = {"one"};
  auto newer = received(2, 1, 4, 6);
  newer.events = {"two"};
  append(known, newer);
  CHECK(known.lease == 2);
  CHECK(numbers_of(known) == std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6});
  CHECK(known.events == std::vector<std::string>{"one", "two"});
  append(known, received(2, 2, 1, 0));
  CHECK(known.iterations.size() == 6);
}
