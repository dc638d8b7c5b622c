#include <cstdlib>
#include <fstream>
#include <set>

#include "harness/shell.hpp"
#include "processes/detached.hpp"
#include "runtime/host/wait.hpp"

// Facts that scripts around jobs rely on: that output was written, that a program's own numbers
// count, what a program that cannot start is told, and where a job goes that is moved by hand.

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string two_types = R"(name: types
settings: {restart_s: 0, heartbeat_s: 0.2, lease_s: 20}
datacenters:
  - name: here
    nodes:
      - {name: fast, gpu: A100-80GB, gpus: 4, intra: nvlink, inter: ib100}
      - {name: slow, gpu: V100-32GB, gpus: 4, intra: pcie3, inter: eth25}
)";

/// A cluster for all tests of this file, which the last user of it ends.
class shared_types {
 public:
  shared_types() : cluster_{get()} {}
  const detached* operator->() const { return cluster_.get(); }
  fs::path folder() const { return fs::path{cluster_->where / "jobs"}; }

  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories(folder());
    const auto file = folder() / name;
    std::ofstream{file, std::ios::binary} << text;
    fs::permissions(file, fs::perms::owner_all);
    return file.string();
  }
  job_id submit(std::vector<std::string> words) const {
    words.insert(words.begin(), "submit");
    words.emplace_back("--json");
    // Words after `--` are the command's.
    if (const auto at = std::ranges::find(words, "--"); at != words.end()) {
      words.pop_back();
      words.insert(std::ranges::find(words, "--"), {"--json", "--state", cluster_->state});
    } else {
      words.insert(words.end(), {"--state", cluster_->state});
    }
    const auto r = troupe::test::troupe(words);
    INFO(r.out << r.err);
    REQUIRE(r.status == 0);
    return r.document().at("jobs").at(0).at("job");
  }
  nlohmann::json status(job_id job) const {
    return cluster_->ask({"status", std::to_string(job), "--json"}).document().at("jobs").at(0);
  }
  nlohmann::json ended(job_id job) const {
    (void)cluster_->ask({"wait", std::to_string(job)});
    return status(job);
  }
  std::string log(job_id job) const { return cluster_->ask({"logs", std::to_string(job)}).out; }
  void cancel(job_id job) const { (void)cluster_->ask({"cancel", std::to_string(job)}); }

 private:
  static std::shared_ptr<detached> get() {
    static std::weak_ptr<detached> known;
    auto now = known.lock();
    if (!now) {
      const scratch where;
      // As in a step of Slurm, or a rank of MPI or torchrun.
      const auto foreign = {"SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PET_RDZV_ID"};
      for (const auto* name : foreign) ::setenv(name, "77", 1);
      now = std::make_shared<detached>(std::vector<std::string>{"--policy", "fcfs"}, "",
                                       where.write("types.yaml", two_types));
      for (const auto* name : foreign) ::unsetenv(name);
      REQUIRE(now->said.status == 0);
      known = now;
    }
    return now;
  }
  std::shared_ptr<detached> cluster_;
};

/// Keeps the cluster from one test to the next.
const shared_types& types() {
  static const shared_types all;
  return all;
}

const std::string counts = R"(import sys, time, troupe
run = troupe.init(iterations=int(sys.argv[1]))
for i in run.steps():
    time.sleep(float(sys.argv[2]))
    run.report(i + 1)
    run.saved(i + 1)
)";

}  // namespace

TEST_CASE("a program without a number of iterations is done by its own, and everyone sees it") {
  const auto& c = types();
  const auto file = c.write("count.yaml", "name: count\ngpus: 1\ncommand: [python3, " +
                                              c.write("count.py", counts) + ", '30', '0.05']\n");
  const auto job = c.submit({file});
  const bool seen = runtime::wait_until(
      [&] {
        const auto s = c.status(job);
        return s.at("iteration").is_number() && s.at("iterations") == 30 &&
               s.at("iteration") < s.at("iterations");
      },
      long_s, 0.05);
  CHECK(seen);
  const auto table = c->ask({"status", std::to_string(job)}).out;
  CHECK_THAT(table, Catch::Contains("/30"));
  const auto s = c.ended(job);
  CHECK(s.at("state") == "finished");
  CHECK(s.at("iteration") == 30);
  CHECK(s.at("iterations") == 30);
  CHECK(s.at("iterations_done") == 30);
}

TEST_CASE("a suspended program keeps its last iteration, and goes on to it") {
  const auto& c = types();
  const auto file =
      c.write("slow.yaml", "name: slow\ngpus: 1\nelastic: {gpus: [1, 1]}\ncommand: [python3, " +
                               c.write("count.py", counts) + ", '40', '0.1']\n");
  const auto job = c.submit({file});
  REQUIRE(runtime::wait_until([&] { return c.status(job).at("iteration").is_number(); }, long_s));
  REQUIRE(c->ask({"suspend", std::to_string(job)}).status == 0);
  CHECK_THAT(c->ask({"explain", std::to_string(job)}).out,
             Catch::Contains(" of 40; `troupe resume"));
  CHECK(c.status(job).at("iterations") == 40);
  REQUIRE(c->ask({"resume", std::to_string(job)}).status == 0);
  const auto s = c.ended(job);
  CHECK(s.at("state") == "finished");
  CHECK(s.at("iterations_done") == 40);
  CHECK(s.at("attempts") == 2);
}

