// bench_jobs [JOBS] [PROGRAM] [DIRECTORY]: a cluster of processes with four nodes of one GPU each,
// and JOBS jobs (400) that run `date` in a shell, handed in by four clients at once. Prints
// submissions a second, and jobs a second from the first submission to the last job's end: what the
// journal's disk lets through. PROGRAM: another build of troupe, to compare with. DIRECTORY: on
// which disk.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/worlds/real_host.hpp"
#include "cli/cluster/local_cluster.hpp"
#include "formats/load/load.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"

using namespace troupe;

namespace {

namespace fs = std::filesystem;

constexpr double patience_s = 120;
constexpr std::size_t clients = 4;

constexpr const char* four_nodes = R"(name: four
datacenters:
  - name: here
    nodes:
      - {name: n, gpu: A100-40GB, gpus: 1, count: 4, intra: pcie4, inter: ib100}
settings: {heartbeat_s: 1, lease_s: 10}
)";

std::unique_ptr<actors::real_host> connect(const std::string& controller) {
  actors::real_host_options o;
  o.upstream = controller;
  auto client = actors::real_host::client(o, patience_s);
  if (!client) throw std::runtime_error(client.error().text);
  return std::move(*client);
}

query_reply ask_for_jobs(actors::real_host& client) {
  auto reply = client.ask(query_jobs{0, 0}, patience_s).reply;
  if (!reply) throw std::runtime_error(reply.error().text);
  return std::get<query_reply>(reply->first);
}

template <class F>
void wait_for(actors::real_host& client, F&& so) {
  while (!so(ask_for_jobs(client))) runtime::pause(0.02);
}

void submit(actors::real_host& client, const job_spec& spec, int jobs) {
  for (int i = 0; i < jobs; ++i)
    if (auto reply = client.ask(submit_job{0, spec}, patience_s).reply; !reply)
      throw std::runtime_error(reply.error().text);
}

void run(int jobs, const std::string& program, const fs::path& directory) {
  const auto state = directory / fmt::format("troupe-bench-jobs-{}", ::getpid());
  fs::create_directories(state);
  const auto file = state / "cluster.yaml";
  std::ofstream{file} << four_nodes;
  cli::local_cluster_options o;
  o.cluster_file = file.string();
  o.state = (state / "state").string();
  o.program = program;
  auto cluster = cli::local_cluster::start(o);
  if (!cluster) throw std::runtime_error(cluster.error().text);
  std::vector<std::unique_ptr<actors::real_host>> connected;
  for (std::size_t i = 0; i < clients; ++i)
    connected.push_back(connect((*cluster)->controller_address()));
  wait_for(*connected.front(), [](const query_reply& r) {
    return std::all_of(r.nodes.begin(), r.nodes.end(), [](const auto& n) { return n.present; });
  });

  job_spec spec;
  spec.model = *formats::load_model(TROUPE_MODEL);
  spec.name = "date";
  spec.global_batch = 4;
  spec.program.command = {"sh", "-c", "date"};
  const runtime::stopwatch watch;
  std::vector<std::thread> threads;
  for (auto& c : connected)
    threads.emplace_back([&] { submit(*c, spec, jobs / static_cast<int>(clients)); });
  for (auto& t : threads) t.join();
  const double submitted_s = watch.s();
  wait_for(*connected.front(), [](const query_reply& r) {
    return std::all_of(r.jobs.begin(), r.jobs.end(),
                       [](const auto& j) { return is_final(j.state); });
  });
  const double ended_s = watch.s();
  fmt::print("{} jobs: {:.0f} submissions/s, {:.0f} jobs/s to the end\n", jobs, jobs / submitted_s,
             jobs / ended_s);
  connected.clear();
  cluster->reset();
  fs::remove_all(state);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? std::atoi(argv[1]) : 400, argc > 2 ? argv[2] : TROUPE_PROGRAM,
        argc > 3 ? fs::path{argv[3]} : fs::current_path());
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_jobs: {}\n", e.what());
    return 1;
  }
}
