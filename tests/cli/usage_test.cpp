#include <catch2/catch.hpp>

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/program.hpp"

using namespace troupe::test;

// Rules for all verbs: JSON errors, help, version, standard input.

namespace {

namespace fs = std::filesystem;

/// A shell's line in a directory, with $T for the program.
result shell(const std::string& line, const fs::path& directory = ".") {
  const scratch where;
  const auto script = where.write("line.sh", "cd '" + fs::absolute(directory).string() + "'\nT='" +
                                                 TROUPE_PROGRAM + "'\n" + line + "\n");
  const auto out = where / "out", err = where / "err";
  const int status = std::system(("sh " + script + " >" + out + " 2>" + err).c_str());
  const auto text = [](const std::string& file) {
    std::ifstream in{file};
    return std::string{std::istreambuf_iterator<char>{in}, {}};
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text(out), text(err)};
}

}  // namespace

TEST_CASE("with --json every failure prints one document with its sentence and code") {
  const scratch where;
  const auto bad = where.write("bad.yaml", "name: x\nmodel: gpt2-124m\nglobal_batch: 4k\n");
  const auto nowhere = where / "state";
  struct failure {
    std::vector<std::string> words;
    int status;
    const char* code;
  };
  const std::vector<failure> failures{
      {{"submit", bad, "--json"}, 2, "invalid"},
      {{"submit", where / "missing.yaml", "--json"}, 2, "invalid"},
      {{"status", "--json", "--state", nowhere, "--patience", "0.1"}, 1, "unavailable"},
      {{"explain", "9", "--json", "--state", nowhere, "--patience", "0.1"}, 1, "unavailable"},
      {{"logs", "9", "--json", "--state", nowhere, "--patience", "0.1"}, 1, "unavailable"},
      {{"cancel", "9", "--json", "--state", nowhere, "--patience", "0.1"}, 1, "unavailable"},
      {{"down", "--json", "--state", nowhere}, 1, "refused"},
      {{"queue", "--json", "--bogus"}, 2, "invalid"},
      {{"explain", "--json"}, 2, "invalid"},
      {{"bogus", "--json"}, 2, "invalid"},
      {{"plan", shipped("jobs/hello.yaml"), "--json", "--cluster", bad}, 2, "invalid"},
  };
  for (const auto& f : failures) {
    const auto r = troupe::test::troupe(f.words);
    INFO(f.words[0] << ": " << r.out << r.err);
    CHECK(r.status == f.status);
    const auto d = r.document();
    CHECK(d.at("code") == f.code);
    CHECK(r.err == "troupe: " + d.at("error").get<std::string>() + "\n");
  }
}

TEST_CASE("with --json a bad file's document has its name, its line and the text found there") {
  const scratch where;
  const auto bad = where.write("bad.yaml", "name: x\nmodel: gpt2-124m\nglobal_batch: 4k\n");
  const auto d = troupe::test::troupe({"submit", bad, "--json"}).document();
  CHECK(d.at("file") == bad);
  CHECK(d.at("line") == 3);
  CHECK(d.at("found").get<std::string>().find("4k") != std::string::npos);
  const auto missing =
      troupe::test::troupe({"submit", where / "missing.yaml", "--json"}).document();
  CHECK(missing.at("file") == where / "missing.yaml");
  CHECK_FALSE(missing.contains("line"));
}

TEST_CASE("version prints version, commit, formats and devices") {
  for (const auto* word : {"version", "--version", "-V"}) {
    const auto r = troupe::test::troupe({word});
    CHECK(r.status == 0);
    CHECK_THAT(r.out, Catch::Contains("troupe 0.") && Catch::Contains("(commit ") &&
                          Catch::Contains("protocol ") && Catch::Contains("journal ") &&
                          Catch::Contains("device cpu: usable") &&
                          Catch::Contains("device cuda: "));
  }
  const auto d = troupe::test::troupe({"version", "--json"}).document();
  CHECK(d.at("devices").at("cpu").at("usable") == true);
  const auto& cuda = d.at("devices").at("cuda");
  CHECK(cuda.at("usable").get<bool>() == cuda.at("reason").is_null());
  const auto commit = d.at("commit").get<std::string>();
  CHECK((commit == "unknown" || commit.size() >= 12));
}

