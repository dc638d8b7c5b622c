#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>
#include <vector>

#include "harness/scratch.hpp"
#include "harness/source_dir.hpp"

// Users paste the README's commands first. Each block is run here, in order.

using troupe::test::scratch;

namespace {

namespace fs = std::filesystem;

struct block {
  std::size_t line = 0;  // of the page, where its first command is
  std::string script;
};

bool is_command(const std::string& line) {
  return line.starts_with("build/release/troupe ") || line.starts_with("./dev ");
}

/// The commands of a page's code blocks (indented by four blanks, or fenced): lines that begin with
/// the program or ./dev, or stand behind a "$ ". What else is in a block is their output.
std::vector<block> command_blocks(const std::string& page) {
  std::vector<block> blocks;
  std::istringstream in{page};
  bool fenced = false, inside = false;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with("```")) {
      fenced = !fenced;
      inside = false;
      continue;
    }
    const bool code = fenced || line.starts_with("    ");
    if (!code) {
      inside = false;
      continue;
    }
    auto words = fenced ? line : line.substr(4);
    if (words.starts_with("$ ")) words.erase(0, 2);
    if (!is_command(words)) continue;
    if (!inside) blocks.push_back({number, {}});
    inside = true;
    blocks.back().script += words + "\n";
  }
  return blocks;
}

std::string read(const fs::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::vector<block> readme() {
  return command_blocks(read(fs::path{troupe::test::source_dir()} / "README.md"));
}

std::string without_dev(const std::string& script) {
  std::string rest;
  std::istringstream in{script};
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("./dev ")) rest += line + "\n";
  return rest;
}

/// Pastes a script into a shell in this directory; the last line that it printed if one failed.
std::string paste(const std::string& script, const fs::path& directory) {
  const scratch where;
  const auto file = where.write("pasted.sh", "set -e\ncd '" + directory.string() + "'\n" + script);
  const int status = std::system(("env -u TROUPE_STATE -u TROUPE_CONTROLLER -u TROUPE_KEYS bash " +
                                  file + " >" + where.path("said") + " 2>&1 </dev/null")
                                     .c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const auto said = read(where.path("said"));
  return "failed:\n" + said.substr(said.size() - std::min<std::size_t>(said.size(), 4000));
}

/// The program as a fresh build has it, and the files that its commands name.
void link_shipped(const scratch& where) {
  fs::create_directories(where / "build/release");
  fs::create_symlink(TROUPE_PROGRAM, where / "build/release/troupe");
  for (const auto* folder : {"configs", "examples"})
    fs::create_symlink(fs::path{troupe::test::source_dir()} / folder, where / folder);
}

/// Has the interpreter of workers PyTorch?
bool has_torch() {
  return std::system("${TROUPE_PYTHON:-python3} -c 'import torch' >/dev/null 2>&1") == 0;
}

/// Does it train by workers, or use what they have trained?
bool needs_torch(const std::string& script) {
  for (const auto* part : {"examples/pytorch", "configs/jobs/tune-", "--adapter "})
    if (script.find(part) != std::string::npos) return true;
  return false;
}

/// Ends the clusters that a block may have left running.
struct ends_with_down {
  fs::path directory;
  ~ends_with_down() {
    paste("build/release/troupe down", directory);
    paste("build/release/troupe down --state out/serving", directory);
  }
};

}  // namespace

TEST_CASE("commands are found in indented and fenced blocks, and their output is skipped") {
  const auto found = command_blocks(
      "text build/release/troupe no\n\n    ./dev demo  # why\n    ./dev test\n\n"
      "    $ build/release/troupe plan x\n    some output\n\n```\nbuild/release/troupe up\n"
      "other --words\nbuild/release/troupe down \n```\n");
  REQUIRE(found.size() == 3);
  CHECK(found[0].line == 3);
  CHECK(found[0].script == "./dev demo  # why\n./dev test\n");
  CHECK(found[1].script == "build/release/troupe plan x\n");
  CHECK(found[2].script == "build/release/troupe up\nbuild/release/troupe down \n");
}

TEST_CASE("every block of commands in the README works with the present build") {
  const scratch where;
  link_shipped(where);
  const ends_with_down end{where.path()};
  const auto blocks = readme();
  std::string all;
  for (const auto& b : blocks) {
    all += b.script;
    INFO("README.md:" << b.line << ":\n" << b.script);
    if (needs_torch(b.script) && !has_torch()) {
      WARN("not run without PyTorch:\n" << b.script);
      continue;
    }
    CHECK(paste(without_dev(b.script), where.path()) == "");
  }
  for (const auto* verb :
       {"up", "submit", "explain", "logs", "move", "train", "infer", "simulate", "plan", "whatif"})
    CHECK(all.find("build/release/troupe " + std::string{verb} + " ") != std::string::npos);
}

TEST_CASE("every block of commands of the page about fine-tuning works with the present build") {
  const scratch where;
  link_shipped(where);
  const ends_with_down stops{where.path()};
  const auto page = read(fs::path{troupe::test::source_dir()} / "docs/fine_tuning.md");
  const auto blocks = command_blocks(page);
  CHECK(blocks.size() >= 2);
  for (const auto& b : blocks) {
    INFO("docs/fine_tuning.md:" << b.line << ":\n" << b.script);
    if (needs_torch(b.script) && !has_torch()) {
      WARN("not run without PyTorch:\n" << b.script);
      continue;
    }
    CHECK(paste(b.script, where.path()) == "");
  }
  const std::string fence = "```python\n";
  const auto begin = page.find(fence);
  REQUIRE(begin != std::string::npos);
  const auto end = page.find("```", begin + fence.size());
  const auto script =
      where.write("block.py", page.substr(begin + fence.size(), end - begin - fence.size()));
  if (!has_torch()) {
    WARN("not run without PyTorch: the block in Python");
    return;
  }
  CHECK(paste("PYTHONPATH='" + troupe::test::source_dir() +
                  "/python' ${TROUPE_PYTHON:-python3} -B " + script,
              where.path()) == "");
}

TEST_CASE("the job of a program in the README is the file that it names") {
  const fs::path source{troupe::test::source_dir()};
  std::istringstream lines{read(source / "configs/jobs/elastic.yaml")};
  std::string block;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#")) block += "    " + line + "\n";
  CHECK(block.find("import time, troupe") != std::string::npos);
  CHECK(read(source / "README.md").find("\n\n" + block + "\n") != std::string::npos);
}

TEST_CASE("every block of commands in the README works in a fresh clone", "[.][fresh]") {
  const scratch where;
  REQUIRE(paste("git clone -q '" + troupe::test::source_dir() + "' clone", where.path()) == "");
  const fs::path clone{where / "clone"};
  const ends_with_down end{clone};
  for (const auto& b : readme()) {
    INFO("README.md:" << b.line << ":\n" << b.script);
    REQUIRE(paste(b.script, clone) == "");
  }
}
