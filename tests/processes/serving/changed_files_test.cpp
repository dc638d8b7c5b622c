#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/scratch.hpp"
#include "processes/trainings.hpp"
#include "runtime/host/wait.hpp"
#include "web/http/http_client.hpp"

// Clusters of processes under which files change: their own cluster file, and those of jobs.

using namespace troupe;
using namespace troupe::test;

namespace {

/// One GPU a node.
std::string sites_file(const std::vector<std::pair<std::string, std::vector<std::string>>>& sites,
                       const std::vector<std::string>& fronts) {
  std::string text = "name: changed-files\ndatacenters:\n";
  for (const auto& [site, nodes] : sites) {
    text += "  - name: " + site + "\n    nodes:\n";
    for (const auto& n : nodes)
      text += "      - {name: " + n + ", gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n";
  }
  if (!fronts.empty()) text += "fronts:\n";
  for (const auto& f : fronts) text += "  - {name: " + f + ", datacenter: here}\n";
  return text + "settings: {heartbeat_s: 0.2, lease_s: 3, restart_s: 0.2, grace_s: 1}\n";
}

struct changed_cluster : fixture {
  changed_cluster(const char* name, const std::string& file)
      : fixture{name, file, cli::default_policy} {
    const auto ready = cluster->wait_until_ready(long_s);
    INFO((ready ? std::string{} : ready.error().text));
    REQUIRE(ready);
  }

  web::client_answer ask(const std::string& path, const std::string& body = {}) const {
    const auto urls = cluster->fronts();
    const auto at = urls.find("front-1");
    if (at == urls.end()) return {};
    auto a =
        web::ask(*web::parse_url(at->second), {body.empty() ? "GET" : "POST", path, body, {}, 10});
    return a ? std::move(*a) : web::client_answer{};
  }
  bool serves(const std::string& model) const {
    return runtime::wait_until([&] { return ask("/v1/models/" + model).status == 200; }, long_s,
                               0.1);
  }
  web::client_answer complete(const std::string& model) const {
    return ask("/v1/completions",
               R"({"model": ")" + model + R"(", "prompt": "The", "max_tokens": 2})");
  }

  job_id serve(const std::string& name, const std::string& folder) {
    auto job = formats::load_job(shipped("jobs/serve-scribe.yaml"));
    REQUIRE(job);
    job->name = name;
    job->serve->model.name = name;
    job->serve->model.folder = folder;
    job->serve->model.hash = 0;
    return submit(*job);
  }

  std::string log_of(const std::string& host) const {
    std::string file = host;
    std::ranges::replace(file, '/', '-');
    for (const auto& f : fs::recursive_directory_iterator{state})
      if (f.path().filename() == file + ".log" || f.path().string().ends_with(host + ".log")) {
        std::ifstream in{f.path()};
        return {std::istreambuf_iterator<char>{in}, {}};
      }
    return {};
  }
  /// The process has ended, and its log has the reason.
  bool says(const std::string& host, const std::string& what) const {
    return runtime::wait_until([&] { return log_of(host).find(what) != std::string::npos; }, long_s,
                               0.1);
  }
};

/// The model that ships, in a folder of its own.
std::string copy_of_scribe(const scratch& directory, const std::string& name) {
  const auto folder = directory.path(name);
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(shipped("models/scribe") / file, fs::path{folder} / file);
  return folder;
}

}  // namespace

TEST_CASE(
    "a front with nodes in another order names the right one, and removed hosts all end by it") {
  const scratch directory;
  const auto file = directory.write(
      "lab.yaml", sites_file({{"here", {"a", "b"}}, {"far", {"c"}}}, {"front-1", "front-2"}));
  changed_cluster f{"removed-hosts", file};
  const auto job = f.serve("scribe", shipped("models/scribe").string());
  REQUIRE(f.serves("scribe"));
  directory.write("lab.yaml",
                  sites_file({{"far", {"c"}}, {"here", {"b", "a"}}}, {"front-2", "front-1"}));
  f.cluster->kill("front-1");
  REQUIRE(f.cluster->restart("front-1"));
  REQUIRE(f.serves("scribe"));
  const auto answer = f.complete("scribe");
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  const auto said = f.jobs();
  REQUIRE(said.jobs.at(0).where.size() == 1);
  CHECK(nlohmann::json::parse(answer.body)["choices"][0]["where"]["decoder"] ==
        said.nodes.at(said.jobs[0].where[0].node).name);
  // Withdrawn with its job.
  REQUIRE(f.client->ask(cancel_job{0, job}, long_s).reply);
  CHECK(runtime::wait_until([&] { return f.complete("scribe").status == 404; }, long_s, 0.1));

  const auto less = formats::load_cluster(
      directory.write("less.yaml", sites_file({{"here", {"a", "b"}}}, {"front-1"})));
  REQUIRE(less);
  const auto changed = f.client->ask(reconfigure{0, *less}, long_s).reply;
  REQUIRE(changed);
  CHECK(std::get<reconfigure_reply>(changed->first).done);
  CHECK(f.says("front-2", "front-2 was removed from the cluster"));
  CHECK(f.says("c", "node c was removed from the cluster"));
  CHECK(f.says("far/gateway", "far/gateway was removed from the cluster"));
  CHECK(f.ask("/v1/models").status == 200);
}

