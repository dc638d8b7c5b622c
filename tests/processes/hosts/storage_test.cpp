#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <set>

#include "harness/scratch.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/process/process.hpp"

// The journal of a real controller: full disks, recovery with running nodes, file permissions.

using namespace troupe;
using namespace troupe::test;

namespace {

/// A controller of a fixture's kind, by hand.
class lone_controller {
 public:
  lone_controller(fs::path state, std::string listen, fs::path output)
      : state_{std::move(state)}, listen_{std::move(listen)}, output_{std::move(output)} {}

  void start(std::vector<std::string> more = {},
             std::vector<std::pair<std::string, std::string>> environment = {}) {
    runtime::process_options o;
    o.environment = std::move(environment);
    o.command = {TROUPE_PROGRAM,
                 "controller",
                 "--local",
                 "--cluster",
                 shipped("clusters/demo.yaml").string(),
                 "--state",
                 state_.string(),
                 "--listen",
                 listen_};
    o.command.insert(o.command.end(), more.begin(), more.end());
    o.output = output_.string();
    auto started = runtime::process::start(o);
    REQUIRE(started);
    process_ = std::move(*started);
  }
  /// Its exit status, once it has ended by itself.
  std::optional<int> wait(double limit_s) {
    const runtime::stopwatch waited;
    std::optional<int> status;
    while (!(status = process_->poll()) && waited.s() < limit_s) runtime::pause(0.01);
    return status;
  }
  void kill() {
    process_->kill();
    REQUIRE(wait(long_s));
  }
  std::string said() const {
    std::ifstream in{output_};
    return {std::istreambuf_iterator<char>{in}, {}};
  }

 private:
  fs::path state_;
  std::string listen_;
  fs::path output_;
  std::unique_ptr<runtime::process> process_;
};

/// A file system of that many bytes, removed at the end with its directory.
class small_disk {
 public:
  explicit small_disk(fs::path at) : at_{std::move(at)} {
    fs::create_directories(at_);
    mounted_ = ::mount("troupe-test", at_.c_str(), "tmpfs", 0, "size=600k,mode=0700") == 0;
  }
  ~small_disk() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
    std::error_code ignored;
    fs::remove_all(at_.parent_path(), ignored);
  }
  bool is_there() const { return mounted_; }
  bool grow() {
    return ::mount("troupe-test", at_.c_str(), "tmpfs", MS_REMOUNT, "size=16m,mode=0700") == 0;
  }

 private:
  fs::path at_;
  bool mounted_ = false;
};

