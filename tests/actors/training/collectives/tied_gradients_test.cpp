#include <catch2/catch.hpp>

#include "actors/training/collectives/device_all_reduce.hpp"

// The tensors that a stage sends and waits for at the end of an iteration, by its place in the
// pipeline.

using namespace troupe;
using namespace troupe::actors;
using kind = tensor::kind;

namespace {

stage_setup stage_of(std::uint32_t s, std::uint32_t stages, std::uint32_t pipelines,
                     bool tied = true) {
  stage_setup x;
  x.name = {1, pipelines > 1 ? 1u : 0u, s};
  x.stages = stages;
  x.pipelines = pipelines;
  x.model.tied_head = tied;
  return x;
}

payload bytes(std::size_t n) {
  return payload{std::vector<std::byte>(n)};
}

tensor of(kind what) {
  tensor t;
  t.what = what;
  return t;
}

using missing = gradient_all_reduce::missing_tensor;

bool is(const std::vector<missing>& all, std::vector<missing> wanted) {
  return std::equal(all.begin(), all.end(), wanted.begin(), wanted.end(),
                    [](const auto& a, const auto& b) {
                      return a.what == b.what && a.from_pipeline == b.from_pipeline &&
                             a.from_stage == b.from_stage;
                    });
}

}  // namespace

TEST_CASE("an embedding is tied to another stage's head in the first and the last of several") {
  CHECK(tied_to_another(stage_of(0, 3, 1)));
  CHECK_FALSE(tied_to_another(stage_of(1, 3, 1)));
  CHECK(tied_to_another(stage_of(2, 3, 1)));
  CHECK_FALSE(tied_to_another(stage_of(0, 1, 1)));
  CHECK_FALSE(tied_to_another(stage_of(0, 3, 1, false)));
  CHECK(gradient_all_reduce::needed(stage_of(0, 3, 1)));
  CHECK_FALSE(gradient_all_reduce::needed(stage_of(1, 3, 1)));
  CHECK(gradient_all_reduce::needed(stage_of(1, 3, 2)));
}

TEST_CASE("without tied gradients devices have nothing to wait for but their own sum") {
  for (const auto& s : {stage_of(1, 3, 2), stage_of(0, 3, 2, false), stage_of(2, 3, 2, false)}) {
    device_all_reduce a{s};
    CHECK(a.missing().empty());
    CHECK(a.can_start());
    CHECK_FALSE(a.start());
    CHECK_FALSE(a.can_start());
    CHECK_FALSE(a.complete());
    CHECK(a.finish_sum({bytes(8)}).empty());
    CHECK(a.complete());
    CHECK(a.missing().empty());
    CHECK(a.result().empty());
  }
}

TEST_CASE("the first stage's devices wait for the last one's tied gradients, and send it the sum") {
  device_all_reduce a{stage_of(0, 3, 2)};
  CHECK(is(a.missing(), {{kind::tied_partial, 1, 2}}));
  CHECK_FALSE(a.can_start());
  a.receive(bytes(8));
  a.receive(bytes(99));  // again
  CHECK(a.missing().empty());
  CHECK(a.can_start());
  const auto in = a.start();
  REQUIRE(in);
  CHECK(in->bytes().size() == 8);
  CHECK_FALSE(a.complete());
  const auto out = a.finish_sum({bytes(8)});
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == kind::tied_sum);
  CHECK(out[0].to_pipeline == 1);
  CHECK(out[0].to_stage == 2);
  CHECK(out[0].bytes == 8);
  CHECK(a.complete());
}

TEST_CASE("the last stage's devices send their tied gradients, and wait for the sum") {
  device_all_reduce a{stage_of(2, 3, 2)};
  CHECK(a.missing().empty());
  CHECK(a.can_start());
  CHECK_FALSE(a.start());
  CHECK(a.missing().empty());  // no sum exists before it has sent its part
  const auto out = a.finish_sum({bytes(8)});
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == kind::tied_partial);
  CHECK(out[0].to_pipeline == 1);
  CHECK(out[0].to_stage == 0);
  CHECK(is(a.missing(), {{kind::tied_sum, 1, 0}}));
  CHECK_FALSE(a.complete());
  a.receive(bytes(16));
  CHECK(a.missing().empty());
  CHECK(a.complete());
  CHECK(a.result().bytes().size() == 16);
  // A sum without a tied gradient has nothing to send.
  device_all_reduce b{stage_of(2, 3, 2)};
  b.start();
  CHECK(b.finish_sum({}).empty());
}

