#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include <fmt/format.h>

#include "cli/program.hpp"
#include "harness/source_dir.hpp"
#include "messages/base/random.hpp"
#include "runtime/host/wait.hpp"

// --policy with a file in Python: that of examples/python_policy beside the same policy in C++, and
// faulty ones.

using namespace troupe::test;
using Catch::Contains;

namespace {

const std::string files = source_dir() + "/examples/my_policy/";
const std::string in_python = source_dir() + "/examples/python_policy/shortest_first.py";

result simulate(const std::string& policy, const std::string& trace = files + "trace.csv",
                std::vector<std::string> more = {}) {
  std::vector<std::string> words{
      "simulate", "--cluster", files + "cluster.yaml", "--trace", trace,
      "--policy", policy,      "--workload",           "frenzy",  "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return troupe::test::troupe(words);
}

/// Short and long jobs that arrive faster than they end, so that many wait.
std::string random_trace(std::uint64_t seed) {
  troupe::random_source random{seed};
  std::string rows = "job_id,submit_s,duration_s,gpus\n";
  std::uint64_t at_s = 0;
  for (int i = 1; i <= 50; ++i) {
    at_s += random.below(120);
    rows +=
        fmt::format("job-{},{},{},{}\n", i, at_s, 60 + random.below(3'000), 1 + random.below(2));
  }
  return rows;
}

/// A policy whose decide() has these lines.
std::string policy(const std::string& name, const std::string& lines) {
  return "import troupe\n\n\nclass Mine(troupe.Policy):\n    name = \"" + name +
         "\"\n\n    def decide(self, s, random):\n" + lines;
}

/// The files of policies, and what the program says of one.
struct written {
  scratch where;

  result run(const std::string& text, const std::string& word = "mine.py") const {
    where.write("mine.py", text);
    return simulate(where / word);
  }
  /// Exit status 2, and an error that begins with the file.
  void check_refused(const std::string& text, const std::string& sentence,
                     const std::string& word = "mine.py") const {
    const auto r = run(text, word);
    INFO(text << "\n" << r.err);
    CHECK(r.status == 2);
    const auto error = r.document()["error"].get<std::string>();
    CHECK_THAT(error, Catch::StartsWith(where / "mine.py") && Contains(sentence));
  }
};

/// Every job gets GPUs in the order of arrival.
const std::string in_order =
    "        for job in s.waiting:\n"
    "            if at := s.place(job):\n"
    "                yield troupe.start(job, at.plan, at.where)\n";

}  // namespace

TEST_CASE("a policy in Python decides as the same policy in C++ does, under faults too") {
  const scratch where;
  for (const std::uint64_t seed : {1, 2}) {
    const auto trace = where.write("trace.csv", random_trace(seed));
    for (const auto& from : {files + "trace.csv", trace}) {
      const auto r = simulate(in_python + "," + MY_PLUGIN, from,
                              {"--faults", files + "faults.yaml", "--seed", std::to_string(seed)});
      INFO(r.err);
      REQUIRE(r.status == 0);
      const auto policies = r.document()["policies"];
      CHECK(policies[0]["policy"] == "shortest_first_py");
      CHECK(policies[0]["finished"] == (from == trace ? 50 : 24));
      CHECK(policies[0]["fingerprint"] == policies[1]["fingerprint"]);
    }
  }
}

TEST_CASE("an exception names its file and line, its traceback is printed, and the status is 2") {
  const written files_of;
  const auto r = files_of.run(policy("planted", "        yield from ()\n        return 1 / 0\n"));
  CHECK(r.status == 2);
  CHECK_THAT(r.err, Contains("Traceback (most recent call last)") && Contains("return 1 / 0"));
  CHECK_THAT(r.document()["error"].get<std::string>(),
             Contains(files_of.where / "mine.py:9: ZeroDivisionError: division by zero"));
  files_of.check_refused("import troupe\n\nclass Mine(troupe.Policy:\n", "mine.py:3: SyntaxError");
  files_of.check_refused("import troupe\n\nraise SystemExit(3)\n", "mine.py:3: SystemExit: 3");
  files_of.check_refused("import json\n\njson.loads('?')\n", "mine.py:3: JSONDecodeError");
}

TEST_CASE("a policy that does not answer within its limit_s is interrupted, whatever it catches") {
  const written files_of;
  const std::string limit = "    limit_s = 0.3\n";
  const std::string says = "decide() has not answered within 0.3 s (limit_s)";
  files_of.check_refused(policy("loops", "        while True:\n            pass\n") + limit, says);
  files_of.check_refused(
      policy("yields", "        while True:\n            yield from ()\n") + limit, says);
  files_of.check_refused(
      policy("catches",
             "        for i in range(10 ** 12):\n            try:\n                pass\n"
             "            except Exception:\n                pass\n") +
          limit,
      says);
  files_of.check_refused(policy("deep", "        return self.decide(s, random)\n"),
                         "RecursionError");
  files_of.check_refused(policy("leaves", "        raise SystemExit(3)\n"), "SystemExit: 3");
  files_of.check_refused(policy("none", in_order) + "    limit_s = 0\n",
                         "limit_s is 0, expected seconds above 0 to 86400");
}

TEST_CASE("files without a usable policy are refused in a sentence that begins with the file") {
  const written files_of;
  files_of.check_refused("", "no class that derives from troupe.Policy");
  files_of.check_refused("from troupe import Policy\n", "no class that derives from troupe.Policy");
  const auto two = policy("one", in_order) + "\n\nclass Other(Mine):\n    name = \"two\"\n";
  files_of.check_refused(two, "several policies (Mine, Other)");
  files_of.check_refused(two, "has no policy Third", "mine.py:Third");
  files_of.check_refused(policy("../up", in_order), "name must have 1 to 64 characters");
  files_of.check_refused(policy("frenzy", in_order), "name of a built-in one");
  files_of.check_refused(policy("five", in_order) + "    round_s = -5\n", "invalid round_s");
  files_of.check_refused(policy("text", in_order) + "    round_s = '5'\n", "round_s is not");
  files_of.check_refused(policy("number", in_order) + "    name = 5\n", "name is not a string");
  const auto missing = simulate("./nothing.py");
  CHECK(missing.status == 2);
  CHECK_THAT(missing.err, Contains("./nothing.py: no such file"));
}

TEST_CASE("decisions of a wrong type, or that make no sense, name the line that yields them") {
  const written files_of;
  const struct {
    const char *lines, *sentence;
  } cases[] = {
      {"        return 5\n", "decide() returns 5; expected a generator or a list"},
      {"        pass\n", "decide() returns None"},
      {"        return [7]\n", "decides 7: expected troupe.start()"},
      {"        yield 'start'\n", "mine.py:8: decides 'start': expected troupe.start()"},
      {"        yield troupe.stop('job')\n", "mine.py:8: decides"},
      {"        yield troupe.stop(-1)\n", "expected a number that is not negative"},
      {"        yield troupe.stop(4711)\n", "job 4711 which is neither waiting nor running"},
      {"        yield troupe.give_up(s.waiting[0], 5)\n", "its reason is 5"},
      {"        yield troupe.start(s.waiting[0], 'plan', [])\n", "its plan is 'plan'"},
      {"        j = s.waiting[0]\n        yield troupe.start(j, j.plans[0], [(99, 1)])\n",
       "mine.py:9: decides"},
      {"        j = s.waiting[0]\n        yield troupe.start(j, j.plans[0], [(0, 1, 2)])\n",
       "its GPUs have (0, 1, 2)"},
      {"        j = s.waiting[0]\n        yield troupe.start(j, j.plans[0], 5)\n",
       "its GPUs are 5"},
  };
  for (const auto& c : cases) files_of.check_refused(policy("wrong", c.lines), c.sentence);
}

TEST_CASE("an object that is used after its call raises") {
  const written files_of;
  const auto keeping = [&](const std::string& object, const std::string& use) {
    return policy("keeps",
                  "        kept = self.__dict__.setdefault(\"kept\", [])\n"
                  "        if kept:\n            kept[0]" +
                      use + "\n        elif s.waiting:\n            kept.append(" + object +
                      ")\n        return []\n");
  };
  const struct {
    const char *object, *use;
  } cases[] = {{"s", ".now_s"},
               {"s", ".waiting"},
               {"s.waiting", "[0]"},
               {"s.waiting[0]", ".name"},
               {"s.waiting[0].plans", "[0]"},
               {"s.waiting[0].plans[0]", ".samples_per_s"},
               {"s.idle", ".total"},
               {"s.cluster", ".nodes"},
               {"s.cluster.nodes[0]", ".gpu"},
               {"s.place(s.waiting[0]).where", "[0]"},
               {"random", ".uniform()"}};
  for (const auto& c : cases)
    files_of.check_refused(keeping(c.object, c.use),
                           "mine.py:10: RuntimeError: this object is valid during one call");
}

TEST_CASE("two policies of a process have one interpreter, and names of their own") {
  const scratch where;
  const auto numbered = [&](const std::string& name, const std::string& number) {
    return where.write(name + ".py",
                       "NUMBER = " + number + "\n" +
                           policy(name, "        assert NUMBER == " + number + "\n" + in_order));
  };
  const auto one = numbered("one", "1"), two = numbered("two", "2");
  const auto both = simulate(one + "," + two + ":Mine," + in_python);
  INFO(both.err);
  REQUIRE(both.status == 0);
  const auto policies = both.document()["policies"];
  CHECK(policies[0]["policy"] == "one");
  CHECK(policies[1]["policy"] == "two");
  CHECK(policies[0]["fingerprint"] == policies[1]["fingerprint"]);
  CHECK(policies[0]["fingerprint"] != policies[2]["fingerprint"]);
}

TEST_CASE("place() counts what was decided before in the same call") {
  const written files_of;
  const auto r = files_of.run(policy(
      "counts",
      "        left = s.idle.total\n"
      "        for job in s.waiting:\n"
      "            if at := s.place(job):\n"
      "                assert s.fits(at.plan, at.where)\n"
      "                yield troupe.start(job, at.plan, list(at.where))\n"
      "                left -= at.plan.gpus\n"
      "                assert s.idle.total == left == sum(s.idle)\n"
      "                assert job in s.waiting and sum(p.capacity for p in s.pools) == left\n"));
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.document()["policies"][0]["finished"] == 24);
}

TEST_CASE("what a policy prints is not in the result, and sets of strings have one order") {
  const written files_of;
  const auto text =
      policy("prints", "        print('decides', list({'a', 'b', 'c', 'd'}))\n" + in_order);
  const auto first = files_of.run(text), second = files_of.run(text);
  REQUIRE(first.status == 0);
  CHECK_THAT(first.err, Contains("decides ["));
  const auto line = [](const std::string& err) { return err.substr(err.find("decides ["), 30); };
  CHECK(line(first.err) == line(second.err));
}

TEST_CASE("random numbers of a policy are the world's: a seed repeats its run") {
  const written files_of;
  const auto text = policy("draws",
                           "        jobs = list(s.waiting)\n"
                           "        while jobs:\n"
                           "            job = jobs.pop(random.below(len(jobs)))\n"
                           "            if at := s.place(job):\n"
                           "                yield troupe.start(job, at.plan, at.where)\n");
  const auto fingerprint = [&] {
    const auto r = files_of.run(text);
    INFO(r.err);
    REQUIRE(r.status == 0);
    return r.document()["policies"][0]["fingerprint"].get<std::string>();
  };
  CHECK(fingerprint() == fingerprint());
}

TEST_CASE("a policy in Python plans a job, and decides in the controller of a training") {
  const auto planned = troupe::test::troupe({"plan", shipped("jobs/gpt2-7b.yaml"), "--cluster",
                                             shipped("clusters/frenzy-testbed.yaml"), "--policy",
                                             in_python, "--json"});
  INFO(planned.err);
  REQUIRE(planned.status == 0);
  CHECK(planned.document()["policy"] == "shortest_first_py");
  const auto trained =
      troupe::test::troupe({"train", shipped("jobs/figure6.yaml"), "--policy", in_python});
  INFO(trained.err);
  CHECK(trained.status == 0);
}

TEST_CASE("a policy in Python knows the rates and the restart of an elastic program's file") {
  const scratch where;
  const auto cluster = where.write(
      "cluster.yaml",
      "name: two\ndatacenters:\n  - name: here\n    nodes:\n"
      "      - {name: a, gpu: A100-40GB, gpus: 4, count: 2, intra: pcie4, inter: eth25}\n"
      "      - {name: b, gpu: RTX6000, gpus: 4, count: 2, intra: pcie3, inter: eth25}\n"
      "settings: {restart_s: 50}\n");
  const auto planned = [&](const std::string& elastic, const std::string& lines) {
    const auto job = where.write("job.yaml",
                                 "name: one\nmodel: gpt2-350m\nglobal_batch: 8\niterations: 9\n"
                                 "command: [\"true\"]\n" +
                                     elastic);
    const auto file = where.write(
        "mine.py", policy("asks",
                          "        job = s.waiting[0]\n"
                          "        own = list(job.plans)\n"
                          "        of_both = [p for p in s.marp(job) if len(p.gpu_types) > 1]\n"
                          "        assert own and of_both\n" +
                              lines + in_order));
    const auto r =
        troupe::test::troupe({"plan", job, "--cluster", cluster, "--policy", file, "--json"});
    INFO(r.out << r.err);
    CHECK(r.status == 0);
  };
  planned("",
          "        assert all(s.rate_of(job, p) == p.samples_per_s for p in own + of_both)\n"
          "        assert s.restart_of(job) == 50\n");
  planned("elastic: {start_s: 6}\n", "        assert s.restart_of(job) == 6\n");
  // A plan of several types is as fast as the slowest; its own figure is an estimate.
  planned(
      "elastic: {start_s: 6, save_s: 1.5, rates: [{gpu: A100-40GB, gpus: 1, samples_per_s: 4}]}\n",
      "        assert s.restart_of(job) == 7.5\n"
      "        assert s.rate_of(job, own[0]) == 4 and own[0].gpus == 1\n"
      "        at = s.place(job)\n"
      "        assert (at.plan.gpus, at.plan.samples_per_s) == (1, 4)\n"
      "        assert s.estimate(job, at.plan, at.where).iteration_s == 2\n"
      "        assert all(abs(s.rate_of(job, p) / p.samples_per_s - 1) < 1e-9 for p in own)\n"
      "        assert all(s.rate_of(job, p) < p.samples_per_s / 4 for p in of_both)\n"
      "        for p in of_both:\n"
      "            same = [q.samples_per_s for q in own\n"
      "                    if (q.gpus, q.data_parallel) == (p.gpus, p.data_parallel)]\n"
      "            assert not same or abs(s.rate_of(job, p) / min(same) - 1) < 1e-9\n");
}

namespace {

struct stopped_afterwards {
  const std::string& of;
  ~stopped_afterwards() { troupe::test::troupe({"down", "--state", of}); }
};

}  // namespace

TEST_CASE("a policy in Python decides in the controller of a cluster of processes") {
  const scratch where;
  const auto state = where / "state";
  const stopped_afterwards guard{state};
  const auto up = troupe::test::troupe({"up", shipped("clusters/laptop.yaml"), "--state", state,
                                        "--detach", "--policy", "shortest_first.py:ShortestFirst"},
                                       source_dir() + "/examples/python_policy");
  INFO(up.err);
  REQUIRE(up.status == 0);
  const auto job = where.write("job.yaml", "name: one\ngpus: 1\ncommand: [\"true\"]\n");
  for (int i = 0; i < 3; ++i) {
    const auto ended = troupe::test::troupe({"submit", job, "--state", state, "--wait"});
    INFO(ended.out << ended.err);
    CHECK(ended.status == 0);
  }
}

TEST_CASE("a policy in Python sees the rate and the restart that were measured on a cluster") {
  const scratch where;
  const auto state = where / "state";
  const stopped_afterwards guard{state};
  const auto ask = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--state", state, "--json"});
    const auto r = troupe::test::troupe(words);
    INFO(r.out << r.err);
    REQUIRE(r.status == 0);
    return r.document();
  };
  where.write(
      "mine.py",
      policy("prints",
             "        for j in s.running:\n"
             "            print(f'job {j.id} {s.rate_of(j, j.plan)} {s.restart_of(j):.1f}')\n" +
                 in_order));
  const auto cluster =
      where.write("cluster.yaml",
                  "name: one\ndatacenters:\n  - name: here\n    nodes:\n"
                  "      - {name: a, gpu: T4, gpus: 2, intra: pcie3, inter: eth25}\n"
                  "settings: {heartbeat_s: 0.1, lease_s: 5, restart_s: 500}\n");
  ask({"up", cluster, "--detach", "--policy", where / "mine.py"});
  // Half a second an iteration by what it says, whatever the machine's load is.
  const auto job =
      where.write("job.yaml",
                  "name: one\nmodel: bert-base\nglobal_batch: 8\niterations: 100000\n"
                  "elastic: {gpus: [1, 1]}\ncommand:\n  - sh\n  - -c\n  - |\n"
                  "    n=$TROUPE_ITERATION\n"
                  "    until [ -e $TROUPE_CONTROL ]; do\n"
                  "      n=$((n + 1))\n"
                  "      printf 'control: 1\\niteration: %d\\nsaved: %d\\nstep_s: 0.5\\n' $n $n "
                  ">> $TROUPE_REPORT\n"
                  "      sleep 0.05\n"
                  "    done\n");
  ask({"submit", job});
  const auto known = [&](const char* key) {
    return troupe::runtime::wait_until(
        [&] {
          const auto j = ask({"status", "1"})["jobs"][0];
          return j["state"] == "running" && !j[key].is_null() && !j[key].empty();
        },
        60, 0.1);
  };
  REQUIRE(known("rates"));
  ask({"suspend", "1"});
  ask({"resume", "1"});
  REQUIRE(known("save_s"));
  REQUIRE(known("start_s"));
  const auto measured = ask({"status", "1"})["jobs"][0];
  ask({"submit", where.write("next.yaml", "name: next\ngpus: 1\ncommand: [\"true\"]\n"), "--wait"});
  std::ifstream log{state + "/output/controller.log"};
  std::string last;
  for (std::string line; std::getline(log, line);)
    if (line.find("job 1 ") != std::string::npos) last = line;
  CHECK(last == fmt::format("job 1 16.0 {:.1f}",
                            measured["start_s"].get<double>() + measured["save_s"].get<double>()));
}
