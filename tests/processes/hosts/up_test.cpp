#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "processes/detached.hpp"
#include "runtime/host/file_lock.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"

// `troupe up`, `down` and single hosts as programs: their locks, messages and remaining processes.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string text_of(const std::string& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::unique_ptr<runtime::process> program(std::vector<std::string> words, const std::string& log) {
  words.insert(words.begin(), TROUPE_PROGRAM);
  runtime::process_options o;
  o.command = std::move(words);
  o.output = log;
  auto started = runtime::process::start(o);
  REQUIRE(started);
  return std::move(*started);
}

int status_of(runtime::process& p) {
  std::optional<int> status;
  REQUIRE(runtime::wait_until([&] { return (status = p.poll()).has_value(); }, long_s, 0.05));
  return *status;
}

}  // namespace

TEST_CASE("a second `up` on the same state names its holder, and the first one's job continues") {
  detached first;
  INFO(first.said.err);
  REQUIRE(first.said.status == 0);
  const auto job = first.where.write(
      "job.yaml",
      "name: long\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [sh, -c, 'sleep 2; echo done']\n");
  REQUIRE(first.ask({"submit", job}).status == 0);
  const auto second = test::troupe({"up", laptop, "--state", first.state});
  CHECK(second.status == 1);
  CHECK_THAT(second.err, Catch::Contains("is in use by process ") &&
                             Catch::Contains(std::to_string(first.process())) &&
                             Catch::Contains(first.state));
  REQUIRE(runtime::wait_until(
      [&] {
        return first.ask({"status", "1", "--json"}).out.find("finished") != std::string::npos;
      },
      long_s, 0.2));
  const auto jobs = first.ask({"status", "1", "--json"}).document().at("jobs");
  CHECK(jobs[0].at("attempts") == 1);
}

TEST_CASE("a second `up` on the same ports names their holder, and the first one continues") {
  constexpr int port = 27100;
  detached first{{"--port", std::to_string(port)}};
  INFO(first.said.err);
  REQUIRE(first.said.status == 0);
  const scratch other;
  const auto second =
      test::troupe({"up", laptop, "--state", other / "state", "--port", std::to_string(port + 2)});
  CHECK(second.status == 1);
  CHECK_THAT(second.err, Catch::Contains(fmt::format("port {} of 127.0.0.1 is in use by process {}",
                                                     port + 2, first.process())));
  CHECK(first.ask({"status"}).status == 0);
}

TEST_CASE("`up` names the process that listens on one of its ports") {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  REQUIRE(::listen(fd, 1) == 0);
  socklen_t size = sizeof a;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
  const scratch where;
  const auto port = std::to_string(ntohs(a.sin_port));
  const auto up = test::troupe({"up", laptop, "--state", where / "state", "--port", port});
  ::close(fd);
  CHECK(up.status == 1);
  CHECK_THAT(up.err, Catch::Contains(port) &&
                         Catch::Contains(fmt::format("in use by process {}", ::getpid())));
}

TEST_CASE("`up` ends with the reason if its controller cannot start") {
  const scratch where;
  fs::create_directories(where / "state/controller");
  where.write("state/controller/journal.sqlite", std::string(5000, 'x'));
  const auto up = test::troupe({"up", laptop, "--state", where / "state"});
  CHECK(up.status == 1);
  CHECK_THAT(up.err, Catch::Contains("it is not a journal of Troupe") &&
                         Catch::Contains("output/controller.log"));
  CHECK(up.out.find("Ready") == std::string::npos);
}

TEST_CASE("`up --detach` returns once all nodes are present, and `down` ends the whole cluster") {
  detached cluster;
  INFO(cluster.said.err);
  REQUIRE(cluster.said.status == 0);
  const auto status = cluster.ask({"status", "--json", "--patience", "1"});
  REQUIRE(status.status == 0);
  const auto nodes = status.document().at("nodes");
  for (const auto& n : nodes) CHECK(n.at("present") == true);
  const auto down = cluster.ask({"down"});
  INFO(down.err);
  CHECK(down.status == 0);
  CHECK(runtime::wait_until([&] { return ::kill(cluster.process(), 0) != 0; }, long_s, 0.05));
  CHECK_FALSE(fs::exists(cluster.state + "/controller.address"));
  CHECK(cluster.ask({"down"}).status == 1);
  CHECK(cluster.ask({"status", "--patience", "0.2"}).status == 1);
}