TEST_CASE("a front whose models' folders have become hostile answers, serves others and ends") {
  const scratch directory;
  const auto file =
      directory.write("lab.yaml", sites_file({{"here", {"a", "b", "c"}}}, {"front-1"}));
  changed_cluster f{"hostile-folders", file};
  const auto fifo = copy_of_scribe(directory, "fifo"), zero = copy_of_scribe(directory, "zero");
  f.serve("fifo", fifo);
  f.serve("zero", zero);
  REQUIRE(f.serves("fifo"));
  REQUIRE(f.serves("zero"));
  f.cluster->kill("front-1");
  fs::remove(fifo + "/config.json");
  REQUIRE(::mkfifo((fifo + "/config.json").c_str(), 0600) == 0);
  fs::create_symlink("/dev/zero", zero + "/tokenizer.json");
  REQUIRE(f.cluster->restart("front-1"));
  f.serve("good", shipped("models/scribe").string());
  CHECK(f.serves("good"));
  CHECK(f.says("front-1", "config.json: is a fifo, expected a regular file"));
  CHECK(f.says("front-1", "tokenizer.json: is a device, expected a regular file"));
  CHECK(f.complete("good").status == 200);
  for (const char* name : {"fifo", "zero"}) CHECK(f.complete(name).status == 503);
  CHECK(f.complete("unknown").status == 404);
  REQUIRE(::kill(f.cluster->id("front-1"), SIGTERM) == 0);
  CHECK(f.says("front-1", "stopping on signal"));
}

TEST_CASE("a front that does not know yet which models are served says 503, not 404") {
  const scratch directory;
  const auto file = directory.write("lab.yaml", sites_file({{"here", {"a"}}}, {"front-1"}));
  changed_cluster f{"front-without-controller", file};
  CHECK(runtime::wait_until([&] { return f.complete("scribe").status == 404; }, long_s, 0.1));
  f.cluster->kill("front-1");
  f.cluster->kill("controller");
  REQUIRE(f.cluster->restart("front-1"));
  REQUIRE(runtime::wait_until([&] { return f.ask("/v1/models").status == 200; }, long_s, 0.1));
  CHECK(f.complete("scribe").status == 503);
  REQUIRE(f.cluster->restart("controller"));
  CHECK(runtime::wait_until([&] { return f.complete("scribe").status == 404; }, long_s, 0.1));
}

TEST_CASE("trainings whose files shrink or are no files fail alone, and their node goes on") {
  const scratch directory;
  const auto file = directory.write(
      "one.yaml",
      "name: one\ndatacenters:\n  - name: here\n    nodes:\n      - {name: a, gpu: T4, gpus: 8, "
      "intra: pcie3, inter: eth10}\nsettings: {heartbeat_s: 0.2, lease_s: 3}\n");
  changed_cluster f{"shrinking-file", file};
  auto honest = changed_cluster::program("honest", "echo begun; exec sleep 600");
  honest.request.gpus = 1;
  honest.request.exact = true;
  const auto other = f.submit(honest);
  const auto training = [&](const std::string& name) {
    auto job = formats::load_job(shipped("jobs/train-tiny.yaml"));
    REQUIRE(job);
    job->name = name;
    job->limits.max_gpus = 1;
    job->iterations = 10'000'000;
    fs::copy_file(shipped("data/founding.txt"), directory.path(name + ".txt"));
    job->train->data = directory.path(name + ".txt");
    job->train->checkpoint = directory.path(name);
    fs::create_directories(job->train->checkpoint);
    return *job;
  };
  const auto fails = [&](job_id id, const std::string& why) {
    const bool over = f.wait_until([&](const query_reply&) { return is_final(f.job(id).state); });
    const auto j = f.job(id);
    INFO(j.name << ": " << to_string(j.state) << ", " << j.detail);
    CHECK(over);
    CHECK(j.state == job_state::failed);
    CHECK(j.detail.find(why) != std::string::npos);
  };
  const auto node = f.cluster->id("a");

  const auto shrinking = f.submit(training("shrinking"));
  REQUIRE(f.wait_until([&](const query_reply&) { return iterations(f, shrinking) > 3; }));
  fs::resize_file(directory.path("shrinking.txt"), 0);
  fails(shrinking, "has become shorter");

  const auto zero = training("zero-curve");
  fs::create_symlink("/dev/zero", zero.train->checkpoint + "/curve.csv");
  fails(f.submit(zero), "curve.csv: is a link, expected a regular file");
  const auto line = training("long-line");
  std::ofstream{line.train->checkpoint + "/curve.csv"} << std::string(100'000, '1') << '\n';
  fails(f.submit(line), "line 1 has more than 65536 bytes");
  const auto fifo = training("fifo-index");
  fs::create_directories(fifo.train->checkpoint + "/iteration-000010");
  const auto index = fifo.train->checkpoint + "/iteration-000010/model.safetensors.index.json";
  REQUIRE(::mkfifo(index.c_str(), 0600) == 0);
  fails(f.submit(fifo), "index.json: is a fifo, expected a regular file");

  CHECK(f.cluster->ended().empty());
  CHECK(f.cluster->id("a") == node);
  CHECK(f.job(other).state == job_state::running);
  CHECK(f.job(other).progress.attempts == 1);
}
