#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <iterator>

#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/model_folder.hpp"
#include "harness/files.hpp"
#include "messages/base/random.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

// Files with a few bytes changed, inserted or removed: each is served, or refused with one
// sentence.

namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// Changes up to three places of the first `length` bytes.
std::string mutated(std::string text, std::size_t length, random_source& random) {
  const std::string_view likely = "0123456789-.eE\"{}[],:\x80\xff nullNaN";
  for (auto n = 1 + random.below(3); n > 0; --n) {
    const auto at = random.below(length);
    const char byte = likely[random.below(likely.size())];
    switch (random.below(3)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text.erase(at, 1);
    }
  }
  return text;
}

struct verdicts {
  int good = 0, refused = 0;
};
void count(verdicts& v, const std::string& refusal, const fs::path& folder) {
  ++(refusal.empty() ? v.good : v.refused);
  if (refusal.empty()) return;
  INFO(refusal);
  CHECK(refusal.find(folder.string()) != std::string::npos);
  CHECK(refusal.find('\n') == std::string::npos);
}

std::string refusal_of_model(const fs::path& folder) {
  const auto m = read_inference_model(folder);
  if (!m) return m.error().text;
  auto spec = whole_model(*m, 2);
  spec.weights = folder;
  const auto device = make_cpu_inference_device(spec);
  if (!device) return device.error().text;
  const std::vector<std::uint32_t> prompt{1, 2, 3};
  CHECK((*device)->reserve(1, 3));
  const auto bytes = std::as_bytes(std::span{prompt});
  finish(*loaded((*device)->prefill(1, 0, payload{nullptr, bytes})));
  return {};
}

}  // namespace

TEST_CASE("a config.json with changed bytes is served or refused with its name") {
  verdicts v;
  for (const auto* name : {"llama3", "gpt2"}) {
    const auto folder = model_folder(small_model_named(name));
    const auto good = content(folder / "config.json");
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      random_source random{seed};
      temporary(std::string{name} + "/config.json", mutated(good, good.size(), random));
      count(v, refusal_of_model(folder), folder);
    }
  }
  CHECK(v.refused > 200);
  CHECK(v.good > 20);
}

TEST_CASE("a safetensors header with changed bytes is served or refused with its file") {
  verdicts v;
  const auto folder = model_folder(small_model_named("gpt2"));
  const auto good = content(folder / "model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), sizeof header);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_source random{seed};
    temporary("gpt2/model.safetensors", mutated(good, 8 + header, random));
    count(v, refusal_of_model(folder), folder);
  }
  CHECK(v.refused > 200);
}

TEST_CASE("a tokenizer.json with changed bytes is used or refused with its name") {
  verdicts v;
  const std::string good =
      R"({"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"},)"
      R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"},)"
      R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},)"
      R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken":)"
      R"({"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>":)"
      R"({"id": "<s>", "ids": [9]}}},)"
      R"("decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern":)"
      R"({"String": "_"}, "content": " "}, {"type": "ByteFallback"}]},)"
      R"("added_tokens": [{"id": 9, "content": "<s>", "special": true}],)"
      R"("model": {"type": "BPE", "unk_token": "?", "byte_fallback": true, "vocab": {"?": 0,)"
      R"("a": 1, "_": 2, "_a": 3, "<0xC3>": 4}, "merges": ["_ a"]}})";
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    random_source random{seed};
    const auto folder =
        temporary("mutated/tokenizer.json", mutated(good, good.size(), random)).parent_path();
    const auto t = open_tokenizer(folder, 20'000);
    count(v, t ? "" : t.error().text, folder);
    if (!t) continue;
    const auto tokens = (*t)->encode_prompt("a 12 \xC3\xA9<s>a\xff");
    (void)(*t)->decode(tokens);
  }
  CHECK(v.refused > 200);
  CHECK(v.good > 20);
}
