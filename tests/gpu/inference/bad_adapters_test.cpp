#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <limits>

#include "gpu/inference/adapter_folder.hpp"
#include "gpu/inference/model_folder.hpp"
#include "harness/files.hpp"
#include "messages/base/refuse.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

// Folders of adapters that do not fit: each is refused by file and key or tensor.

namespace {

const inference_model& base_model(const std::string& name = "llama") {
  static const auto llama = loaded(read_inference_model(model_folder(small_model_named("llama")))),
                    gpt2 = loaded(read_inference_model(model_folder(small_model_named("gpt2"))));
  return name == "gpt2" ? gpt2 : llama;
}

std::string why_not(const std::filesystem::path& folder, const inference_model& m = base_model(),
                    const std::string& base_sha256 = "0123") {
  const auto a = read_adapter(folder, m, [&]() -> expected<std::string> { return base_sha256; });
  if (a) return {};
  CHECK(a.error().text.find('\n') == std::string::npos);
  CHECK_THAT(a.error().text, Contains(folder.string()));
  return a.error().text;
}

/// Why the adapter is refused once `change` has altered it.
template <class Change>
std::string changed(const Change& change, const std::vector<std::string>& kinds = {}) {
  auto files = random_adapter(base_model(), 4, 1, kinds);
  change(files);
  return why_not(adapter_folder("bad-adapter", files));
}

std::string with_key(const std::string& key, const json& value) {
  return changed([&](adapter_files& f) { f.config[key] = value; });
}

const std::string first_a = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";

}  // namespace

TEST_CASE("an adapter with unsupported options is refused by file and key") {
  const json four{{"q_proj", 4}}, names = json::array({"lm_head"});
  const std::pair<const char*, json> keys[] = {
      {"use_dora", true},
      {"lora_bias", true},
      {"rank_pattern", four},
      {"alpha_pattern", four},
      {"modules_to_save", names},
      {"layers_to_transform", json::array({0, 1})},
      {"layer_replication", json::array({json::array({0, 2})})},
      {"exclude_modules", "k_proj"},
      {"target_parameters", names},
      {"trainable_token_indices", json::array({1, 2})},
      {"bias", "all"},
      {"peft_type", "IA3"},
      {"r", 0},
      {"lora_alpha", "16"},
      {"use_rslora", "yes"},
      {"init_lora_weights", "pissa"},
      {"a_later_key", 1},
      {"target_modules", nullptr},
      {"target_modules", json::array()},
      {"target_modules", json::array({"q_proj", "lm_head"})},
      {"target_modules", json::array({7})},
  };
  for (const auto& [key, value] : keys) {
    INFO(key << ": " << value.dump());
    const auto why = with_key(key, value);
    CHECK_THAT(why, Contains("adapter_config.json: " + std::string{key} + ": found ") &&
                        Contains(", expected "));
  }
  CHECK_THAT(with_key("target_modules", json::array({"c_attn"})),
             Contains("found \"c_attn\", expected names of these modules: q_proj, k_proj, v_proj"));
  CHECK_THAT(changed([](adapter_files& f) { f.config.erase("r"); }), Contains("r: found nothing"));
}

TEST_CASE("an adapter's tensors that are missing, left over or wrong are refused by name") {
  const auto end = [](auto& f) { return std::prev(f.tensors.end()); };
  CHECK_THAT(changed([](adapter_files& f) { f.tensors.erase(first_a); }),
             Contains("adapter_model.safetensors: has no tensor '" + first_a + "'"));
  // Half of a layer's pair, and all of the last layer.
  CHECK_THAT(changed([&](adapter_files& f) { f.tensors.erase(end(f)); }),
             Contains("has no tensor"));
  CHECK_THAT(changed([](adapter_files& f) {
               std::erase_if(f.tensors, [](const auto& t) {
                 return t.first.find(".3.") != std::string::npos;
               });
             }),
             Contains("has no tensor 'base_model.model.model.layers.3.self_attn.q_proj.lora_A"));
  CHECK_THAT(
      changed([](adapter_files& f) {
        f.tensors["base_model.model.lm_head.lora_A.weight"] = {{4, 64}, std::vector<float>(256)};
      }),
      Contains("unexpected tensor 'base_model.model.lm_head.lora_A.weight'"));
  // It is in the model, and target_modules does not have it.
  CHECK_THAT(
      changed([](adapter_files& f) { f.config["target_modules"] = json::array({"q_proj"}); }),
      Contains("unexpected tensor"));
  CHECK_THAT(changed([](adapter_files& f) { f.config["r"] = 8; }),
             Contains("'" + first_a + "': found shape [4, 64], expected [8, 64]"));
  CHECK_THAT(changed([](adapter_files& f) {
               f.tensors[first_a] = {{4, 63}, std::vector<float>(4 * 63)};
             }),
             Contains("found shape [4, 63], expected [4, 64]"));
  CHECK_THAT(changed([](adapter_files& f) {
               f.tensors[first_a].values[9] = std::numeric_limits<float>::quiet_NaN();
             }),
             Contains(first_a));
  CHECK_THAT(changed([](adapter_files& f) {
               for (auto& [name, t] : f.tensors) t.values.assign(t.values.size(), 3e38f);
             }),
             Contains("lora_B.weight' times 2 is not finite"));
  // An adapter of another family, whose modules a pattern would match.
  auto gpt2 = random_adapter(base_model("gpt2"), 4, 1);
  gpt2.config["target_modules"] = ".*";
  CHECK_THAT(why_not(adapter_folder("bad-adapter", gpt2)), Contains("unexpected tensor"));
  CHECK_THAT(changed([](adapter_files& f) {
               f.tensors.clear();
               f.config["target_modules"] = ".*_proj";
             }),
             Contains("has no tensors"));
}