TEST_CASE("version says which Python package programs get, and whether policies can be in Python") {
  constexpr bool policies = TROUPE_HAS_PYTHON;
  const auto d = troupe::test::troupe({"version", "--json"}).document();
  const auto version = d.at("python_package").get<std::string>();
  const auto folder = d.at("python_package_folder").get<std::string>();
  CHECK_THAT(shell("cat '" + folder + "/troupe/__init__.py'").out,
             Catch::Contains("\n__version__ = \"" + version + "\"\n"));
  CHECK(d.at("python_policies").get<bool>() == policies);
  CHECK_THAT(
      troupe::test::troupe({"version"}).out,
      Catch::Contains("python package: " + version + " in " + folder + "\n") &&
          Catch::Contains(policies ? "policies in python: found\n" : "policies in python: not bu"));
}

TEST_CASE("version of a program without what is installed beside it says that Python is missing") {
  const scratch where;
  const auto alone = where / "alone";
  REQUIRE(shell("ln $T " + alone + " 2>/dev/null || cp $T " + alone).status == 0);
  const auto r = shell(alone + " version && " + alone + " version --json");
  CHECK(r.status == 0);
  CHECK_THAT(r.out, Catch::Contains("python package: not found") &&
                        Catch::Contains("policies in python: not built") &&
                        Catch::Contains("\"python_package\": null") &&
                        Catch::Contains("\"python_policies\": false"));
}

TEST_CASE("without a verb the error says that one is required, and of which program") {
  for (const auto& words : {std::vector<std::string>{}, {"--json"}, {"keys"}}) {
    const auto r = troupe::test::troupe(words);
    CHECK(r.status == 2);
    CHECK_THAT(r.err, Catch::Contains("a verb is required (see troupe"));
  }
}

TEST_CASE("`help` and `help VERB` are the same as --help") {
  CHECK(troupe::test::troupe({"help"}).out == troupe::test::troupe({"--help"}).out);
  CHECK(troupe::test::troupe({"help", "submit"}).out ==
        troupe::test::troupe({"submit", "--help"}).out);
  CHECK(troupe::test::troupe({"help", "submit"}).status == 0);
  CHECK(troupe::test::troupe({"help", "bogus"}).status == 2);
}

TEST_CASE("a job and a cluster can come from standard input") {
  CHECK(shell("cd " + shipped("jobs") + " && $T check - <hello.yaml").status == 0);
  CHECK(shell("cd " + shipped("jobs") + " && cat hello.yaml | $T check /dev/stdin").status == 0);
  const auto bad = shell("printf 'name: x\\nmodel: 3x\\n' | $T check - --as job");
  CHECK(bad.status == 2);
  CHECK_THAT(bad.err, Catch::Contains("-:2: model:"));
}

TEST_CASE("a command's words are refused by number if they are not UTF-8") {
  const auto r = shell("$T submit --state /nowhere -- echo \"$(printf 'caf\\351.py')\" --json");
  CHECK(r.status == 2);
  CHECK_THAT(r.err, Catch::Contains("word 2 of the command: found 'caf\\xe9.py', expected UTF-8"));
}

TEST_CASE("an option's value that is not UTF-8 is refused by the option's name, a path is not") {
  const std::vector<std::pair<std::string, std::string>> lines{
      {"submit --name \"$X\" -- true", "--name"},
      {"submit --model \"$X\" -- true", "--model"},
      {"infer \"$X\" --url http://127.0.0.1:1", "PROMPT"},
      {"infer a --stop \"$X\" --url http://127.0.0.1:1", "--stop"},
      {"drain \"$X\" --state /nowhere", "NODE"},
      {"status --name \"$X\" --state /nowhere", "--name"}};
  for (const auto& [line, option] : lines) {
    CAPTURE(line);
    const auto r = shell("X=$(printf 'caf\\351')\n$T " + line);
    CHECK(r.status == 2);
    CHECK(r.err == "troupe: " + option + ": found 'caf\\xe9', expected UTF-8\n");
  }
  const auto half = shell("$T submit --name \"$(printf '\\355\\240\\200')\" -- true");
  CHECK_THAT(half.err, Catch::Contains("expected UTF-8"));
  const auto path = shell(
      "X=/tmp/$$-$(printf 'caf\\351')\nprintf 'name: x\\nglobal_batch: 2\\ncommand: [id]\\n' "
      ">\"$X\"\n$T check \"$X\" --as job\nstatus=$?\nrm \"$X\"\nexit $status");
  INFO(path.err);
  CHECK(path.status == 0);
}

