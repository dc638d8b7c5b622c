#include <signal.h>

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "cli/program.hpp"
#include "gpu/inference/adapter_folder.hpp"
#include "web/raw_client.hpp"
#include "web/troupe_server.hpp"

using namespace troupe;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

// A real `troupe serve` of the model that ships with adapters, and `troupe infer` with each alone.

namespace {

namespace fs = std::filesystem;

const gpu::inference_model& scribe() {
  static const auto m = gpu::read_inference_model(shipped("models/scribe"));
  REQUIRE(m);
  return *m;
}

fs::path random_folder(const std::string& name, std::uint64_t seed, std::uint32_t rank = 4) {
  return adapter_folder(name, random_adapter(scribe(), rank, seed));
}

json alone_with(const fs::path& adapter, std::uint64_t seed) {
  std::vector<std::string> words{"infer",
                                 "The President",
                                 "--alone",
                                 "--model",
                                 shipped("models/scribe"),
                                 "--max-tokens",
                                 "24",
                                 "--seed",
                                 std::to_string(seed),
                                 "--temperature",
                                 "0.8",
                                 "--json"};
  if (!adapter.empty()) words.insert(words.end(), {"--adapter", adapter.string()});
  const auto r = troupe::test::troupe(words);
  INFO(r.err);
  REQUIRE(r.status == 0);
  return r.document();
}

json body_of(const std::string& model, std::uint64_t seed) {
  return {{"model", model},          {"prompt", "The President"},
          {"max_tokens", 24},        {"seed", seed},
          {"temperature", 0.8},      {"logprobs", 0},
          {"return_token_ids", true}};
}

json choice_of(const raw_answer& a) {
  INFO(a.body);
  REQUIRE(a.status == 200);
  return a.document().at("choices").at(0);
}

void check_same(const json& choice, const json& alone) {
  CHECK(choice.at("token_ids") == alone.at("tokens"));
  CHECK(choice.at("text") == alone.at("text"));
  CHECK(choice.at("logprobs").at("token_logprobs") == alone.at("logprobs"));
}

std::set<std::string> models_of(const server& s) {
  std::set<std::string> names;
  const auto listed = s.ask(get("/v1/models")).document();
  for (const auto& m : listed.at("data")) names.insert(m.at("id"));
  return names;
}

void hang_up(server& s) {
  REQUIRE(::kill(s.process().id(), SIGHUP) == 0);
}

}  // namespace

TEST_CASE("requests choose an adapter by its name, and get what infer computes with it alone") {
  const auto first = random_folder("first", 1), second = random_folder("second", 2, 7);
  server s{{"--adapter", "one=" + first.string(), "--adapter", "two=" + second.string()}};
  const auto shown = json::parse(document_of(s.output())).at("adapters");
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].at("name") == "one");
  CHECK(shown[1].at("rank") == 7);
  CHECK(shown[1].at("folder") == second.string());
  CHECK(shown[0].at("sha256").get<std::string>().size() == 64);
  CHECK(shown[0].at("sha256") != shown[1].at("sha256"));
  const std::map<std::string, fs::path> folders{{"one", first}, {"two", second}, {"scribe", ""}};
  std::map<std::string, json> expected_ones;
  for (const auto& [name, folder] : folders) expected_ones[name] = alone_with(folder, 3);
  CHECK(expected_ones["one"].at("adapter").at("sha256") == shown[0].at("sha256"));
  CHECK_FALSE(expected_ones["scribe"].contains("adapter"));
  CHECK(expected_ones["one"].at("tokens") != expected_ones["scribe"].at("tokens"));
  CHECK(expected_ones["one"].at("tokens") != expected_ones["two"].at("tokens"));
  // At a time, several of each, so that they share batches.
  std::vector<std::pair<std::string, raw_answer>> answers;
  for (int i = 0; i < 4; ++i)
    for (const auto& [name, folder] : folders) answers.emplace_back(name, raw_answer{});
  std::vector<std::thread> clients;
  for (auto& [name, answer] : answers)
    clients.emplace_back([&s, &name = name, &answer = answer] {
      answer = s.ask(post(completions, body_of(name, 3).dump()));
    });
  for (auto& c : clients) c.join();
  for (const auto& [name, answer] : answers) {
    INFO(name);
    check_same(choice_of(answer), expected_ones[name]);
  }
  CHECK(s.is_idle());
}

TEST_CASE("OpenAI's own client gets adapters by their names") {
  const char* modules = std::getenv("TROUPE_NODE_MODULES");
  if (!modules || !fs::exists(std::string{modules} + "/openai")) {
    WARN("not compared: TROUPE_NODE_MODULES names no node_modules with openai");
    return;
  }
  const auto one = random_folder("first", 1);
  json expected_tokens;
  for (const auto& [name, folder] : std::map<std::string, fs::path>{{"one", one}, {"scribe", ""}}) {
    std::vector<std::string> words{
        "infer", "The President", "--alone", "--model", shipped("models/scribe"), "--max-tokens",
        "12",    "--temperature", "0",       "--json"};
    if (!folder.empty()) words.insert(words.end(), {"--adapter", folder.string()});
    expected_tokens[name] = troupe::test::troupe(words).document().at("tokens");
  }
  const server s{{"--adapter", "one=" + one.string()}};
  const auto command =
      fmt::format("node {}/tests/web/adapters_client.cjs {} http://127.0.0.1:{} none '{}'",
                  troupe::test::source_dir(), modules, s.port, expected_tokens.dump());
  CHECK(std::system(command.c_str()) == 0);
}

