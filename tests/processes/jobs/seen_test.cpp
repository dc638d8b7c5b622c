#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>

#include "cli/program.hpp"
#include "processes/fixture.hpp"

// Running jobs as the command line shows them, on a cluster of processes.

using namespace troupe;
using namespace troupe::test;

namespace {

::troupe::test::result ask(const fixture& f, std::vector<std::string> words) {
  words.insert(words.end(), {"--state", f.state.string()});
  return ::troupe::test::troupe(words);
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

job_spec long_training(std::uint64_t iterations) {
  auto job = formats::load_job(shipped("jobs/train-two-stages.yaml").string());
  REQUIRE(job);
  job->iterations = iterations;
  job->pipeline.stages_per_datacenter = 1;
  return *job;
}

/// A program on a terminal of its own.
class on_terminal {
 public:
  explicit on_terminal(std::vector<std::string> words) {
    words.insert(words.begin(), TROUPE_PROGRAM);
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      execv(argv[0], argv.data());
      _exit(127);
    }
    fcntl(fd_, F_SETFL, O_NONBLOCK);
  }
  ~on_terminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(fd_);
  }

  /// Reads on until that is there.
  bool shows(const std::string& what) {
    const runtime::stopwatch waited;
    while (!contains(seen_, what)) {
      read_on();
      if (waited.s() > long_s) return false;
      runtime::pause(0.05);
    }
    return true;
  }
  void type(const std::string& text) { REQUIRE(write(fd_, text.data(), text.size()) > 0); }
  int wait() {
    int status = 0;
    const runtime::stopwatch waited;
    while (waitpid(pid_, &status, WNOHANG) == 0 && waited.s() < long_s) {
      read_on();
      runtime::pause(0.05);
    }
    read_on();
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& seen() const { return seen_; }

 private:
  void read_on() {
    char piece[4096];
    for (ssize_t n; (n = read(fd_, piece, sizeof piece)) > 0;)
      seen_.append(piece, static_cast<std::size_t>(n));
  }

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string seen_;
};

}  // namespace

TEST_CASE(
    "status, queue, explain and logs show a running training's iteration, loss, tokens/s and ETA") {
  fixture f{"seen-training"};
  REQUIRE(f.wait_for_nodes());
  const auto id = fmt::to_string(f.submit(long_training(4000)));
  REQUIRE(f.wait_until([](const query_reply& r) {
    return r.jobs.front().iteration > 2 && r.jobs.front().state == job_state::running;
  }));
  for (const auto* verb : {"status", "queue"}) {
    const auto d = ask(f, {verb, "--json"}).document();
    const auto& j = d["jobs"][0];
    INFO(j.dump());
    CHECK(j["iteration"].get<int>() > 2);
    CHECK(j["iterations"] == 4000);
    CHECK(j["loss"].get<double>() > 0);
    CHECK(j["tokens_per_s"].get<double>() > 0);
    CHECK(j["eta_s"].get<double>() > 0);
    const auto text = ask(f, {verb}).out;
    INFO(text);
    for (const auto* title : {"iteration", "loss", "tokens/s", "ETA"}) CHECK(contains(text, title));
    CHECK(contains(text, "/4,000"));
  }
  CHECK(contains(ask(f, {"explain", id}).out, " of 4,000"));

  // A line now and then, until the job ends.
  runtime::process_options o;
  const auto log = f.state / "follow.log";
  o.command = {TROUPE_PROGRAM, "logs", id, "-f", "--state", f.state.string()};
  o.output = log.string();
  auto follower = runtime::process::start(o);
  REQUIRE(follower);
  const auto lines = [&] {
    std::ifstream in{log};
    int n = 0;
    for (std::string line; std::getline(in, line);) n += line.starts_with("iteration ") ? 1 : 0;
    return n;
  };
  const runtime::stopwatch waited;
  while (lines() < 2 && waited.s() < long_s) runtime::pause(0.1);
  CHECK(lines() >= 2);
  CHECK(ask(f, {"cancel", id}).status == 0);
  while (!(*follower)->poll() && waited.s() < 2 * long_s) runtime::pause(0.1);
}