TEST_CASE("options of other schedulers' commands are refused with what to use here") {
  const auto said = [](std::vector<std::string> words) {
    words.insert(words.begin(), "submit");
    words.insert(words.end(), {"--", "true"});
    const auto r = troupe::test::troupe(words);
    CHECK(r.status == 2);
    return r.err;
  };
  CHECK(said({"--time", "1h"}) ==
        "troupe: unknown option '--time'; in a job file (docs/files.md): time_limit_s limits how "
        "long it runs, deadline_s when it ends\n");
  CHECK_THAT(said({"--time=1h"}), Catch::Contains("time_limit_s"));
  for (const auto* nodes : {"--nodes", "-N", "--nnodes"})
    CHECK_THAT(said({nodes, "2"}), Catch::Contains("gpus is the total number of GPUs"));
  CHECK_THAT(said({"-N2"}), Catch::Contains("gpus is the total number of GPUs"));
  CHECK_THAT(said({"--array", "1-4"}), Catch::Contains("submit one job for each"));
  CHECK_THAT(said({"--dependency", "3"}), Catch::Contains("troupe wait"));
  CHECK_THAT(said({"--gpus-per-node", "3"}), Catch::Contains("gpus is the total number of GPUs"));
  CHECK_THAT(said({"--gpus", "2", "--bogus", "3"}), Catch::Contains("--bogus"));
  CHECK_THAT(troupe::test::troupe({"salloc"}).err, Catch::Contains("troupe submit"));
  CHECK_THAT(troupe::test::troupe({"sprio"}).err, Catch::Contains("troupe explain"));
}

TEST_CASE("the name of a job that is made from its command is always valid") {
  // Without a cluster the name is all that could be refused.
  for (const char* program : {"./.run.sh", "./-x.sh", "./...", "./\u00e9t\u00e9"}) {
    CAPTURE(program);
    const auto r = troupe::test::troupe({"submit", "--state", "/nowhere", "--", program});
    CHECK_THAT(r.err, !Catch::Contains("name"));
  }
}

TEST_CASE("submitting a cluster or model file is refused by its kind") {
  CHECK_THAT(troupe::test::troupe({"submit", shipped("clusters/demo.yaml")}).err,
             Catch::Contains("is a cluster, expected a job"));
  CHECK_THAT(troupe::test::troupe({"submit", shipped("models/gpt2-124m.yaml")}).err,
             Catch::Contains("is a model, expected a job"));
}

TEST_CASE("check and submit refuse a job's own value for a variable that Troupe sets") {
  const scratch where;
  for (const auto* name : {"RANK", "CUDA_VISIBLE_DEVICES", "PET_NNODES", "TROUPE_JOB"}) {
    const auto job = where.write("job.yaml",
                                 "name: x\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [env]\n"
                                 "environment: {" +
                                     std::string{name} + ": \"9\"}\n");
    for (const auto* verb : {"check", "submit"}) {
      const auto r = troupe::test::troupe({verb, job});
      CHECK(r.status == 2);
      CHECK_THAT(r.err, Catch::Contains("job.yaml:5: environment: '" + std::string{name} +
                                        "' is set by Troupe"));
    }
  }
}

TEST_CASE("demo and train do not empty a directory that they have not created") {
  const scratch where;
  const auto precious = where.write("precious.txt", "mine");
  const auto demo = troupe::test::troupe({"demo", "--out", where.path()});
  CHECK(demo.status == 1);
  CHECK_THAT(demo.err, Catch::Contains("is not emptied"));
  CHECK(fs::exists(precious));
  fs::create_directories(where / "out/train");
  const auto kept = where.write("out/train/notes.txt", "mine");
  const auto train = troupe::test::troupe(
      {"train", shipped("jobs/train-two-stages.yaml"), "--world", "local"}, where.path());
  CHECK(train.status == 1);
  CHECK(fs::exists(kept));
}
