#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/program.hpp"

using namespace troupe::test;

// Messages for invalid arguments and for paths that cannot be written.

namespace {

bool says(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

std::vector<std::string> all_verbs_listed() {
  std::vector<std::string> names;
#define TROUPE_VERB(name, summary) names.push_back(#name);
#include "cli/verbs/verbs.def"
#undef TROUPE_VERB
  return names;
}

}  // namespace

TEST_CASE("every verb's help ends with an example and names the page about the files") {
  for (const auto& verb : all_verbs_listed()) {
    const auto r = ::troupe::test::troupe({verb, "--help"});
    INFO(verb << ": " << r.out);
    CHECK(r.status == 0);
    const auto example = r.out.find("Example");
    REQUIRE(example != std::string::npos);
    CHECK(says(r.out.substr(example), "troupe " + verb));
    CHECK(says(r.out, "docs/files.md"));
  }
}

TEST_CASE("the examples in the help of verbs that need neither a cluster nor long work as typed") {
  const scratch where;
  std::filesystem::create_symlink(std::filesystem::path{shipped("jobs")}.parent_path(),
                                  where / "configs");
  for (const std::string verb : {"plan", "estimate", "whatif", "infer", "keys", "version"}) {
    const auto help = ::troupe::test::troupe({verb, "--help"}).out;
    std::istringstream lines{help.substr(help.find("\nExample:\n"))};
    std::size_t typed = 0;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("  troupe ")) continue;
      const auto script = where.write("typed.sh", "cd '" + where.path() + "'\ntroupe() { '" +
                                                      TROUPE_PROGRAM + "' \"$@\"; }\n" + line);
      INFO(line);
      CHECK(std::system(("sh " + script + " >/dev/null 2>&1").c_str()) == 0);
      ++typed;
    }
    CHECK(typed > 0);
  }
}

TEST_CASE(
    "negative numbers, unknown policies and unknown verbs are refused with the valid choices") {
  const auto job = shipped("jobs/figure6.yaml");
  const auto seed = ::troupe::test::troupe({"train", job, "--seed", "-1"});
  CHECK(seed.status == 2);
  CHECK(says(seed.err, "'-1'"));
  CHECK(seed.out.empty());
  CHECK(::troupe::test::troupe({"train", job, "--iterations", "-3"}).status == 2);
  CHECK(::troupe::test::troupe({"train", job, "--seed", "1"}).status == 0);

  const auto policy = ::troupe::test::troupe({"plan", shipped("jobs/hello.yaml"), "--cluster",
                                              shipped("clusters/demo.yaml"), "--policy", "slurm"});
  CHECK(policy.status == 2);
  CHECK(says(policy.err, "no policy 'slurm'"));
  for (const auto* known : {"frenzy", "fcfs", "sia"}) CHECK(says(policy.err, known));
  CHECK_FALSE(says(policy.err, "did you mean"));

  CHECK_FALSE(says(::troupe::test::troupe({"bogus"}).err, "did you mean"));
  CHECK(says(::troupe::test::troupe({"statsu"}).err, "did you mean 'status'"));
}

TEST_CASE("an output file that cannot be written is refused by its own name before any work") {
  const auto job = shipped("jobs/figure6.yaml");
  const scratch directory;
  for (const auto& path :
       {std::string{"/proc/x.html"}, directory.path("none/x.html"), directory.path()}) {
    for (const auto* option : {"--picture", "--timeline"}) {
      const auto r = ::troupe::test::troupe({"train", job, option, path});
      INFO(path << ": " << r.err);
      CHECK(r.status == 2);
      CHECK(says(r.err, "cannot write " + path + ": "));
      CHECK_FALSE(says(r.err, "run1"));
      CHECK(r.out.empty());
    }
  }
  const auto out =
      ::troupe::test::troupe({"simulate", "--cluster", shipped("clusters/frenzy-sim.yaml"),
                              "--trace", shipped("traces/philly-day.csv"), "--out", "/proc/day"});
  CHECK(out.status == 2);
  CHECK(says(out.err, "cannot write /proc/day: "));
}

TEST_CASE("a gpus.yaml of another kind is reported once, and jobs are checked without it") {
  const scratch directory;
  directory.write("gpus.yaml", "name: gpus\nmodel: gpt2-124m\nglobal_batch: 2\niterations: 1\n");
  std::vector<std::string> words{"check"};
  for (const auto* name : {"a.yaml", "b.yaml", "c.yaml"})
    words.push_back(
        directory.write(name, "name: j\nmodel: gpt2-124m\nglobal_batch: 2\niterations: 1\n"));
  auto jobs = ::troupe::test::troupe(words);
  INFO(jobs.err);
  CHECK(jobs.status == 0);
  CHECK(jobs.err.empty());
  for (const auto* name : {"d.yaml", "e.yaml"})
    words.push_back(directory.write(
        name,
        "name: c\ndatacenters:\n  - name: dc1\n    nodes:\n      - {name: a, gpu: T4, gpus: 1, "
        "intra: pcie3, inter: eth10}\n"));
  const auto all = ::troupe::test::troupe(words);
  INFO(all.err);
  CHECK(all.status == 2);
  std::size_t notified = 0;
  for (auto at = all.err.find("rename it"); at != std::string::npos;
       at = all.err.find("rename it", at + 1))
    ++notified;
  CHECK(notified == 1);
}

TEST_CASE("check warns of unusually long sequences") {
  const auto r = ::troupe::test::troupe({"check", shipped("models/qwen2-0.5b.json"), "--json"});
  CHECK(r.status == 0);
  CHECK(says(r.document()["files"][0]["warnings"][0], "131,072"));
}

TEST_CASE("a study in slots prints slots, and equivalent orders are one sentence") {
  const auto train =
      ::troupe::test::troupe({"train", shipped("jobs/figure6.yaml"), "--schedule", "varuna"});
  CHECK(train.status == 0);
  CHECK(says(train.out, "1 iteration of 38 slots"));
  CHECK_FALSE(says(train.out, "GB"));
  const auto whatif = ::troupe::test::troupe({"whatif", shipped("jobs/atlas-sixty.yaml"),
                                              "--cluster", shipped("clusters/atlas-sim.yaml")});
  CHECK(whatif.status == 0);
  CHECK(says(whatif.out, "slots per iteration"));
  CHECK(says(whatif.out, "are equivalent"));
  CHECK_FALSE(says(whatif.out, "cost"));
}

TEST_CASE("a plan that does not fit prints only the reason") {
  const auto r = ::troupe::test::troupe(
      {"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster", shipped("clusters/laptop.yaml")});
  CHECK(r.status == 1);
  CHECK(r.out.empty());
  CHECK_FALSE(r.err.empty());
}
