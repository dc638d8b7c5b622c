#include <fstream>
#include <sstream>

#include "harness/scratch.hpp"
#include "processes/fixture.hpp"
#include "runtime/process/process.hpp"
#include "runtime/zeromq/keys.hpp"

// docs/operating.md, "From one machine to five": its file and its units, on addresses of loopback.

using namespace troupe;
using namespace troupe::test;

namespace {

std::string section() {
  std::ifstream in{troupe::test::source_dir() + "/docs/operating.md"};
  const std::string page{std::istreambuf_iterator<char>{in}, {}};
  const auto begin = page.find("## From one machine to five");
  REQUIRE(begin != std::string::npos);
  return page.substr(begin, page.find("\n## ", begin) - begin);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

/// The ExecStart lines' words, for this machine.
std::vector<std::vector<std::string>> commands(const std::string& page, const fs::path& etc) {
  std::vector<std::vector<std::string>> all;
  std::istringstream lines{page};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("ExecStart=")) continue;
    line = line.substr(line.find('=') + 1);
    line = replaced(line, "/usr/local/bin/troupe", TROUPE_PROGRAM);
    line = replaced(line, "/etc/troupe", etc.string());
    line = replaced(line, "/var/lib/troupe", (etc / std::to_string(all.size())).string());
    std::istringstream words{line};
    all.emplace_back(std::istream_iterator<std::string>{words},
                     std::istream_iterator<std::string>{});
  }
  return all;
}

}  // namespace

TEST_CASE("the documented cluster of five machines works as it is on the page") {
  const scratch etc;
  const auto page = section();
  const auto begin = page.find("```yaml\n") + 8;
  const auto file = etc.write(
      "lab.yaml",
      replaced(page.substr(begin, page.find("```", begin) - begin), "10.0.0.", "127.0.0."));
  const auto c = formats::load_cluster(file);
  REQUIRE(c);
  REQUIRE(runtime::make_keys(etc.path("keys"), runtime::key_names(*c),
                             {{"alice", runtime::key_role::client}}));
  std::vector<std::unique_ptr<runtime::process>> hosts;
  for (const auto& command : commands(page, etc.path())) {
    runtime::process_options o;
    o.command = command;
    o.output = etc.path(fmt::format("{}.log", hosts.size()));
    auto started = runtime::process::start(o);
    REQUIRE(started);
    hosts.push_back(std::move(*started));
  }
  REQUIRE(hosts.size() == 5);
  actors::real_host_options o;
  o.upstream = c->controller;
  o.keys = etc.path("keys");
  o.client_key = "alice";
  std::unique_ptr<actors::real_host> client;
  const runtime::stopwatch waited;
  bool complete = false;
  while (!complete && waited.s() < long_s) {
    runtime::pause(0.1);
    if (!client) {
      if (auto connected = actors::real_host::client(o, 1)) client = std::move(*connected);
      continue;
    }
    const auto reply = client->ask(query_jobs{0, ~job_id{0}, true}, long_s).reply;
    REQUIRE(reply);
    const auto& r = std::get<query_reply>(reply->first);
    complete = r.gateways_absent.empty() && r.view && r.view->fronts &&
               r.view->fronts->front().present &&
               std::ranges::all_of(r.nodes, [](const node_status& n) { return n.present; });
  }
  CHECK(complete);
  for (auto& h : hosts) {
    CHECK_FALSE(h->poll());
    h->terminate();
  }
}
