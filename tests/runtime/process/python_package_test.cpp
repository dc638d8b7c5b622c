#include "runtime/process/python_package.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/processes.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

constexpr double limit_s = 20;

struct interpreters {
  scratch room;

  std::optional<std::string> torch_of(const std::string& interpreter, double limit = limit_s) {
    return find_torch(interpreter, room / "found", limit);
  }
  std::string script(const std::string& text) {
    const auto file = room / "interpreter";
    std::ofstream{file} << "#!/bin/sh\n" << text << "\n";
    ::chmod(file.c_str(), 0755);
    return file;
  }
};

/// Packages before the interpreter's own.
struct python_path {
  explicit python_path(const std::string& folder) { ::setenv("PYTHONPATH", folder.c_str(), 1); }
  ~python_path() { ::unsetenv("PYTHONPATH"); }
};

}  // namespace

TEST_CASE("PyTorch's version is what the interpreter prints, and nothing if that fails") {
  interpreters i;
  CHECK(i.torch_of(i.script("echo 2.9.1; echo more")) == "2.9.1");
  CHECK(i.torch_of(i.script("echo 2.9.1; exit 1")) == "");
  CHECK(i.torch_of(i.script("exit 0")) == "");
  CHECK(i.torch_of("/no/such/python") == "");
  CHECK_FALSE(std::filesystem::exists(i.room / "found"));
}

TEST_CASE("an interpreter that does not answer says nothing about PyTorch") {
  interpreters i;
  CHECK_FALSE(i.torch_of(i.script("sleep 60"), 0.1));
}

TEST_CASE("PyTorch is found without being imported, with the version of its package") {
  interpreters i;
  // Isolated, it has no packages.
  CHECK(i.torch_of(i.script("exec python3 -I -S \"$@\"")) == "");
  const python_path first{i.room.path()};
  std::filesystem::create_directory(i.room / "torch");
  std::ofstream{i.room / "torch/__init__.py"} << "raise SystemExit(3)\n";
  CHECK(i.torch_of("python3") == "unknown");
  std::filesystem::create_directory(i.room / "torch-9.9.dist-info");
  CHECK(i.torch_of("python3") == "9.9");
}