TEST_CASE("hosts of the first stage wait for the last one's tied gradients, then for their peers") {
  gradient_all_reduce a{stage_of(0, 3, 2)};
  CHECK(a.missing().empty());  // it has not begun
  CHECK(a.begin(bytes(16), 16, bytes(8), 8).empty());
  CHECK(is(a.missing(), {{kind::tied_partial, 1, 2}}));
  auto out = a.receive(of(kind::tied_partial), bytes(8));
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == kind::partial);
  CHECK(out[0].to_pipeline == 0);
  CHECK(out[0].to_stage == 0);
  CHECK(out[0].bytes == 12);  // its half of both
  CHECK(a.receive(of(kind::tied_partial), bytes(8)).empty());
  CHECK(is(a.missing(), {{kind::partial, 0, 0}, {kind::sum, 0, 0}}));
  out = a.receive(of(kind::partial), bytes(12));
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == kind::sum);
  CHECK_FALSE(a.complete());
  out = a.receive(of(kind::sum), bytes(12));
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == kind::tied_sum);
  CHECK(out[0].to_stage == 2);
  CHECK(out[0].bytes == 8);
  CHECK(a.complete());
  CHECK(a.missing().empty());
  const auto [own, tied] = a.result();
  CHECK(own.bytes().size() == 16);
  CHECK(tied.bytes().size() == 8);
  CHECK(a.error().empty());
}

TEST_CASE("hosts of the last stage send their tied gradients at once, and wait for the sum") {
  gradient_all_reduce a{stage_of(2, 3, 1)};
  const auto out = a.begin(bytes(16), 16, bytes(8), 8);
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == kind::tied_partial);
  CHECK(out[0].to_stage == 0);
  CHECK(out[0].bytes == 8);
  CHECK(is(a.missing(), {{kind::tied_sum, 0, 0}}));
  CHECK_FALSE(a.complete());
  CHECK(a.receive(of(kind::tied_sum), bytes(8)).empty());
  CHECK(a.missing().empty());
  CHECK(a.complete());
  CHECK(a.result().second.bytes().size() == 8);
}

TEST_CASE("tied gradients that came before the stage's own are not lost") {
  gradient_all_reduce first{stage_of(0, 3, 1)};
  CHECK(first.receive(of(kind::tied_partial), bytes(8)).empty());
  CHECK_FALSE(first.complete());
  CHECK(first.missing().empty());
  const auto out = first.begin(bytes(16), 16, bytes(8), 8);
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == kind::tied_sum);
  CHECK(first.complete());
  CHECK(first.missing().empty());
}

TEST_CASE("the last stage has its own sums before the tied one, and nothing of them twice") {
  gradient_all_reduce last{stage_of(2, 3, 1)}, first{stage_of(0, 3, 1)};
  last.begin(bytes(8), 8, bytes(4), 4);
  CHECK(last.summed());
  CHECK_FALSE(last.complete());
  CHECK(is(last.missing(), {{kind::tied_sum, 0, 0}}));
  const auto [own, tied] = last.result_but_late();
  CHECK(own.bytes().size() == 8);
  CHECK(tied.bytes().empty());
  last.receive(of(kind::tied_sum), bytes(4));
  REQUIRE(last.complete());
  const auto [again, late] = last.result();
  CHECK(again.bytes().empty());
  CHECK(late.bytes().size() == 4);
  // The first stage counts the tied gradients' norm, and needs both halves for it.
  first.begin(bytes(8), 8, bytes(4), 4);
  CHECK_FALSE(first.summed());
  first.receive(of(kind::tied_partial), bytes(4));
  REQUIRE(first.summed());
  CHECK(first.result_but_late().second.bytes().size() == 4);
  CHECK(first.result().second.bytes().empty());
}