TEST_CASE(
    "status shows iteration and ETA from a program's report, and its exit status at the end") {
  fixture f{"seen-program"};
  REQUIRE(f.wait_for_nodes());
  auto job = long_training(100);
  job.train.reset();
  job.pipeline = {};
  job.name = "reports";
  job.program.command = {
      "sh", "-c",
      "echo iterations: 20 > $TROUPE_REPORT; while ! [ -e $GO ]; do sleep 0.1; done; "
      "exit 3"};
  job.program.environment["GO"] = (f.state / "go").string();
  const auto id = f.submit(job);
  REQUIRE(f.wait_until([](const query_reply& r) { return r.jobs.front().iteration == 20; }));
  auto j = ask(f, {"status", fmt::to_string(id), "--json"}).document()["jobs"][0];
  INFO(j.dump());
  CHECK(j["eta_s"].is_number());
  CHECK(j["command"][0] == "sh");
  CHECK(j["exit_code"].is_null());
  std::ofstream{f.state / "go"} << "\n";
  REQUIRE(f.wait_until(all_final));
  j = ask(f, {"status", fmt::to_string(id), "--json"}).document()["jobs"][0];
  CHECK(j["exit_code"] == 3);
  CHECK(j["eta_s"].is_null());
}

TEST_CASE("untrusted text is printed escaped, and explain shows a failed job's last output") {
  fixture f{"seen-hostile"};
  REQUIRE(f.wait_for_nodes());
  auto job = long_training(1);
  job.train.reset();
  job.pipeline = {};
  job.name = "hostile";
  job.model.name = "\x1b]0;owned\x07\x1b[2J";
  job.program.command = {"sh", "-c", "printf '\\033[2Jthe last words\\n'; exit 7"};
  const auto id = f.submit(job);
  REQUIRE(f.wait_until(all_final));
  for (const auto& words :
       {std::vector<std::string>{"status"}, {"explain", fmt::to_string(id)}, {"queue"}}) {
    const auto r = ask(f, words);
    INFO(words[0] << ": " << r.out);
    CHECK_FALSE(contains(r.out + r.err, "\x1b"));
    CHECK_FALSE(contains(r.out + r.err, "\x07"));
  }
  CHECK(contains(ask(f, {"status"}).out, "\\x1b]0;owned\\x07"));
  const auto why = ask(f, {"explain", fmt::to_string(id)});
  CHECK(contains(why.out, "the last words"));
}

TEST_CASE(
    "train shows its progress in place on a terminal, and saves and says the iteration reached "
    "after Ctrl-C") {
  const scratch directory;
  auto text = [&] {
    std::ifstream in{shipped("jobs/train-two-stages.yaml")};
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }();
  text.replace(text.find("iterations: 60"), 14, "iterations: 9000");
  const auto data = text.find("../data/");
  REQUIRE(data != std::string::npos);
  text.replace(data, 8, (shipped("data/").string()));
  const auto train = text.find("train: {");
  REQUIRE(train != std::string::npos);
  text.insert(train + 8, "checkpoint: saved, checkpoint_every: 9000, ");
  fs::create_directories(directory.path("jobs"));
  const auto job = directory.write("jobs/long.yaml", text);
  fs::current_path(directory.path());
  on_terminal t{{"train", job, "--world", "local"}};
  CHECK(t.shows("\r\x1b[Kiteration "));
  CHECK(t.shows("tokens/s"));
  t.type("\x03");
  CHECK(t.wait() == 1);
  INFO(t.seen());
  CHECK(contains(t.seen(), "reached iteration "));
  bool saved = false;
  for (const auto& entry : fs::directory_iterator{directory.path("jobs/saved")})
    saved = saved || entry.path().filename().string().starts_with("iteration-");
  CHECK(saved);
  fs::current_path("/");
}
