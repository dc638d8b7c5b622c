#include "messages/domain/work_kind.hpp"

#include <catch2/catch.hpp>

#include "third_format.hpp"

using namespace troupe;

namespace {

job_spec of_kind(work_kind k) {
  for (auto& spec : testing::jobs_of_third_format())
    if (kind_of(spec) == k) return spec;
  auto program = of_kind(work_kind::program);
  program.program.command = {std::string{replayed_word}};
  return program;
}

}  // namespace

TEST_CASE("a job's keys give the kind of its work") {
  std::vector<std::string> names;
  for (const auto& spec : testing::jobs_of_third_format()) names.emplace_back(facts_of(spec).name);
  CHECK(names == std::vector<std::string>{"simulated work", "simulated pipelines", "program",
                                          "elastic program", "training", "study", "decoder"});
  CHECK(kind_of(of_kind(work_kind::replayed)) == work_kind::replayed);
  // Estimates describe a program with a training's options.
  auto described = of_kind(work_kind::training);
  described.program.command = {"described"};
  CHECK(kind_of(described) == work_kind::program);
  CHECK(facts_of(described).pipelines);
}

TEST_CASE("facts of each kind of work are consistent") {
  for (std::size_t i = 0; i < work_kinds.size(); ++i) {
    const auto k = static_cast<work_kind>(i);
    const auto& f = facts_of(k);
    INFO(f.name);
    CHECK(f.has_processes == (f.stops_by == stop_way::signal));
    CHECK(f.has_stages == (f.stops_by == stop_way::halt));
    CHECK((!f.simulated || (!f.has_processes && !f.has_stages)));
    CHECK((!f.mergeable || f.simulated));
    CHECK((f.has_end || (f.restarts_after_failure && !f.has_known_length)));
    CHECK((!f.gets_reservation || f.has_own_rules));
    // A job without options that change them has the facts of its kind.
    auto plain = facts_of(of_kind(k));
    CHECK(plain.name == f.name);
    CHECK(plain.stops_by == f.stops_by);
    CHECK(plain.stoppable == f.stoppable);
  }
}

TEST_CASE("a job's own options change the facts of its kind") {
  auto training = of_kind(work_kind::training);
  CHECK(facts_of(training).resumable);
  training.train->checkpoint.clear();
  CHECK_FALSE(facts_of(training).resumable);
  training.train->device = "sim";
  CHECK(facts_of(training).resumable);
  CHECK_FALSE(facts_of(training).on_engine);
  training.train->device = "cuda";
  CHECK(facts_of(training).on_engine);
  training.model.operators.resize(1);
  CHECK_FALSE(facts_of(training).on_engine);

  auto program = of_kind(work_kind::program);
  CHECK(facts_of(program).exact_gpus);
  CHECK(facts_of(program).has_known_length);
  CHECK_FALSE(facts_of(program).has_known_memory);
  program.iterations = 1;
  CHECK_FALSE(facts_of(program).has_known_length);
  program.memory.emplace().gb = 30;
  CHECK(facts_of(program).has_known_memory);
  program.request.exact = program.assumed.model = false;
  CHECK_FALSE(facts_of(program).exact_gpus);
  CHECK_FALSE(facts_of(program).resizable);

  auto elastic = of_kind(work_kind::elastic_program);
  elastic.request.exact = true;
  CHECK_FALSE(facts_of(elastic).exact_gpus);
  CHECK(facts_of(elastic).resizable);
  elastic.program.elastic->same_gpus = true;
  CHECK(facts_of(elastic).exact_gpus);
  CHECK_FALSE(facts_of(elastic).resizable);
}