TEST_CASE("a folder without an adapter, or with one of another base, is refused") {
  auto files = random_adapter(base_model(), 4, 1);
  files.metadata["base_sha256"] = "4567";
  const auto folder = adapter_folder("bad-adapter", files);
  CHECK_THAT(why_not(folder), Contains("base_sha256: found 4567, expected 0123, which the model "
                                       "llama has"));
  CHECK(why_not(folder, base_model(), "4567").empty());
  std::filesystem::remove(folder / "adapter_model.safetensors");
  CHECK_THAT(why_not(folder),
             Contains("has no adapter_model.safetensors; expected a PEFT adapter folder"));
  std::ofstream{folder / "adapter_model.bin"} << "x";
  CHECK_THAT(why_not(folder), Contains("adapter_model.bin, a PyTorch pickle, is not supported"));
  std::ofstream{folder / "adapter_model.safetensors"} << "short";
  CHECK_THAT(why_not(folder), Contains("adapter_model.safetensors"));
  std::ofstream{folder / "adapter_config.json"} << "[]";
  CHECK_THAT(why_not(folder), Contains("adapter_config.json"));
  std::filesystem::remove(folder / "adapter_config.json");
  CHECK_THAT(why_not(folder), Contains("has no adapter_config.json"));
  CHECK_THAT(why_not(folder / "nowhere"), Contains("is not a folder"));
}

TEST_CASE("target_modules are name suffixes, all-linear, or a pattern that the tensors decide") {
  for (const auto* name : {"llama", "gpt2"}) {
    INFO(name);
    const auto& m = base_model(name);
    const auto tensors = [&](const adapter_files& f) {
      return read_back(adapter_folder("good-adapter", f), m)->tensors;
    };
    auto all = random_adapter(m, 4, 1);
    const auto count = modules_of(m).size();
    CHECK(count == m.layers * (std::string{name} == "llama" ? 7 : 4));
    CHECK(tensors(all) == count);
    all.config["target_modules"] = "all-linear";
    CHECK(tensors(all) == count);
    all.config["target_modules"] = R"(.*\.\d+\..*)";
    CHECK(tensors(all) == count);
    all.config["target_modules"] = modules_of(m);
    CHECK(tensors(all) == count);
    all.config["target_modules"] = "all-linear";
    all.tensors.erase(all.tensors.begin(), std::next(all.tensors.begin(), 2));
    CHECK_THAT(why_not(adapter_folder("good-adapter", all), m), Contains("has no tensor"));
    all.config["target_modules"] = "some.*";
    CHECK(tensors(all) == count - 1);
    // Keys that do not count, and none of those that may be missing.
    auto few = random_adapter(m, 4, 1);
    few.config = {{"peft_type", "LORA"}, {"r", 4},
                  {"lora_alpha", 8},     {"target_modules", "all-linear"},
                  {"lora_dropout", 0.5}, {"revision", "main"}};
    CHECK(tensors(few) == count);
  }
  CHECK(modules_of(base_model(), {"q_proj"}).front() == "model.layers.0.self_attn.q_proj");
  CHECK(modules_of(base_model("gpt2"), {"c_attn"}).front() == "transformer.h.0.attn.c_attn");
}