TEST_CASE("/v1/models lists parent and root, and an unknown model is 404") {
  server s{{"--adapter", "one=" + random_folder("first", 1).string()}};
  const auto base = s.ask(get("/v1/models/scribe")).document(),
             one = s.ask(get("/v1/models/one")).document();
  CHECK(base.at("parent").is_null());
  CHECK(base.at("root") == "scribe");
  CHECK(one.at("parent") == "scribe");
  CHECK(one.at("root") == "scribe");
  CHECK(one.at("max_model_len") == base.at("max_model_len"));
  const auto unknown = s.ask(post(completions, body_of("three", 1).dump()));
  CHECK(unknown.status == 404);
  CHECK(unknown.document().at("error").at("code") == "model_not_found");
  CHECK_THAT(unknown.body, Contains("one") && Contains("scribe"));
}

TEST_CASE("after SIGHUP the adapters are those of the folder, and streams keep theirs") {
  const auto all = random_folder("all/changing", 1).parent_path();
  random_folder("all/going", 2);
  random_folder("all/.hidden", 3);
  const auto old = alone_with(all / "changing", 5);
  server s{{"--adapters", all.string()}};
  CHECK(models_of(s) == std::set<std::string>{"scribe", "changing", "going"});
  check_same(choice_of(s.ask(post(completions, body_of("changing", 5).dump()))), old);
  // A stream that has begun before, and is read once the adapters have changed.
  auto streamed = body_of("changing", 5);
  streamed["stream"] = true;
  streamed["max_tokens"] = 400;
  raw_client stream{s.port};
  REQUIRE(stream.send(post(completions, streamed.dump())));
  REQUIRE(stream.wait_for("data: {"));
  fs::remove_all(all / "going");
  random_folder("all/changing", 11);
  random_folder("all/coming", 12);
  const auto fresh = alone_with(all / "changing", 5);
  REQUIRE(fresh.at("tokens") != old.at("tokens"));
  hang_up(s);
  REQUIRE(runtime::wait_until([&] { return models_of(s).contains("coming"); }, soon_s, 0.02));
  CHECK(models_of(s) == std::set<std::string>{"scribe", "changing", "coming"});
  check_same(choice_of(s.ask(post(completions, body_of("changing", 5).dump()))), fresh);
  CHECK(s.ask(post(completions, body_of("going", 5).dump())).status == 404);
  std::vector<std::uint32_t> tokens;
  const auto answer = stream.answer();
  for (const auto& e : answer.events())
    for (const auto& t : e.at("choices").at(0).at("token_ids")) tokens.push_back(t);
  REQUIRE(tokens.size() == 400);
  tokens.resize(24);
  CHECK(tokens == old.at("tokens").get<std::vector<std::uint32_t>>());
  // One that cannot be read changes nothing.
  fs::remove(all / "coming" / "adapter_model.safetensors");
  fs::remove_all(all / "changing");
  hang_up(s);
  REQUIRE(runtime::wait_until(
      [&] { return s.output().find("keeps the adapters that are served") != std::string::npos; },
      soon_s, 0.02));
  CHECK(models_of(s) == std::set<std::string>{"scribe", "changing", "coming"});
  check_same(choice_of(s.ask(post(completions, body_of("changing", 5).dump()))), fresh);
}

TEST_CASE("adapters that cannot be served end the program with the file and what is wrong") {
  const auto good = random_folder("first", 1);
  auto files = random_adapter(scribe(), 4, 1);
  files.config["use_dora"] = true;
  const auto bad = adapter_folder("bad", files);
  files.config["use_dora"] = false;
  files.metadata["base_sha256"] = std::string(64, '0');
  const auto foreign = adapter_folder("foreign", files);
  const auto refused = [](std::vector<std::string> words, const std::string& why) {
    const auto r = troupe::test::troupe(words);
    INFO(r.err);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK_THAT(r.err, Contains(why));
  };
  const auto serve = [&](std::vector<std::string> more, const std::string& why) {
    more.insert(more.begin(), {"serve", shipped("models/scribe"), "--port", "0"});
    refused(std::move(more), why);
  };
  serve({"--adapter", bad.string()}, "--adapter: found " + bad.string() + ", expected NAME=FOLDER");
  serve({"--adapter", "x=" + bad.string()}, "adapter_config.json: use_dora: found true, expected");
  serve({"--adapter", "x=" + foreign.string()}, "base_sha256: found 0000");
  serve({"--adapter", "scribe=" + good.string()}, "found the name 'scribe', expected one");
  serve({"--adapter", "x=" + good.string(), "--adapter", "x=" + good.string()},
        "found the name 'x', expected one");
  serve({"--adapters", "no-such-folder"}, "--adapters no-such-folder: ");
  const auto infer = [&](std::vector<std::string> more, const std::string& why) {
    more.insert(more.begin(), {"infer", "a", "--model", shipped("models/scribe")});
    refused(std::move(more), why);
  };
  infer({"--alone", "--adapter", bad.string()}, "use_dora: found true");
  infer({"--alone", "--adapter", foreign.string()}, "it was trained on other weights");
  infer({"--adapter", good.string()}, "--adapter needs --alone");
}