TEST_CASE("a program has the numbers of its file and no others, nor other launchers' variables") {
  const auto& c = types();
  const auto of = [&](const std::string& name, const std::string& keys) {
    const auto job = c.submit(
        {c.write(name + ".yaml", "name: " + name + "\ngpus: 1\n" + keys + "command: [env]\n")});
    CHECK(c.ended(job).at("state") == "finished");
    std::set<std::string> lines;
    std::istringstream in{c.log(job)};
    for (std::string line; std::getline(in, line);) lines.insert(line);
    return lines;
  };
  const auto has = [](const std::set<std::string>& lines, const std::string& begin) {
    return std::ranges::any_of(lines, [&](const auto& l) { return l.starts_with(begin); });
  };
  const auto silent = of("silent", "");
  CHECK_FALSE(has(silent, "TROUPE_ITERATIONS="));
  CHECK_FALSE(has(silent, "TROUPE_GLOBAL_BATCH="));
  for (const auto* of_others : {"SLURM_", "OMPI_", "PMI_", "PET_RDZV_"})
    CHECK_FALSE(has(silent, of_others));
  const auto one = of("one", "iterations: 1\nglobal_batch: 1\n");
  CHECK(one.contains("TROUPE_ITERATIONS=1"));
  CHECK(one.contains("TROUPE_GLOBAL_BATCH=1"));
  const auto many =
      of("many", "iterations: 7\nglobal_batch: 8\nenvironment: {SLURM_JOB_ID: '5'}\n");
  CHECK(many.contains("TROUPE_ITERATIONS=7"));
  CHECK(many.contains("TROUPE_GLOBAL_BATCH=8"));
  CHECK(many.contains("SLURM_JOB_ID=5"));
  const auto by_options =
      c.submit({"--gpus", "1", "--iterations", "1", "--batch", "1", "--", "env"});
  CHECK(c.ended(by_options).at("state") == "finished");
  CHECK_THAT(c.log(by_options), Catch::Contains("\nTROUPE_ITERATIONS=1\n") &&
                                    Catch::Contains("\nTROUPE_GLOBAL_BATCH=1\n"));
}

TEST_CASE("a program that cannot start says what is missing, with a shell's exit status") {
  const auto& c = types();
  fs::create_directories(c.folder() / "folder");
  fs::create_symlink("/no/such/python3.9", c.folder() / "python");
  std::ofstream{c.folder() / "text"} << "not executable";
  std::ofstream{c.folder() / "cut", std::ios::binary} << std::string(
      "\x7f"
      "ELF\0\0\0",
      7);
  fs::permissions(c.folder() / "cut", fs::perms::owner_all);
  const auto at = [&](const std::string& name) { return (c.folder() / name).string(); };
  struct unstartable {
    std::string word;
    int status;
    std::string says;
  };
  const std::vector<unstartable> all{
      {c.write("windows.sh", "#!/bin/sh\r\nexit 0\r\n"), 127,
       "interpreter /bin/sh\\r, with a carriage"},
      {c.write("moved.py", "#!/no/such/venv/bin/python3\n"), 127,
       "interpreter /no/such/venv/bin/python3, which does not exist"},
      {c.write("twice", "#!" + at("moved.py") + "\n"), 127,
       "/no/such/venv/bin/python3, which does not exist"},
      {at("python"), 127, "is a link to /no/such/python3.9, which does not exist"},
      {at("nothing"), 127, "nothing: No such file or directory"},
      {at("text"), 126, "is not executable"},
      {at("folder"), 126, "is a directory"},
      {at("cut"), 126, "Exec format error"},
      {"python3 train.py", 127, "give each word by itself, as in command: [python, train.py]"},
  };
  std::vector<job_id> jobs;
  for (const auto& u : all) jobs.push_back(c.submit({"--gpus", "1", "--", u.word}));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto s = c.ended(jobs[i]);
    INFO(all[i].word << ": " << s.at("detail"));
    CHECK(s.at("state") == "failed");
    CHECK(s.at("exit_code") == all[i].status);
    CHECK_THAT(s.at("detail").get<std::string>(), Catch::Contains(all[i].says));
  }
  // A text without a first line is the shell's, as before.
  const auto plain = c.submit({"--gpus", "1", "--", c.write("plain", "echo plain $1\n"), "words"});
  CHECK(c.ended(plain).at("state") == "finished");
  CHECK(c.log(plain) == "plain words\n");
}

