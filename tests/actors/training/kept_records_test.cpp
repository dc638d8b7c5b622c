#include <sys/stat.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "actors/training/device/stage_backend.hpp"
#include "actors/training/stage/sent_tensors.hpp"
#include "actors/training/trainer/curve_file.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "harness/resident_bytes.hpp"
#include "harness/sanitized.hpp"
#include "harness/scratch.hpp"
#include "harness/shell.hpp"

// The kept records of a training and their sizes: tensors that may be lost, and the curve on disk.

using namespace troupe;
using namespace troupe::actors;
using kind = tensor::kind;

namespace {

constexpr std::uint64_t giga = std::uint64_t{1} << 30;

/// Bytes that are never read.
payload of_size(std::uint64_t bytes) {
  static const std::byte first{};
  return {nullptr, {&first, bytes}};
}

tensor sent_to(std::uint32_t stage, kind what, std::uint64_t iteration, std::uint32_t microbatch) {
  tensor t;
  t.what = what;
  t.from = {1, 0, 1};
  t.to_stage = stage;
  t.iteration = iteration;
  t.microbatch = microbatch;
  return t;
}

tensor received_from(std::uint32_t stage, kind what, std::uint64_t iteration,
                     std::uint32_t microbatch) {
  tensor t;
  t.what = what;
  t.from = {1, 0, stage};
  t.iteration = iteration;
  t.microbatch = microbatch;
  return t;
}

std::vector<std::uint64_t> numbers(const std::vector<iteration_record>& all) {
  std::vector<std::uint64_t> result;
  for (const auto& i : all) result.push_back(i.iteration);
  return result;
}

}  // namespace

TEST_CASE("sent tensors are kept up to four gigabytes, and the oldest go first") {
  sent_tensors s;
  for (const auto m : {0u, 1u})
    s.keep(sent_to(2, kind::activation, 5, m), of_size(2 * giga), 1, false);
  CHECK(s.size() == 2);
  s.keep(sent_to(2, kind::activation, 5, 2), of_size(1), 1, false);
  CHECK(s.size() == 2);
  tensor_request r{kind::activation, {1, 0, 2}, 0, 1, 5, {0, 1, 2}, 0};
  auto due = s.take_due(r, 9);
  REQUIRE(due.size() == 2);
  CHECK(due[0].header.microbatch == 1);
  // There is room again when it is known that one came.
  s.on_received(received_from(2, kind::gradient, 5, 1));
  CHECK(s.size() == 1);
  s.keep(sent_to(2, kind::activation, 5, 3), of_size(3 * giga), 1, false);
  CHECK(s.size() == 2);
  // One that is larger than all of them may be stays alone.
  s.keep(sent_to(2, kind::activation, 5, 4), of_size(5 * giga), 1, false);
  CHECK(s.size() == 1);
  s.keep(sent_to(2, kind::activation, 5, 5), of_size(1), 1, false);
  CHECK(s.size() == 1);
}

TEST_CASE("a tensor came if its receiver has sent what it can send only after it") {
  const auto kept_after = [](kind sent, kind received, std::uint32_t microbatch,
                             std::uint64_t iteration = 5) {
    sent_tensors s;
    s.keep(sent_to(2, sent, 5, 3), of_size(8), 1, false);
    s.on_received(received_from(2, received, iteration, microbatch));
    return s.size() == 1;
  };
  CHECK_FALSE(kept_after(kind::activation, kind::gradient, 3));
  CHECK(kept_after(kind::activation, kind::gradient, 2));
  CHECK(kept_after(kind::gradient, kind::gradient, 3));
  CHECK_FALSE(kept_after(kind::partial, kind::sum, 0));
  CHECK(kept_after(kind::sum, kind::sum, 0));
  CHECK(kept_after(kind::activation, kind::sum, 0));
  CHECK_FALSE(kept_after(kind::tied_partial, kind::tied_sum, 0));
  CHECK(kept_after(kind::partial, kind::tied_sum, 0));
  CHECK_FALSE(kept_after(kind::ready, kind::commit, 0));
  CHECK(kept_after(kind::commit, kind::ready, 0));
  CHECK_FALSE(kept_after(kind::commit, kind::ready, 0, 6));  // of the next iteration
  CHECK(kept_after(kind::sum, kind::partial, 0));
  CHECK_FALSE(kept_after(kind::sum, kind::partial, 0, 6));  // of the next iteration
  CHECK(kept_after(kind::sum, kind::partial, 0, 4));
}