TEST_CASE("`up` ends when its controller ends, with the reason") {
  const scratch where;
  const auto state = where / "state";
  const auto up = program({"up", laptop, "--state", state}, where / "up.log");
  REQUIRE(runtime::wait_until(
      [&] { return text_of(where / "up.log").find("Ready") != std::string::npos; }, long_s, 0.05));
  const auto said = text_of(where / "up.log");
  const auto at = said.find("controller");
  const auto number = said.find("process ", at) + 8;
  ::kill(std::atoi(said.c_str() + number), SIGKILL);
  CHECK(status_of(*up) == 1);
  CHECK_THAT(text_of(where / "up.log"),
             Catch::Contains("controller (process") && Catch::Contains("exited with status 137"));
}

TEST_CASE(
    "a second node process on one state directory ends at once, and the first one keeps running") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  const auto nodes = cluster.ask({"status", "--json"}).document().at("nodes");
  const auto name = nodes[0].at("node").get<std::string>();
  const auto second =
      test::troupe({"node", "--cluster", laptop, "--name", name, "--state",
                    (fs::path{cluster.state} / name).string(), "--gateway", "ipc:///nowhere"});
  CHECK(second.status == 1);
  CHECK_THAT(second.err, Catch::Contains((fs::path{cluster.state} / name).string()) &&
                             Catch::Contains("there can be only one"));
  const auto log = text_of((fs::path{cluster.state} / "output" / (name + ".log")).string());
  CHECK_THAT(log, !Catch::Contains("stopping on signal") && !Catch::Contains("superseded by"));
}