TEST_CASE("what a cluster says and cannot be written is exit status 1 with a sentence") {
  const auto& c = types();
  const auto ended = c.submit({"--gpus", "1", "--", "seq", "100000"});
  (void)c.ended(ended);
  const auto running =
      c.submit({"--gpus", "1", "--", "sh", "-c", "while :; do date; sleep 0.05; done"});
  REQUIRE(runtime::wait_until([&] { return !c.log(running).empty(); }, long_s));
  const auto shell = [&](const std::string& words, const std::string& to) {
    return run(std::string{TROUPE_PROGRAM} + " " + words + " --state " + c->state + " " + to);
  };
  const auto number = std::to_string(ended), other = std::to_string(running);
  const std::vector<std::string> all{"status",
                                     "status --json",
                                     "status --job-file " + number,
                                     "queue --json",
                                     "logs " + number,
                                     "logs --all " + number,
                                     "logs --json " + number,
                                     "logs -f " + number,
                                     "logs -f " + other,
                                     "logs -f --json " + other,
                                     "explain " + other,
                                     "wait " + number,
                                     "wait --json " + number};
  for (const auto& words : all) {
    INFO(words);
    const auto full = shell(words, ">/dev/full");
    CHECK(full.status == 1);
    CHECK_THAT(full.said, Catch::Contains("standard output cannot be written: No space left"));
    const auto closed = shell(words, ">&-");
    CHECK(closed.status == 1);
    CHECK_THAT(closed.said, Catch::Contains("standard output cannot be written: Bad file"));
  }
  for (const auto& words : {"logs " + number, "logs -f " + other, std::string{"status --json"}}) {
    INFO(words);
    const auto cut = run(std::string{"bash -c '"} + TROUPE_PROGRAM + " " + words + " --state " +
                         c->state + " | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}'");
    CHECK((cut.status == 0 || cut.status == 141));
    CHECK(cut.said.empty());
  }
  c.cancel(running);
}

TEST_CASE("submit in a directory that was deleted says so, and nothing is submitted") {
  const auto& c = types();
  const auto gone = (c.folder() / "gone").string();
  const auto there = [&](const std::string& words) {
    fs::create_directories(gone);
    return run("cd " + gone + " && rmdir " + gone + " && " + TROUPE_PROGRAM + " " + words);
  };
  const auto refused = there("submit --gpus 1 --state " + c->state + " -- true");
  CHECK(refused.status == 2);
  CHECK(refused.said ==
        "troupe: the current directory has no path: it has been deleted; change to another\n");
  CHECK(there("status --state " + c->state).status == 0);
  CHECK(there("submit --wait --state " + c->state + " " +
              c.write("away.yaml", "name: away\ngpus: 1\nworking_directory: /\ncommand: [pwd]\n"))
            .status == 0);
  const auto up = there("up " + laptop + " --detach --state here");
  CHECK(up.status == 1);
  CHECK_THAT(up.said, Catch::Contains("it has been deleted"));
  CHECK(there("train mine.yaml").status == 2);
}

TEST_CASE("a program that is moved by hand shrinks where it is, and explain says who moved it") {
  const auto& c = types();
  const auto file = c.write("elastic.yaml",
                            "name: elastic\nmodel: gpt2-350m\nglobal_batch: 8\niterations: 100000\n"
                            "elastic: {gpus: [1, 4], start_s: 0, save_s: 0}\ncommand: [python3, " +
                                c.write("count.py", counts) + ", '100000', '0.02']\n");
  const auto job = std::to_string(c.submit({file}));
  const auto place = [&] {
    const auto s = c.status(std::stoull(job));
    return s.at("allocation").size() == 1
               ? s.at("allocation").at(0).at("node").get<std::string>() + " " +
                     std::to_string(s.at("allocation").at(0).at("gpus").get<int>())
               : "";
  };
  REQUIRE(runtime::wait_until(
      [&] { return c.status(std::stoull(job)).at("iteration").is_number(); }, long_s, 0.1));
  // Wherever its policy has begun.
  if (place() != "fast 4")
    REQUIRE(c->ask({"move", job, "--gpus", "4", "--gpu", "A100-80GB"}).status == 0);
  CHECK(place() == "fast 4");
  for (const auto* gpus : {"2", "1"}) {
    const auto moved = c->ask({"move", job, "--gpus", gpus});
    INFO(moved.err);
    CHECK(moved.status == 0);
    CHECK(place() == std::string{"fast "} + gpus);
  }
  const auto why = c->ask({"explain", job, "--json"}).document();
  INFO(why.dump(1));
  for (const auto& p : why.at("plans")) {
    const auto verdict = p.at("verdict").get<std::string>();
    CHECK(verdict.find("were not idle") == std::string::npos);
    if (p.at("chosen").get<bool>()) CHECK(verdict.starts_with("chosen: moved here by "));
  }
  CHECK(why.at("placement").at(0).get<std::string>().starts_with("moved here by "));
  // And grows on the faster GPUs.
  CHECK(c->ask({"move", job, "--gpus", "2"}).status == 0);
  CHECK(place() == "fast 2");
  c.cancel(std::stoull(job));
}
