#include "actors/node/program_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "harness/scratch.hpp"
#include "messages/base/untrusted_file.hpp"
#include "runtime/host/stopwatch.hpp"

using namespace troupe;
using namespace troupe::actors;

TEST_CASE("the last valid numbers of a program's report count, and invalid lines are skipped") {
  const auto r =
      parse_program_report("iterations: 5\nnoise\niterations: 12\npeak_bytes: 1.5e9\r\n");
  CHECK(r.iterations == 12);
  CHECK(r.peak_bytes == 1.5e9);
  for (const auto* bad : {"inf", "-inf", "nan", "-1", "1e300", "0x10z", "", "many", "1e16"}) {
    INFO(bad);
    const auto still = parse_program_report(std::string{"iterations: 3\niterations: "} + bad +
                                            "\npeak_bytes: " + bad);
    CHECK(still.iterations == 3);
    CHECK(still.peak_bytes == 0);
  }
}

TEST_CASE(
    "an oversized report file, or one that is not a regular file, costs no time and no memory") {
  const test::scratch dir;
  const auto file = dir / "report";
  std::uint64_t wanted = 0;
  SECTION("nothing") {}
  SECTION("a fifo") {
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  }
  SECTION("a link to a device") {
    REQUIRE(::symlink("/dev/zero", file.c_str()) == 0);
  }
  SECTION("a link to a file") {
    std::ofstream{dir / "secret"} << "iterations: 5\n";
    REQUIRE(::symlink((dir / "secret").c_str(), file.c_str()) == 0);
  }
  SECTION("a directory") {
    std::filesystem::create_directory(file);
  }
  SECTION("many gigabytes, and then numbers") {
    { std::ofstream{file} << "iterations: 5\n"; }
    std::filesystem::resize_file(file, 64ull << 30);
    std::ofstream{file, std::ios::app} << "\niterations: 7\n";
    wanted = 7;
  }
  const runtime::stopwatch watch;
  CHECK(read_program_report(file).iterations == wanted);
  CHECK(watch.s() < 1);
}

TEST_CASE("a lease's files belong to one incarnation of the node, and its newest log is found") {
  const test::scratch dir;
  const program_files old{dir.path(), 5}, now{dir.path(), 12};
  CHECK(now.newest_log(7).empty());
  REQUIRE_FALSE(old.make(7));
  std::ofstream{old.report(7)} << "iterations: 99\n";
  CHECK(now.newest_log(7) == old.log(7));
  REQUIRE_FALSE(now.make(7));
  CHECK(now.newest_log(7) == now.log(7));
  CHECK(read_program_report(now.report(7)).iterations == 0);
  REQUIRE_FALSE(now.make(71));
  CHECK(now.newest_log(7) == now.log(7));
}

TEST_CASE("a log above its size limit drops its older half, and its path stays the same") {
  const test::scratch dir;
  const auto file = dir / "log";
  const std::string line(1024, 'x');
  for (int i = 0; i < 1024; ++i) REQUIRE(troupe::append_to(file, line));
  REQUIRE(troupe::limit_disk_use(file, 2 << 20));
  CHECK(troupe::read_piece(file, 0, 10)->offset == 0);
  if (!troupe::limit_disk_use(file, 512 * 1024)) return;  // this file system has no hole punching
  const auto first = troupe::read_piece(file, 0, 10);
  REQUIRE(first);
  CHECK(first->offset == 768 * 1024);
  CHECK(first->bytes == std::string(10, 'x'));
  REQUIRE(troupe::append_to(file, "end"));
  const auto last = troupe::read_tail(file, 3);
  REQUIRE(last);
  CHECK(last->offset == 1024 * 1024);
  CHECK(last->bytes == "end");
}

TEST_CASE("what a program says of its iterations counts from the job's beginning") {
  const auto r = parse_program_report(
      "resumed: 400\niteration: 420\nsaved: 410\nstep_s: 0.5\nfinished: 0\nloss: -3\n");
  CHECK(r.resumed == 400u);
  CHECK(r.iteration == 420u);
  CHECK(r.saved == 410u);
  CHECK(r.step_s == 0.5);
  CHECK_FALSE(r.finished);
  CHECK(parse_program_report("finished: 1\n").finished);
  CHECK_FALSE(parse_program_report("finished: yes\n").finished);
  CHECK_FALSE(parse_program_report("saved: -1\nsaved: nan\n").saved);
  CHECK(r.reached(7) == 420u);
  CHECK(parse_program_report("iterations: 5\n").reached(100) == 105u);
  CHECK(parse_program_report("iterations: 5\nresumed: 90\n").reached(100) == 95u);
  CHECK(parse_program_report("resumed: 90\n").reached(100) == 90u);
  CHECK_FALSE(parse_program_report("peak_bytes: 5\nsaved: 3\n").reached(100));
}

TEST_CASE("the last line for each key of a program's report counts, even if it is 0") {
  const auto r =
      parse_program_report("iterations: 5\npeak_bytes: 7\niterations: 0\npeak_bytes: 0\n");
  CHECK(r.iterations == 0);
  CHECK(r.peak_bytes == 0);
  CHECK(parse_program_report("iterations: 5\niterations: -1\n").iterations == 5);
}

TEST_CASE("a report says whether the control file is read, and the last finite loss") {
  CHECK_FALSE(parse_program_report("iteration: 3\n").control);
  CHECK(parse_program_report("control: 1\niteration: 3\n").control);
  CHECK(parse_program_report("loss: -2.5\nloss: nan\nloss: inf\n").loss == -2.5);
  CHECK_FALSE(parse_program_report("loss: nan\n").loss);
}

TEST_CASE("a stop is requested by a new file, whatever the program has put in its place") {
  const test::scratch dir;
  const program_files files{dir.path(), 1};
  REQUIRE(!files.make(5));
  const auto control = files.control(5), kept = dir / "kept";
  std::ofstream{kept} << "as it was";
  bool possible = true;
  SECTION("nothing") {}
  SECTION("a link") {
    REQUIRE(::symlink(kept.c_str(), control.c_str()) == 0);
  }
  SECTION("a link where the new file is written first") {
    REQUIRE(::symlink(kept.c_str(), (control + ".new").c_str()) == 0);
    possible = false;
  }
  SECTION("a fifo") {
    REQUIRE(::mkfifo(control.c_str(), 0600) == 0);
  }
  SECTION("a directory") {
    std::filesystem::create_directory(control);
    possible = false;
  }
  CHECK(files.request_stop(5, 12.5).has_value() == possible);
  if (possible) CHECK(read_file(control, 100) == "stop: 1\nwithin_s: 12.5\n");
  CHECK(read_file(kept, 100) == "as it was");
}
