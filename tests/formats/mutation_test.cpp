#include <algorithm>
#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "formats/parse/value.hpp"
#include "formats/traces/trace.hpp"
#include "harness/files.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using test::temporary;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  return test::loaded(formats::read_text(file));
}

/// A few random edits: flip, insert, delete, double a piece, or take a piece of another file.
std::string mutated(std::string text, const std::string& other, random_source& random) {
  static const std::string marks = "{}[]:,-#&*!|>'\"%@`?~ \n\t0179.eE+\\xnul\x80\xff\x01";
  for (auto edits = 1 + random.below(6); edits > 0 && !text.empty(); --edits) {
    const auto at = random.below(text.size());
    const auto length = 1 + random.below(std::min<std::size_t>(40, text.size() - at));
    switch (random.below(6)) {
      case 0:
        text[at] = marks[random.below(marks.size())];
        break;
      case 1:
        text.insert(at, 1, marks[random.below(marks.size())]);
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(random.below(text.size()), text.substr(at, length));
        break;
      case 4:
        text.insert(at, other.substr(random.below(other.size()), length));
        break;
      case 5:
        text.resize(at);
        break;
    }
  }
  return text;
}

/// Loads it as everything; a refusal must be a sentence that names the file, or one that it names.
void try_all(const fs::path& file) {
  const auto check = [&](const auto& result) {
    if (result) return;
    const auto& why = result.error().text;
    const bool named = why.find(file.filename().string()) != std::string::npos ||
                       why.starts_with(file.parent_path().string());
    if (!named || why.size() > 2000) FAIL(why);
  };
  static const auto catalogue = test::loaded(formats::load_catalogue(test::shipped / "gpus.yaml"));
  check(formats::load_catalogue(file));
  check(formats::load_cluster(file, catalogue));
  check(formats::load_model(file));
  check(formats::load_job(file, catalogue));
  check(formats::load_faults(file));
  if (file.extension() != ".csv") return;
  check(formats::load_trace(file));
  check(formats::import_jobs("philly", file));
}

}  // namespace

TEST_CASE("twenty thousand mutated files are loaded or refused, without exceptions") {
  const std::pair<const char*, const char*> seeds[] = {
      {"clusters/demo.yaml", "m.yaml"},    {"jobs/hello.yaml", "m.yaml"},
      {"models/moe-0.69b.yaml", "m.yaml"}, {"faults/split.yaml", "m.yaml"},
      {"models/gpt2-7b.yaml", "m.yaml"},   {"clusters/espresso.yaml", "m.yaml"},
      {"jobs/qwen2.yaml", "m.yaml"},       {"models/qwen2-0.5b.json", "m.json"},
      {"traces/philly-day.csv", "m.csv"}};
  std::vector<std::string> texts;
  for (const auto& seed : seeds)
    texts.push_back(text_of(test::shipped / seed.first).substr(0, 3000));
  random_source random{20260711};
  for (int i = 0; i < 20'000; ++i) {
    const auto which = random.below(texts.size());
    const auto& other = texts[random.below(texts.size())];
    const auto text = mutated(texts[which], other, random);
    const auto file = temporary(std::string{"mutated/"} + seeds[which].second, text);
    INFO("mutation " << i << " of " << seeds[which].first << "\n" << text);
    REQUIRE_NOTHROW(try_all(file));
  }
}
