#include "actors/control/leases/desired_work.hpp"

#include <catch2/catch.hpp>

#include "harness/small_cluster.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// A ledger with one job that has one lease, of two nodes.
struct one_lease {
  cluster c = *harness::small_cluster();
  ledger book{c};
  training_history training;
  lease_granted granted;

  explicit one_lease(job_spec spec, double iteration_s = 2) {
    REQUIRE(book.apply(job_accepted{1, 9, 5, std::move(spec), "somebody"}));
    granted.lease = 1;
    granted.job = 1;
    granted.at_s = 6;
    granted.iteration_s = iteration_s;
    granted.start_s = 3;
    granted.how.data_parallel = 3;
    granted.parts = {{0, 11, {0, 1}}, {1, 12, {0}}};
    REQUIRE(book.apply(granted));
  }
  work_order part(std::uint32_t i) const {
    return work_of(c, book, training, *book.lease(1), i, true);
  }
  std::uint64_t kept(std::uint64_t reached) const {
    return kept_iterations(c, book, *book.lease(1), reached);
  }
};

job_spec program() {
  auto s = harness::small_job("one", 100);
  s.program.command = {"sh"};
  s.program.working_directory = "/somewhere";
  return s;
}

}  // namespace

TEST_CASE("a node's order has its part's devices and what remains of the job") {
  one_lease l{harness::small_job("one", 100)};
  const auto w = l.part(1);
  CHECK(w.lease == 1);
  CHECK(w.job == 1);
  CHECK(w.incarnation == 12);
  CHECK(w.devices == std::vector<std::uint16_t>{0});
  CHECK(w.iterations == 100);
  CHECK(w.iteration_s == 2);
  CHECK(w.start_s == 3);
  CHECK(w.environment.empty());
  CHECK_FALSE(w.train);
  CHECK(part_on(*l.book.lease(1), 1) == 1);
  CHECK(part_on(*l.book.lease(1), 4) == 2);
  // The lease is lost after 30 iterations.
  for (const auto p : {0u, 1u})
    REQUIRE(l.book.apply(part_ended{1, p, 70, lease_outcome::lost, 30, 0, ""}));
  l.granted.lease = 2;
  REQUIRE(l.book.apply(l.granted));
  CHECK(work_of(l.c, l.book, l.training, *l.book.lease(2), 0, true).iterations == 70);
}

TEST_CASE("only a program gets an environment") {
  const one_lease l{program()};
  const auto w = l.part(0);
  CHECK(w.command == std::vector<std::string>{"sh"});
  CHECK(w.working_directory == "/somewhere");
  CHECK_FALSE(w.environment.empty());
}

TEST_CASE("the first part of a training has the whole order, the others who its trainer is") {
  auto job = harness::small_job("one", 100);
  job.train.emplace();
  const one_lease l{job};
  const auto first = l.part(0), second = l.part(1);
  REQUIRE(first.train);
  REQUIRE(second.train);
  CHECK(first.train->part == 0);
  CHECK(first.train->spec == job);
  CHECK(first.train->parts == l.granted.parts);
  CHECK(second.train->part == 1);
  CHECK(second.train->parts.empty());
  CHECK(first.train->trainer == 0);
  CHECK(second.train->trainer == 0);
}

TEST_CASE("simulated work that is lost keeps its iterations up to the last checkpoint") {
  auto job = harness::small_job("one", 1000);
  one_lease l{job};
  l.c.settings.checkpoint_s = 60;
  CHECK(l.kept(0) == 0);
  CHECK(l.kept(29) == 0);
  CHECK(l.kept(30) == 30);
  CHECK(l.kept(59) == 30);
  CHECK(l.kept(60) == 60);
  l.c.settings.checkpoint_s = 0;  // none are made
  CHECK(l.kept(60) == 0);
  CHECK(one_lease{program()}.kept(60) == 0);
  CHECK(one_lease(job, 0).kept(60) == 0);
}
