#include <catch2/catch.hpp>

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/inherited_variables.hpp"
#include "runtime/process/process.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

std::string why(const process_options& o, int error) {
  return describe({start_failure::step::program, error}, o);
}

}  // namespace

TEST_CASE("what cannot be run is named as it is: a script's interpreter, a link's end, a folder") {
  const scratch where;
  const auto file = [&](const std::string& name, const std::string& text) {
    const auto path = where.write(name, text);
    fs::permissions(path, fs::perms::owner_all);
    return path;
  };
  const auto windows = file("windows", "#!/bin/bash\r\nexit\r\n");
  const auto said = why({.command = {windows}}, ENOENT);
  CHECK_THAT(said, Catch::StartsWith("cannot run " + windows) &&
                       Catch::Contains("/bin/bash\\r, with a carriage return"));
  CHECK(said.find('\r') == std::string::npos);
  CHECK_THAT(why({.command = {file("blank", "#! /no/such -u\n")}}, ENOENT),
             Catch::Contains("names the interpreter /no/such, which does not exist"));
  CHECK_THAT(why({.command = {file("elf",
                                   "\x7f"
                                   "ELF and so on")}},
                 ENOENT),
             Catch::Contains("the loader that it names is not there"));
  // Relative names count from the program's own directory.
  CHECK_THAT(why({.command = {"./windows"}, .directory = where.path()}, ENOENT),
             Catch::Contains("carriage return"));
  CHECK(why({.command = {"./none"}, .directory = where.path()}, ENOENT) ==
        "cannot run ./none: No such file or directory");
  CHECK_THAT(why({.command = {"windows"}, .environment = {{"PATH", where.path()}}}, ENOENT),
             Catch::Contains("carriage return"));
  CHECK(why({.command = {where.path()}}, EACCES) ==
        "cannot run " + where.path() + ": it is a directory");
  // A script whose interpreters name each other ends somewhere.
  file("a", "#!" + where / "b" + "\n");
  file("b", "#!" + where / "a" + "\n");
  CHECK(why({.command = {where / "a"}}, ENOENT).size() < 2000);
  ::setenv("TROUPE_PYTHON", "/no/such/python", 1);
  CHECK_THAT(why({.command = {"/no/such/python", "-m", "troupe.worker"}}, ENOENT),
             Catch::Contains("/no/such/python (TROUPE_PYTHON): No such file"));
  ::unsetenv("TROUPE_PYTHON");
}

TEST_CASE("a program that is there and cannot be run has exit status 126, any other 127") {
  using step = start_failure::step;
  CHECK(exit_status_of({step::program, ENOENT}) == 127);
  for (const int error : {EACCES, ENOEXEC, E2BIG, ETXTBSY})
    CHECK(exit_status_of({step::program, error}) == 126);
  CHECK(exit_status_of({step::directory, ENOENT}) == 127);
  CHECK(exit_status_of({step::fork, EAGAIN}) == 127);
}

TEST_CASE("a program inherits no variable of another launcher, and has those that it is given") {
  const std::vector<std::string> foreign{"SLURM_JOB_ID",
                                         "SLURM_NTASKS",
                                         "SBATCH_ACCOUNT",
                                         "SRUN_DEBUG",
                                         "PMI_RANK",
                                         "PMIX_RANK",
                                         "OMPI_COMM_WORLD_RANK",
                                         "PET_RDZV_ENDPOINT",
                                         "TORCHELASTIC_RUN_ID",
                                         "GROUP_RANK",
                                         "GROUP_WORLD_SIZE",
                                         "ROLE_RANK",
                                         "MPI_LOCALRANKID",
                                         "HYDRA_LAUNCHER",
                                         "PBS_JOBID",
                                         "RANK",
                                         "WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "LOCAL_RANK",
                                         "TROUPE_ITERATIONS",
                                         "TROUPE_JOB",
                                         "LSB_JOBID"};
  const std::vector<std::string> own{
      "CUDA_VISIBLE_DEVICES", "TROUPE_STATE", "GROUP", "PETS", "SLURMY", "ROLE", "PMIXED"};
  for (const auto* list : {&foreign, &own})
    for (const auto& name : *list) ::setenv(name.c_str(), "inherited", 1);
  const scratch where;
  const auto p = process::start(
      {.command = {"env"}, .environment = {{"SLURM_JOB_ID", "given"}}, .output = where / "out"});
  for (const auto* list : {&foreign, &own})
    for (const auto& name : *list) ::unsetenv(name.c_str());
  REQUIRE(p);
  REQUIRE(wait_until([&] { return (*p)->poll().has_value(); }, 60));
  const auto lines = "\n" + read_file(where / "out");
  for (const auto& name : foreign) {
    INFO(name);
    CHECK(belongs_to_another_job(name));
    CHECK(lines.find("\n" + name + "=inherited\n") == std::string::npos);
  }
  for (const auto& name : own) {
    INFO(name);
    CHECK(lines.find("\n" + name + "=inherited\n") != std::string::npos);
  }
  CHECK(lines.find("\nSLURM_JOB_ID=given\n") != std::string::npos);
}
