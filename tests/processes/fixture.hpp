#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "actors/worlds/real_host.hpp"
#include "cli/cluster/local_cluster.hpp"
#include "formats/load/load.hpp"
#include "harness/source_dir.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::test {

namespace fs = std::filesystem;

inline constexpr double long_s = 90;

inline fs::path shipped(const char* file) {
  return fs::path{troupe::test::source_dir()} / "configs" / file;
}

/// A cluster of its own directory, and a client of it.
class fixture {
 public:
  explicit fixture(const char* name, const char* shipped_cluster = "clusters/demo.yaml")
      : fixture{name, shipped(shipped_cluster), cli::default_policy} {}
  fixture(const char* name, const fs::path& cluster_path, const char* policy,
          std::set<std::string> realtime = {})
      : cluster_file{cluster_path},
        state{fs::temp_directory_path() / fmt::format("troupe-{}-{}", name, getpid())} {
    fs::remove_all(state);
    cli::local_cluster_options o;
    o.cluster_file = cluster_file.string();
    o.state = state.string();
    o.policy = policy;
    o.program = TROUPE_PROGRAM;
    o.realtime = std::move(realtime);
    auto started = cli::local_cluster::start(o);
    REQUIRE(started);
    cluster = std::move(*started);
    actors::real_host_options c;
    c.upstream = cluster->controller_address();
    auto connected = actors::real_host::client(c, long_s);
    REQUIRE(connected);
    client = std::move(*connected);
  }
  ~fixture() {
    client.reset();
    cluster.reset();
    fs::remove_all(state);
  }

  query_reply jobs() {
    auto reply = client->ask(query_jobs{0, 0}, long_s).reply;
    REQUIRE(reply);
    return std::get<query_reply>(reply->first);
  }

  job_status job(job_id id) {
    auto reply = client->ask(query_jobs{0, id}, long_s).reply;
    REQUIRE(reply);
    return std::get<query_reply>(reply->first).jobs.at(0);
  }

  /// Waits until the job is in this state.
  bool is(job_id id, job_state s) {
    const bool so = runtime::wait_until([&] { return job(id).state == s; }, long_s, 0.05);
    if (!so) UNSCOPED_INFO("job " << id << ": " << job(id).detail);
    return so;
  }

  bool wait_until(const std::function<bool(const query_reply&)>& holds) {
    const runtime::stopwatch waited;
    while (waited.s() < long_s) {
      if (holds(jobs())) return true;
      runtime::pause(0.1);
    }
    return false;
  }

  bool wait_for_nodes() {
    const bool all = wait_until([](const query_reply& r) {
      return std::all_of(r.nodes.begin(), r.nodes.end(), [](const auto& n) { return n.present; });
    });
    if (!all) show_logs();
    return all;
  }

  /// With the next failure: what the cluster's processes have written.
  void show_logs() const {
    for (const auto& file : fs::recursive_directory_iterator{state}) {
      if (file.path().extension() != ".log") continue;
      std::ifstream in{file.path()};
      const std::string text{std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{}};
      UNSCOPED_INFO(file.path().filename().string() << ": " << text);
    }
  }

  static job_spec program(const std::string& name, const std::string& script) {
    job_spec spec;
    auto m = formats::load_model(shipped("models/bert-large.yaml"));
    REQUIRE(m);
    spec.model = *m;
    spec.name = name;
    spec.global_batch = 4;
    spec.program.command = {"sh", "-c", script};
    return spec;
  }

  job_id submit(const std::string& name, const std::string& script) {
    return submit(program(name, script));
  }

  job_id submit(const job_spec& spec) {
    auto reply = client->ask(submit_job{0, spec}, long_s).reply;
    REQUIRE(reply);
    const auto& said = std::get<submit_reply>(reply->first);
    INFO(said.why.text);
    REQUIRE(said.job != 0);
    return said.job;
  }

  fs::path cluster_file, state;
  std::unique_ptr<cli::local_cluster> cluster;
  std::unique_ptr<actors::real_host> client;
};

inline bool all_final(const query_reply& r) {
  return std::all_of(r.jobs.begin(), r.jobs.end(), [](const auto& j) { return is_final(j.state); });
}

}  // namespace troupe::test