TEST_CASE("a tensor of the iteration before may still be asked for, an older one not") {
  sent_tensors s;
  for (const std::uint64_t i : {4, 5, 6}) s.keep(sent_to(2, kind::sum, i, 0), of_size(8), 1, false);
  s.begin_iteration(6);
  CHECK(s.size() == 2);
  s.begin_iteration(7);
  CHECK(s.size() == 1);
}

TEST_CASE("a tensor is due at its time, which doubles up to four times") {
  sent_tensors s;
  s.keep(sent_to(2, kind::activation, 5, 0), of_size(8), 10, false);
  tensor_request r{kind::activation, {1, 0, 2}, 0, 1, 5, {0}, 2};
  double sent_s = 10;
  for (const double factor : {1, 2, 4, 4}) {
    CHECK(s.take_due(r, sent_s + 2 * factor - 0.5).empty());
    CHECK(s.take_due(r, sent_s + 2 * factor).size() == 1);
    sent_s += 2 * factor;
  }
}

TEST_CASE("a curve goes on where the training does, and gives what the controller lacks") {
  const troupe::test::scratch room;
  REQUIRE(gpu::take_fence(room.path(), 7));
  {
    curve_file curve{room.path(), 7};
    REQUIRE(curve.resume(0, 0));
    for (std::uint64_t i = 1; i <= 1500; ++i)
      curve.add({i, 0.1 * static_cast<double>(i), 3, 100, 102.5, 1.5});
    REQUIRE(curve.write());
    REQUIRE(curve.write());  // nothing more
  }
  std::ofstream{room / "curve.csv", std::ios::app} << "1501,1";  // it was killed while writing
  curve_file curve{room.path(), 7};
  auto known = curve.resume(1400, 0);
  REQUIRE(known);
  REQUIRE(known->size() == 1000);
  CHECK(known->front().iteration == 401);
  CHECK(known->back().iteration == 1400);
  CHECK(known->back().loss == 0.1 * 1400);
  CHECK(known->back().gradient_norm == 3);
  CHECK(known->back().begin_s == 100);
  CHECK(known->back().end_s == 102.5);
  CHECK(known->back().busy_s == 1.5);
  known = curve.resume(1400, 1397);
  REQUIRE(known);
  CHECK(numbers(*known) == std::vector<std::uint64_t>{1398, 1399, 1400});
  known = curve.resume(400, 400);
  REQUIRE(known);
  CHECK(known->empty());
  known = curve.resume(1400, 0);  // the others were dropped
  REQUIRE(known);
  CHECK(known->size() == 400);
}

TEST_CASE("a curve has a column for each value of a program's loss, from its first iteration on") {
  const troupe::test::scratch room;
  REQUIRE(gpu::take_fence(room.path(), 7));
  const auto with = [](std::uint64_t i, std::vector<named_value> values) {
    iteration_record r{i, 0.5, 3, 100, 102.5, 1.5};
    if (!values.empty()) r.program = {std::move(values), false};
    return r;
  };
  {
    curve_file curve{room.path(), 7};
    REQUIRE(curve.resume(0, 0));
    curve.add(with(1, {}));
    REQUIRE(curve.write());
    curve.add(with(2, {{"accuracy", 1, 4}}));
    REQUIRE(curve.write());
    curve.add(with(3, {{"a,b\n", 3, 2}, {"accuracy", 1, 1}}));
    curve.add(with(4, {{"a,b\n", 5, 2}}));
    REQUIRE(curve.write());
  }
  const auto line = [](std::uint64_t i) { return std::to_string(i) + ",102.500000,2.5,0.5,3,1.5"; };
  CHECK(troupe::test::read_file(room / "curve.csv") ==
        "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s,accuracy,a_b_\n" + line(1) + "\n" +
            line(2) + ",0.25\n" + line(3) + ",1,1.5\n" + line(4) + ",,2.5\n");
  curve_file curve{room.path(), 7};
  const auto known = curve.resume(4, 1);
  REQUIRE(known);
  REQUIRE(known->size() == 3);
  REQUIRE(known->at(0).program);
  CHECK(known->at(0).program->values == std::vector<named_value>{{"accuracy", 0.25, 1}});
  CHECK(known->at(2).program->values == std::vector<named_value>{{"a_b_", 2.5, 1}});
  curve.add(with(5, {{"accuracy", 1, 2}}));
  REQUIRE(curve.write());
  CHECK(troupe::test::read_file(room / "curve.csv").ends_with(line(5) + ",0.5,\n"));
}

