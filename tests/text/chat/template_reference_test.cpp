#include <sys/wait.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/files.hpp"
#include "harness/source_dir.hpp"
#include "text/chat/chat_template.hpp"
#include "text/tokens/open_tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

std::string script(const char* name) {
  return std::string{source_dir()} + "/tests/text/chat/" + name;
}

/// Runs a program; false: what it needs is not installed.
bool ran(const std::string& command) {
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) return false;
  REQUIRE(status == 0);
  return true;
}

/// The time that template_reference.py has.
std::tm fixed_time() {
  std::tm t{};
  t.tm_year = 126;
  t.tm_mday = 5;
  t.tm_hour = 16;
  t.tm_min = 7;
  t.tm_sec = 9;
  t.tm_wday = 1;
  t.tm_yday = 4;
  return t;
}

std::vector<chat_message> messages_of(const json& all) {
  std::vector<chat_message> out;
  for (const auto& m : all)
    out.push_back({m.at("role").get<std::string>(), m.at("content").get<std::string>()});
  return out;
}

/// Ranges are sorted, disjoint and within the text.
void check_ranges(const written_chat& w) {
  std::size_t last = 0;
  for (const auto& r : w.from_messages) {
    CHECK(r.begin >= last);
    CHECK(r.begin < r.end);
    CHECK(r.end <= w.text.size());
    last = r.end + 1;
  }
}

struct compared {
  std::map<std::string, chat_template> templates;
  int cases = 0, refused = 0, malformed = 0;
};

/// Compares with what the other implementation made of each case.
compared compare_all(const fs::path& file) {
  compared all;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line); ++all.cases) {
    const auto one = json::parse(line);
    const auto name = one.at("template").get<std::string>();
    auto at = all.templates.find(name);
    if (at == all.templates.end())
      at = all.templates
               .emplace(name,
                        chat_template::of_text(one.at("source").get<std::string>(), name,
                                               one.at("tokens").get<chat_template::token_names>()))
               .first;
    INFO(name << ": " << one.value("messages", json()).dump());
    const auto& chats = at->second;
    if (one.contains("malformed")) {
      ++all.malformed;
      CHECK_FALSE(chats.problem().empty());
      continue;
    }
    CHECK(chats.problem() == "");
    const auto w = chats.write(messages_of(one.at("messages")), one.at("generation").get<bool>(),
                               fixed_time());
    if (one.contains("error")) {
      ++all.refused;
      INFO(one["error"].dump());
      CHECK_FALSE(w);
      continue;
    }
    INFO((w ? std::string{} : w.error().text));
    REQUIRE(w);
    CHECK(w->text == one.at("text").get<std::string>());
    check_ranges(*w);
  }
  return all;
}

/// The file of jinja2's results for all templates below a folder; empty: jinja2 is not installed.
fs::path by_jinja2(const std::string& name, const std::string& folder) {
  const auto out = temporary_folder() / (name + ".jsonl");
  if (!ran("python3 " + script("template_reference.py") + " " + out.string() + " " + folder))
    return {};
  return out;
}

}  // namespace

TEST_CASE("templates with every construct are written as jinja2 writes them") {
  const auto file = by_jinja2("own-templates", script("../templates"));
  if (file.empty()) {
    WARN("not compared: python3-jinja2 is not installed");
    return;
  }
  const auto all = compare_all(file);
  CHECK(all.templates.size() > 120);
  CHECK(all.cases > 800);
  CHECK(all.refused > 150);
  CHECK(all.malformed > 15);
}

TEST_CASE("published templates are written as jinja2 writes them") {
  const char* folder = std::getenv("TROUPE_CHAT_TEMPLATES");
  const auto file = folder ? by_jinja2("published-templates", folder) : fs::path{};
  if (file.empty()) {
    WARN(
        "not compared: TROUPE_CHAT_TEMPLATES names no folder with *.jinja or "
        "tokenizer_config.json files, or python3-jinja2 is not installed");
    return;
  }
  CHECK(compare_all(file).templates.size() >= 10);
}

TEST_CASE("prompts of published templates are the tokens of other people's tokenizers") {
  const char* folder = std::getenv("TROUPE_CHAT_TEMPLATES");
  const char* modules = std::getenv("TROUPE_NODE_MODULES");
  const auto cases = folder && modules ? by_jinja2("published-chats", folder) : fs::path{};
  const auto out = temporary_folder() / "chat-tokens.jsonl";
  if (cases.empty() || !ran("node " + script("chat_tokens_reference.mjs") + " " + modules + " " +
                            cases.string() + " " + folder + " " + out.string())) {
    WARN(
        "not compared: TROUPE_NODE_MODULES names no node_modules with @huggingface/tokenizers, or "
        "TROUPE_CHAT_TEMPLATES no folder with tokenizer_config.json files");
    return;
  }
  struct model {
    std::string name;
    std::unique_ptr<tokenizer> words;
    chat_template chats;
  } m;
  std::ifstream in{out};
  for (std::string line; std::getline(in, line);) {
    const auto one = json::parse(line);
    const auto name = one.at("template").get<std::string>();
    if (m.name != name) {
      auto opened = open_tokenizer(fs::path{folder} / name, 1'000'000);
      if (!opened) WARN(opened.error().text);
      m = {name, opened ? std::move(*opened) : nullptr, {}};
      if (m.words) m.chats = chat_template::of(fs::path{folder} / name, *m.words);
    }
    if (!m.words) continue;
    INFO(name << ": " << one.at("messages").dump());
    const auto prompt = m.chats.prompt(*m.words, messages_of(one.at("messages")));
    REQUIRE(prompt);
    CHECK(*prompt == one.at("tokens").get<std::vector<std::uint32_t>>());
  }
}
