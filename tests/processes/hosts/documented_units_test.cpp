#include <cstdio>
#include <fstream>
#include <sstream>

#include "cli/connection/key_file.hpp"
#include "cli/verbs/verb.hpp"
#include "harness/scratch.hpp"
#include "processes/fixture.hpp"
#include "runtime/process/process.hpp"
#include "runtime/zeromq/keys.hpp"
#include "web/http/http_client.hpp"

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

std::string block(const std::string& page, const std::string& kind) {
  const auto begin = page.find("```" + kind + "\n");
  REQUIRE(begin != std::string::npos);
  const auto text = begin + 4 + kind.size();
  return page.substr(text, page.find("```", text) - text);
}

using command_line = std::vector<std::string>;

/// The ExecStart lines' words, as they are on the page.
std::vector<command_line> commands(const std::string& page) {
  std::vector<command_line> all;
  std::istringstream lines{page};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("ExecStart=")) continue;
    std::istringstream words{line.substr(line.find('=') + 1)};
    all.emplace_back(std::istream_iterator<std::string>{words},
                     std::istream_iterator<std::string>{});
  }
  return all;
}

/// The same for this machine.
command_line here(command_line words, const fs::path& etc, const std::string& state) {
  for (auto& w : words) {
    w = replaced(w, "/usr/local/bin/troupe", TROUPE_PROGRAM);
    w = replaced(w, "/etc/troupe", etc.string());
    w = replaced(w, "/var/lib/troupe", state);
  }
  return words;
}

/// Makes an API key by the page's commands, and returns it.
std::string make_api_key(const std::string& page, const fs::path& etc) {
  const auto line = replaced(block(page, "sh"), "/etc/troupe", etc.string());
  std::FILE* out = ::popen(line.c_str(), "r");
  REQUIRE(out);
  char key[64] = {};
  const bool notified = std::fgets(key, sizeof key, out) != nullptr;
  REQUIRE(::pclose(out) == 0);
  REQUIRE(notified);
  return replaced(key, "\n", "");
}

std::unique_ptr<cli::verb> verb_of(const std::string& name) {
  return name == "controller" ? cli::make_controller()
         : name == "gateway"  ? cli::make_gateway()
         : name == "node"     ? cli::make_node()
                              : cli::make_serve();
}

int status_of(const std::string& url, const std::string& key) {
  const auto a = web::ask(*web::parse_url(url), {"GET", "/v1/models", {}, key, 5});
  return a ? a->status : -1;
}

}  // namespace

TEST_CASE("the documented cluster of five machines works as it is on the page") {
  const scratch etc;
  const auto page = section();
  const auto file = etc.write("lab.yaml", replaced(block(page, "yaml"), "10.0.0.", "127.0.0."));
  const auto c = formats::load_cluster(file);
  REQUIRE(c);
  REQUIRE(runtime::make_keys(etc.path("keys"), runtime::key_names(*c),
                             {{"alice", runtime::key_role::client}}));
  const auto key = make_api_key(page, etc.path());
  std::vector<std::unique_ptr<runtime::process>> hosts;
  std::string front_state;
  for (const auto& command : commands(page)) {
    runtime::process_options o;
    front_state = etc.path(std::to_string(hosts.size()));
    o.command = here(command, etc.path(), front_state);
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
  std::string url;
  std::getline(std::ifstream{front_state + "/url"}, url);
  CHECK(status_of(url, key) == 200);
  CHECK(status_of(url, {}) == 401);
  for (auto& h : hosts) {
    CHECK_FALSE(h->poll());
    h->terminate();
  }
}

TEST_CASE("the documented units' options are those of their verbs, at the addresses of the page") {
  const scratch etc;
  const auto page = section();
  const auto c = formats::load_cluster(etc.write("lab.yaml", block(page, "yaml")));
  REQUIRE(c);
  make_api_key(page, etc.path());
  const auto all = commands(page);
  REQUIRE(all.size() == 5);
  std::vector<std::string> names;
  for (const auto& command : all) {
    INFO(fmt::format("{}", fmt::join(command, " ")));
    REQUIRE(command.size() > 2);
    CHECK(command[0] == "/usr/local/bin/troupe");
    CLI::App app;
    const auto verb = verb_of(command[1]);
    verb->options(app);
    CHECK_NOTHROW(app.parse(command_line{command.rbegin(), command.rend() - 2}));
    CHECK(app.get_option("--cluster")->as<std::string>() == "/etc/troupe/lab.yaml");
    if (command[1] != "controller") names.push_back(app.get_option("--name")->as<std::string>());
    if (command[1] != "serve") continue;
    // It starts beyond loopback.
    const auto keys =
        replaced(app.get_option("--api-keys")->as<std::string>(), "/etc/troupe", etc.path());
    const auto& http = c->fronts.at(0).http;
    const auto read = cli::key_file::read(keys, http.substr(0, http.find(':')), "--api-keys");
    INFO((read ? std::string{} : read.error().text));
    CHECK(read);
  }
  CHECK(names == std::vector<std::string>{"rack", "gpu-1", "gpu-2", "front-1"});
  CHECK(page.find("\nKillMode=mixed\n") != std::string::npos);
}
