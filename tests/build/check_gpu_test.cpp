#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/shell.hpp"
#include "harness/source_dir.hpp"

// ./dev gpu on machines that are scripts: their driver, toolkit and build print what real ones
// would.

using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

struct gpu_machine {
  scratch where;

  gpu_machine() {
    // The programs of this machine, but none of NVIDIA's.
    fs::create_directories(where / "programs");
    for (const auto& program : fs::directory_iterator{"/usr/bin"})
      if (const auto name = program.path().filename().string(); !name.starts_with("nv"))
        fs::create_symlink(program.path(), where / ("programs/" + name));
    nvcc("13.0");
    fs::create_directories(where / "build");
    add("build/gpu_tests",
        "[ \"$TROUPE_TEST_DEVICE\" = cuda ] || { echo 'not on a GPU'; exit 1; }\n"
        "echo 'All tests passed (3 assertions in 2 test cases)'\n");
    add("build/bench_gpu_training",
        "name=$1\nwhile [ $# -gt 1 ]; do shift; done\n"
        "echo \"{\\\"part\\\": \\\"$name\\\"}\" >\"$1\"\n"
        "echo '| 124M | 16 | troupe | 401234 | 400000 | 40.8 |'\n"
        "echo '| 124M | 16 | PyTorch: there is no python3 with PyTorch |'\n");
  }

  void add(const std::string& name, const std::string& script) const {
    const auto file = where.write(name, "#!/bin/sh\n" + script);
    fs::permissions(file, fs::perms::owner_all);
  }
  void nvcc(const std::string& version) const {
    add("nvcc", "echo 'Cuda compilation tools, release " + version + ", V" + version + ".88'\n");
  }
  void card(const std::string& row) const {
    add("programs/nvidia-smi",
        "[ \"$1\" = --query-gpu=name,driver_version,compute_cap ] || exit 9\necho '" + row + "'\n");
  }
  command_result check() const {
    return run("PATH='" + where / "programs' CUDACXX='" + where / "nvcc' TROUPE_GPU_BUILD='" +
               where / "build' '" + source_dir() + "/dev' gpu '" + where / "out'");
  }
  nlohmann::json record() const {
    return nlohmann::json::parse(read_file(where / "out/record.json"));
  }
};

constexpr auto h100 = "NVIDIA H100 80GB HBM3, 580.95.05, 9.0";

bool has_line(const command_result& r, const std::string& beginning) {
  return ("\n" + r.said).find("\n" + beginning) != std::string::npos;
}

}  // namespace

TEST_CASE("./dev gpu gives a verdict on each check and ends with status 0 if all are right") {
  const gpu_machine m;
  m.card(h100);
  const auto r = m.check();
  INFO(r.said);
  CHECK(r.status == 0);
  CHECK(has_line(r,
                 "driver   ok       NVIDIA H100 80GB HBM3, driver 580.95.05, compute capability "
                 "9.0; of toolkits it runs 13.x and older\n"));
  CHECK(has_line(r, "toolkit  ok       " + m.where / "nvcc of the toolkit 13.0\n"));
  CHECK(has_line(r, "build    skipped "));
  CHECK(has_line(r, "tests    ok       All tests passed (3 assertions in 2 test cases)\n"));
  CHECK(has_line(r, "losses   ok "));
  CHECK(has_line(r,
                 "speed    ok       GPT-2 124M: troupe 401234 tokens/s; PyTorch: there is no "
                 "python3 with PyTorch\n"));
  const auto record = m.record();
  CHECK(record.at("checks").size() == 6);
  CHECK(record.at("checks")[3].at("check") == "tests");
  CHECK(record.at("losses").at("part") == "losses");
  CHECK(record.at("speed").at("part") == "speed");
}

TEST_CASE("./dev gpu goes on after a check that fails and ends with status 1") {
  const gpu_machine m;
  m.card(h100);
  SECTION("tests") {
    m.add("build/gpu_tests", "echo 'test cases: 2 | 1 passed | 1 failed'\nexit 1\n");
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r, "tests    failed   test cases: 2 | 1 passed | 1 failed"));
    CHECK(has_line(r, "speed    ok "));
    CHECK(m.record().at("checks")[3].at("verdict") == "failed");
  }
  SECTION("losses") {
    m.add("build/bench_gpu_training", "[ \"$1\" = speed ] || { echo '| no |'; exit 1; }\n");
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r, "losses   failed   status 1: | no |"));
    CHECK(has_line(r, "speed    ok "));
  }
  SECTION("losses that were compared without the GPU's") {
    m.add(
        "build/bench_gpu_training",
        "[ \"$1\" = speed ] || echo '| engine, CUDA, bf16 | left out: no usable CUDA device |'\n");
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r, "losses   failed   no usable CUDA device (all of it: "));
    CHECK(has_line(r, "speed    ok "));
  }
  SECTION("speed, whose program cannot open the GPU") {
    m.add("build/bench_gpu_training",
          "[ \"$1\" = losses ] || echo 'Left out: no usable CUDA device.'\n");
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r, "losses   ok "));
    CHECK(has_line(r, "speed    failed   no usable CUDA device."));
  }
}

TEST_CASE("./dev gpu says what to install where no GPU can be used") {
  const gpu_machine m;
  SECTION("no driver") {
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r, "driver   failed   there is no nvidia-smi: install NVIDIA's driver"));
    CHECK_FALSE(has_line(r, "tests "));
    CHECK(m.record().at("checks").size() == 1);
  }
  SECTION("a driver that does not work") {
    m.add("programs/nvidia-smi", "echo 'NVIDIA-SMI has failed'\nexit 9\n");
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r, "driver   failed   nvidia-smi failed: NVIDIA-SMI has failed\n"));
  }
  SECTION("a driver that is too old") {
    m.card("NVIDIA A100-SXM4-40GB, 470.82.01, 8.0");
    const auto r = m.check();
    CHECK(r.status == 1);
    CHECK(has_line(r, "driver   failed   driver 470.82.01 is too old"));
  }
  SECTION("a GPU that is too old") {
    m.card("Tesla T4, 580.95.05, 7.5");
    const auto r = m.check();
    CHECK(r.status == 1);
    CHECK(has_line(r,
                   "driver   failed   Tesla T4 has compute capability 7.5; the CUDA device "
                   "needs 8.0 or newer\n"));
  }
  SECTION("a toolkit that is newer than the driver") {
    m.card("NVIDIA H100 PCIe, 550.54.15, 9.0");
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r,
                   "driver   ok       NVIDIA H100 PCIe, driver 550.54.15, compute capability "
                   "9.0; of toolkits it runs 12.x and older\n"));
    CHECK(has_line(r, "toolkit  failed   " + m.where / "nvcc is of the toolkit 13.0, whose"));
    CHECK(r.said.find("apt install cuda-toolkit-12-9") != std::string::npos);
  }
  SECTION("a toolkit that is too old") {
    m.card(h100);
    m.nvcc("11.8");
    const auto r = m.check();
    INFO(r.said);
    CHECK(r.status == 1);
    CHECK(has_line(r, "toolkit  failed   " + m.where / "nvcc is of the toolkit 11.8, and 12.0"));
    CHECK(r.said.find("apt install cuda-toolkit-13-0") != std::string::npos);
  }
}