TEST_CASE("values of ever new names have no columns without end") {
  const troupe::test::scratch room;
  REQUIRE(gpu::take_fence(room.path(), 7));
  curve_file curve{room.path(), 7};
  REQUIRE(curve.resume(0, 0));
  for (std::uint64_t i = 1; i <= 300; ++i) {
    iteration_record r{i, 0.5, 3, 100, 102.5, 1.5};
    r.program = {{{std::string(200, 'n') + std::to_string(i), 1, 1}}, false};
    curve.add(r);
  }
  REQUIRE(curve.write());
  CHECK(std::ranges::count(troupe::test::read_file(room / "curve.csv"), ',') ==
        5 + 256 + 300 * (5 + 256));
  CHECK(curve_file{room.path(), 7}.resume(300, 0)->size() == 300);
}

TEST_CASE("resuming a training copies its curve in constant memory, however long it is") {
  const troupe::test::scratch room;
  REQUIRE(gpu::take_fence(room.path(), 7));
  constexpr std::uint64_t iterations = 200'000;
  {
    curve_file curve{room.path(), 7};
    REQUIRE(curve.resume(0, 0));
    for (std::uint64_t i = 1; i <= iterations; ++i) {
      curve.add({i, 0.1 * static_cast<double>(i), 3, 100, 102.5, 1.5});
      if (i % 1000 == 0) REQUIRE(curve.write());
    }
  }
  const auto bytes = std::filesystem::file_size(room / "curve.csv");
  REQUIRE(bytes > 6 << 20);
  const troupe::test::memory_peak peak;
  curve_file curve{room.path(), 7};
  const auto known = curve.resume(iterations - 1, iterations - 3);
  REQUIRE(known);
  CHECK(numbers(*known) == std::vector<std::uint64_t>{iterations - 2, iterations - 1});
  if (!harness::sanitized) CHECK(peak.grown_by() < 1 << 20);
  const auto line = std::to_string(iterations).size() + 1;
  CHECK(std::filesystem::file_size(room / "curve.csv") < bytes - line);
  CHECK(std::filesystem::file_size(room / "curve.csv") > bytes - 20 * line);
}

TEST_CASE("a curve that cannot be read is refused, and stays") {
  const troupe::test::scratch room;
  REQUIRE(gpu::take_fence(room.path(), 7));
  REQUIRE(::mknod((room / "curve.csv").c_str(), S_IFSOCK | 0600, 0) == 0);  // no file to open
  const auto refused = curve_file{room.path(), 7}.resume(1, 0);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("expected a regular file") != std::string::npos);
  CHECK(std::filesystem::is_socket(room / "curve.csv"));
}

TEST_CASE("a curve of an earlier release lacks a figure, and lines that are none are dropped") {
  const troupe::test::scratch room;
  REQUIRE(gpu::take_fence(room.path(), 7));
  std::ofstream{room / "curve.csv"} << "iteration,end_unix_s,seconds,loss,gradient_norm\n"
                                       "1,102.5,2.5,0.5,3\nnonsense\n\n2,105,2.5,0.25,4\n";
  curve_file curve{room.path(), 7};
  const auto known = curve.resume(10, 0);
  REQUIRE(known);
  REQUIRE(numbers(*known) == std::vector<std::uint64_t>{1, 2});
  CHECK(known->at(0).gradient_norm == 3);
  CHECK(known->at(0).busy_s == 0);
  CHECK(known->at(1).loss == 0.25);
  CHECK(known->at(1).begin_s == 102.5);
}

TEST_CASE("a lease that another has replaced writes no curve, and says so once") {
  const troupe::test::scratch room;
  REQUIRE(gpu::take_fence(room.path(), 7));
  curve_file curve{room.path(), 7};
  REQUIRE(curve.resume(0, 0));
  REQUIRE(gpu::take_fence(room.path(), 8));
  CHECK_FALSE(curve.resume(0, 0));
  curve.add({1, 1, 1, 1, 2, 1});
  const auto refused = curve.write();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::stale);
  curve.add({2, 1, 1, 1, 2, 1});
  CHECK(curve.write());
  curve_file none;
  CHECK(none.resume(5, 0)->empty());
  none.add({1, 1, 1, 1, 2, 1});
  CHECK(none.write());
}