TEST_CASE("sockets are in a private directory, even if the state directory's path is long") {
  const scratch where;
  const auto deep = where / std::string(60, 'd') + "/" + std::string(60, 'e');
  std::string sockets;
  {
    detached cluster{{}, deep};
    INFO(cluster.said.err);
    REQUIRE(cluster.said.status == 0);
    sockets = text_of(deep + "/sockets.path");
    sockets.pop_back();
    struct stat info {};
    REQUIRE(::stat(sockets.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
    CHECK(cluster.ask({"status"}).status == 0);
  }
  CHECK_FALSE(fs::exists(sockets));
  detached shallow;
  struct stat info {};
  REQUIRE(::stat((shallow.state + "/sockets").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
}

TEST_CASE("a symbolic link in the place of the sockets' directory is refused") {
  const scratch where;
  fs::create_directories(where / "state");
  fs::create_directories(where / "elsewhere");
  fs::create_symlink(where / "elsewhere", where / "state/sockets");
  const auto up = test::troupe({"up", laptop, "--state", where / "state"});
  CHECK(up.status != 0);
  CHECK_THAT(up.err, Catch::Contains("must be a directory that this user owns"));
}

TEST_CASE("a client started before its cluster waits for it") {
  const scratch where;
  const auto state = where / "state";
  const auto job = where.write(
      "job.yaml", "name: early\nmodel: gpt2-124m\nglobal_batch: 4\ncommand: [\"true\"]\n");
  const auto early =
      program({"submit", job, "--state", state, "--patience", "60"}, where / "submit.log");
  runtime::pause(0.3);
  const auto up = program({"up", laptop, "--state", state}, where / "up.log");
  const auto status = status_of(*early);
  INFO(text_of(where / "submit.log"));
  CHECK(status == 0);
}

TEST_CASE("environment variables give a client its cluster, and options override them") {
  detached cluster;
  REQUIRE(cluster.said.status == 0);
  ::setenv("TROUPE_STATE", cluster.state.c_str(), 1);
  CHECK(test::troupe({"status"}).status == 0);
  ::unsetenv("TROUPE_STATE");
  const auto address = cluster.said.document().at("controller").get<std::string>();
  ::setenv("TROUPE_CONTROLLER", address.c_str(), 1);
  CHECK(test::troupe({"status"}).status == 0);
  const scratch nothing;
  CHECK(test::troupe({"status", "--state", nothing.path(), "--patience", "0.2"}).status == 1);
  ::setenv("TROUPE_CONTROLLER", "localhost:7000", 1);
  CHECK_THAT(test::troupe({"status"}).err, Catch::Contains("did you mean tcp://localhost:7000?"));
  ::unsetenv("TROUPE_CONTROLLER");
  CHECK(test::troupe({"status", "--controller", "localhost:7000"}).status == 2);
}

TEST_CASE("a client without keys is told in one line that the cluster has keys") {
  const scratch where;
  REQUIRE(test::troupe({"keys", "make", where / "keys", "--cluster", laptop}).status == 0);
  detached cluster{{"--port", "27200", "--keys", where / "keys"}};
  INFO(cluster.said.err);
  REQUIRE(cluster.said.status == 0);
  const auto without = cluster.ask({"status"});
  INFO(without.err);
  CHECK(without.status == 1);
  CHECK_THAT(without.err, Catch::Contains("this cluster has keys: --keys DIR or TROUPE_KEYS"));
  CHECK(std::count(without.err.begin(), without.err.end(), '\n') == 1);
  ::setenv("TROUPE_KEYS", (where / "keys").c_str(), 1);
  CHECK(cluster.ask({"status"}).status == 0);
  ::unsetenv("TROUPE_KEYS");
}

TEST_CASE("`up --policy` finds a plug-in relative to its working directory and uses it") {
  const scratch where;
  fs::copy_file(MY_PLUGIN, where / "libmine.so");
  const auto state = where / "state";
  const auto up = test::troupe(
      {"up", laptop, "--state", state, "--detach", "--policy", "./libmine.so"}, where.path());
  INFO(up.err);
  REQUIRE(up.status == 0);
  const auto job = test::troupe(
      {"submit", "--state", state, "--wait", "--model", "gpt2-124m", "--batch", "4", "--", "true"});
  INFO(job.err);
  CHECK(job.status == 0);
  CHECK(test::troupe({"down", "--state", state}).status == 0);
}

TEST_CASE("beside a plug-in's policy that throws the controller goes on, and explain says why") {
  const scratch where;
  const auto state = where / "state";
  ::setenv("TROUPE_TEST_PLUGIN", "throws", 1);
  const auto up =
      test::troupe({"up", laptop, "--state", state, "--detach", "--policy", BAD_PLUGIN});
  ::unsetenv("TROUPE_TEST_PLUGIN");
  REQUIRE(up.status == 0);
  REQUIRE(test::troupe({"submit", "--state", state, "--", "true"}).status == 0);
  std::string said;
  CHECK(runtime::wait_until(
      [&] {
        said = test::troupe({"explain", "1", "--state", state}).out;
        return said.find("its policy 'wrong' threw: cannot think") != std::string::npos;
      },
      long_s, 0.2));
  INFO(said);
  CHECK(test::troupe({"status", "--state", state}).status == 0);
  CHECK(test::troupe({"cancel", "1", "--state", state}).status == 0);
  CHECK(test::troupe({"down", "--state", state}).status == 0);
}

TEST_CASE("a controller whose policy never returns answers, and ends soon after SIGTERM") {
  ::setenv("TROUPE_TEST_PLUGIN", "never returns", 1);
  fixture f{"endless-policy", fs::path{laptop}, BAD_PLUGIN};
  ::unsetenv("TROUPE_TEST_PLUGIN");
  REQUIRE(f.wait_for_nodes());
  const auto id = f.submit("waits", "true");
  CHECK(f.job(id).state == job_state::waiting);
  runtime::pause(0.5);  // the policy has been asked by then
  CHECK(f.job(id).state == job_state::waiting);
  ::kill(f.cluster->id("controller"), SIGTERM);
  // It waits 5 s for the policy; supervisors kill after 10 s and more.
  CHECK(runtime::wait_until([&] { return !f.cluster->ended().empty(); }, 30, 0.05));
  const auto log = text_of((f.state / "output/controller.log").string());
  INFO(log);
  CHECK(log.find("the policy has not returned") != std::string::npos);
}