job_spec large_job(int n) {
  job_spec spec;
  spec.model = *formats::load_model(shipped("models/bert-large.yaml"));
  spec.name = fmt::format("job-{}", n);
  spec.global_batch = 4;
  spec.program.command = {"true"};
  spec.program.environment = {{"FILLER", std::string(20'000, 'x')}};
  return spec;
}

void copy_journal(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& file : fs::directory_iterator{from})
    if (file.path().filename().string().starts_with("journal.sqlite"))
      fs::copy_file(file.path(), to / file.path().filename(), fs::copy_options::overwrite_existing);
}

void move_journal(const fs::path& from, const fs::path& to) {
  copy_journal(from, to);
  for (const auto& file : fs::directory_iterator{to}) fs::remove(from / file.path().filename());
}

/// The first lines of files that a job's program writes its process into.
pid_t pid_in(const fs::path& file) {
  pid_t pid = 0;
  const runtime::stopwatch waited;
  while (!(std::ifstream{file} >> pid) && waited.s() < long_s) runtime::pause(0.02);
  return pid;
}

bool gone(pid_t pid) {
  const runtime::stopwatch waited;
  while (::kill(pid, 0) == 0 && waited.s() < long_s) runtime::pause(0.05);
  return ::kill(pid, 0) != 0;
}

auto client_of(const std::string& listen) {
  actors::real_host_options c;
  c.upstream = listen;
  return actors::real_host::client(c, long_s);
}

}  // namespace

TEST_CASE("a full disk ends the controller within a second, without losing an accepted job") {
  const auto place = fs::temp_directory_path() / fmt::format("troupe-full-{}", getpid());
  fs::create_directories(place);
  small_disk disk{place / "state"};
  if (!disk.is_there()) {
    WARN("mounting is not permitted here: not tested");
    return;
  }
  const auto listen = fmt::format("ipc://{}", (place / "socket").string());
  lone_controller controller{place / "state", listen, place / "output"};
  controller.start();
  auto client = client_of(listen);
  REQUIRE(client);
  std::set<job_id> accepted;
  std::optional<int> status;
  for (int n = 0; n < 1000 && !status; ++n) {
    auto reply = (*client)->ask(submit_job{0, large_job(n)}, 0.3).reply;
    if (reply)
      accepted.insert(std::get<submit_reply>(reply->first).job);
    else
      status = controller.wait(n < 5 ? 0.0 : 1.0);
  }
  INFO(controller.said());
  REQUIRE(status);
  CHECK(*status == 1);
  CHECK(accepted.size() > 5);
  CHECK(controller.said().find("full") != std::string::npos);

  REQUIRE(disk.grow());
  controller.start();
  auto reply = (*client)->ask(query_jobs{0, 0}, long_s).reply;
  REQUIRE(reply);
  std::set<job_id> known;
  for (const auto& j : std::get<query_reply>(reply->first).jobs) known.insert(j.job);
  for (const auto id : accepted) {
    INFO("job " << id);
    CHECK(known.contains(id));
  }
  CHECK((*client)->ask(submit_job{0, large_job(0)}, long_s).reply);
  client->reset();
  controller.kill();
}

TEST_CASE("an accepted job has been synced to the disk before its client has the answer") {
  const scratch dir;
  const auto listen = fmt::format("ipc://{}", dir / "socket");
  lone_controller controller{dir / "state", listen, dir / "output"};
  controller.start({}, {{"LD_PRELOAD", COUNTED_SYNCS_LIBRARY}, {"COUNTED_SYNCS", dir / "synced"}});
  auto client = client_of(listen);
  REQUIRE(client);
  const auto syncs = [&] {
    std::ifstream in{dir / "synced"};
    std::size_t n = 0;
    for (std::string file; std::getline(in, file);) n += file.ends_with("/journal.sqlite-wal");
    return n;
  };
  REQUIRE((*client)->ask(submit_job{0, large_job(0)}, long_s).reply);
  for (int n = 1; n <= 10; ++n) {
    const auto before = syncs();
    REQUIRE((*client)->ask(submit_job{0, large_job(n)}, long_s).reply);
    CHECK(syncs() > before);
  }
  client->reset();
  controller.kill();
}

TEST_CASE(
    "a controller whose WAL is truncated accepts no job and exits, and so does the next one") {
  const scratch dir;
  const auto listen = fmt::format("ipc://{}", dir / "socket");
  lone_controller controller{dir / "state", listen, dir / "output"};
  controller.start();
  auto client = client_of(listen);
  REQUIRE(client);
  for (int n = 0; n < 5; ++n) REQUIRE((*client)->ask(submit_job{0, large_job(n)}, long_s).reply);
  const auto wal = dir / "state/journal.sqlite-wal";
  fs::resize_file(wal, fs::file_size(wal) / 2);
  CHECK_FALSE((*client)->ask(submit_job{0, large_job(5)}, 1).reply);
  CHECK(controller.wait(long_s) == 1);
  INFO(controller.said());
  CHECK(controller.said().find("journal.sqlite-wal was cut from ") != std::string::npos);
  controller.start();
  CHECK(controller.wait(long_s) == 1);
  CHECK(controller.said().find("but its witness says that") != std::string::npos);
}

TEST_CASE("a controller ends with the reason when its journal is deleted") {
  fixture f{"deleted"};
  REQUIRE(f.wait_for_nodes());
  fs::remove(f.state / "controller" / "journal.sqlite");
  const runtime::stopwatch waited;
  std::vector<cli::ended_process> ended;
  while (ended.empty() && waited.s() < long_s) {
    ended = f.cluster->ended();
    runtime::pause(0.05);
  }
  REQUIRE(!ended.empty());
  CHECK(ended.front().name == "controller");
  CHECK(ended.front().status == 1);
  std::ifstream in{f.state / "output" / "controller.log"};
  const std::string said{std::istreambuf_iterator<char>{in}, {}};
  CHECK(said.find("was deleted while the controller was running") != std::string::npos);
}

TEST_CASE("with a new journal, running nodes drop their work and new jobs run") {
  fixture f{"anew"};
  REQUIRE(f.wait_for_nodes());
  const auto file = f.state / "pid";
  f.submit("old", fmt::format("echo $$ > {}; sleep 1000", file.string()));
  const auto pid = pid_in(file);
  REQUIRE(pid > 1);
  f.cluster->kill("controller");
  // The steps of docs/operating.md under "Recovery".
  move_journal(f.state / "controller", f.state / "damaged");
  REQUIRE(f.cluster->restart("controller"));
  CHECK(gone(pid));
  REQUIRE(f.wait_for_nodes());
  f.submit("new", "true");
  REQUIRE(f.wait_until(all_final));
  const auto jobs = f.jobs().jobs;
  REQUIRE(jobs.size() == 1);
  CHECK(jobs.front().state == job_state::finished);
}

TEST_CASE(
    "hosts that a new journal numbers differently end with that reason, and can be restarted") {
  const scratch directory;
  const auto text = [](const std::string& nodes) {
    return "name: numbered\ndatacenters:\n  - name: here\n    nodes:\n" + nodes +
           "settings: {heartbeat_s: 0.2, lease_s: 3}\n";
  };
  const std::string a = "      - {name: a, gpu: A100-40GB, gpus: 8, intra: nvlink, inter: ib100}\n",
                    b = "      - {name: b, gpu: A40, gpus: 4, intra: pcie3, inter: eth25}\n";
  fixture f{"numbered", directory.write("cluster.yaml", text(a + b)), "fcfs"};
  REQUIRE(f.wait_for_nodes());
  f.cluster->kill("controller");
  move_journal(f.state / "controller", f.state / "damaged");
  directory.write("cluster.yaml", text(b + a));
  REQUIRE(f.cluster->restart("controller"));
  const auto in_place = [](const query_reply& r) {
    return r.nodes.size() == 2 && r.nodes[0].name == "b" &&
           std::ranges::all_of(r.nodes, [](const node_status& n) { return n.present; });
  };
  std::set<std::string> ended;
  const runtime::stopwatch waited;
  while (!in_place(f.jobs()) && waited.s() < long_s) {
    for (const auto& e : f.cluster->ended()) {
      CHECK(e.status == 1);
      ended.insert(e.name);
      REQUIRE(f.cluster->restart(e.name));  // as its supervisor does
    }
    runtime::pause(0.1);
  }
  CHECK(in_place(f.jobs()));
  REQUIRE(ended.contains("a"));
  std::ifstream in{f.state / "output" / "a.log"};
  const std::string said{std::istreambuf_iterator<char>{in}, {}};
  INFO(said);
  CHECK(said.find("the controller's new journal") != std::string::npos);
}

TEST_CASE("a restored backup is refused by its witness or by the nodes, and can be accepted") {
  fixture f{"backup"};
  const auto state = f.state / "controller";
  REQUIRE(f.wait_for_nodes());
  f.submit("known", "sleep 1000");
  REQUIRE(f.wait_until(
      [](const query_reply& r) { return r.jobs.front().state == job_state::running; }));
  f.cluster->kill("controller");
  copy_journal(state, f.state / "backup");
  REQUIRE(f.cluster->restart("controller"));
  const auto file = f.state / "pid";
  f.submit("lost", fmt::format("echo $$ > {}; sleep 1000", file.string()));
  const auto pid = pid_in(file);
  REQUIRE(pid > 1);
  f.cluster->kill("controller");

  lone_controller again{state, f.cluster->controller_address(), f.state / "again.log"};
  for (const char* suffix : {"", "-wal"})  // the backup of docs/operating.md
    fs::copy_file(f.state / "backup" / ("journal.sqlite" + std::string{suffix}),
                  state / ("journal.sqlite" + std::string{suffix}),
                  fs::copy_options::overwrite_existing);
  again.start();
  CHECK(again.wait(long_s) == 1);
  CHECK(again.said().find("its witness says that") != std::string::npos);

  copy_journal(f.state / "backup", state);  // with its witness
  again.start();
  CHECK(again.wait(long_s) == 1);
  CHECK(again.said().find("has lost its latest entries") != std::string::npos);

  again.start({"--accept-older-journal"});
  CHECK(gone(pid));  // no trace of that job is left
  REQUIRE(f.wait_until([](const query_reply& r) {
    return r.jobs.size() == 1 && r.jobs.front().state == job_state::running &&
           r.jobs.front().progress.attempts == 2;
  }));
  again.kill();
}

TEST_CASE("only its user can access a cluster's files, and programs keep the user's umask") {
  fixture f{"private"};
  REQUIRE(f.wait_for_nodes());
  const auto made = f.state / "made";
  f.submit("writes", fmt::format("umask; touch {}", made.string()));
  REQUIRE(f.wait_until(all_final));
  std::size_t files = 0;
  for (const auto& e : fs::recursive_directory_iterator{f.state}) {
    struct stat s {};
    REQUIRE(::lstat(e.path().c_str(), &s) == 0);
    if (e.path() == made || (!S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode))) continue;
    INFO(e.path());
    CHECK((s.st_mode & 0077) == 0);
    ++files;
  }
  CHECK(files > 20);
  const auto mask = runtime::umask_of_programs();
  struct stat s {};
  REQUIRE(::stat(made.c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == (0666 & ~mask));
}
