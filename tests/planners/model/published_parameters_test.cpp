#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "harness/files.hpp"
#include "messages/domain/served_bytes.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/model_chain.hpp"

// Parameters of models that others have published, by their config.json.

using namespace troupe;
using namespace troupe::planners;
using test::loaded;
using test::temporary;

namespace {

model from(const std::string& json) {
  return loaded(formats::load_model(temporary("published/config.json", json)));
}

double parameters(const model& m) {
  return shape_of(m).parameters;
}

std::string gpt2(int hidden, int layers, int heads) {
  return fmt::format(
      R"({{"model_type": "gpt2", "n_embd": {}, "n_layer": {}, "n_head": {}, "n_inner": null,)"
      R"( "n_positions": 1024, "vocab_size": 50257}})",
      hidden, layers, heads);
}

struct sizes {
  int hidden, layers, heads, kv_heads, intermediate, vocabulary;
  bool tied = false;
  std::string more{};
};

std::string llama(const std::string& type, const sizes& s) {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_size": {}, "num_hidden_layers": {},)"
      R"( "num_attention_heads": {}, "num_key_value_heads": {}, "intermediate_size": {},)"
      R"( "max_position_embeddings": 4096, "vocab_size": {}, "tie_word_embeddings": {}{}}})",
      type, s.hidden, s.layers, s.heads, s.kv_heads, s.intermediate, s.vocabulary, s.tied, s.more);
}

}  // namespace

TEST_CASE("published models have the parameters that their publishers count") {
  const std::string width = R"(, "head_dim": 128)";
  const std::tuple<const char*, std::string, std::uint64_t> all[] = {
      {"GPT-2", gpt2(768, 12, 12), 124'439'808},
      {"GPT-2 XL", gpt2(1600, 48, 25), 1'557'611'200},
      {"Llama 2 7B", llama("llama", {4096, 32, 32, 32, 11008, 32000}), 6'738'415'616},
      {"Llama 2 13B", llama("llama", {5120, 40, 40, 40, 13824, 32000}), 13'015'864'320},
      {"Llama 2 70B", llama("llama", {8192, 80, 64, 8, 28672, 32000}), 68'976'648'192},
      {"Llama 3 8B", llama("llama", {4096, 32, 32, 8, 14336, 128256}), 8'030'261'248},
      {"Llama 3.1 70B", llama("llama", {8192, 80, 64, 8, 28672, 128256}), 70'553'706'496},
      {"Llama 3.2 1B", llama("llama", {2048, 16, 32, 8, 8192, 128256, true, R"(, "head_dim": 64)"}),
       1'235'814'400},
      {"Mistral 7B", llama("mistral", {4096, 32, 32, 8, 14336, 32000}), 7'241'732'096},
      {"Mistral-Nemo 12B", llama("mistral", {5120, 40, 32, 8, 14336, 131072, false, width}),
       12'247'782'400},
      {"Qwen2 0.5B", llama("qwen2", {896, 24, 14, 2, 4864, 151936, true}), 494'032'768},
      {"Qwen2 1.5B", llama("qwen2", {1536, 28, 12, 2, 8960, 151936, true}), 1'543'714'304},
      {"Qwen2 7B", llama("qwen2", {3584, 28, 28, 4, 18944, 152064}), 7'615'616'512},
      {"Qwen2.5 3B", llama("qwen2", {2048, 36, 16, 2, 11008, 151936, true}), 3'085'938'688},
      {"SmolLM2 135M", llama("llama", {576, 30, 9, 3, 1536, 49152, true}), 134'515'008},
      {"SmolLM2 360M", llama("llama", {960, 32, 15, 5, 2560, 49152, true}), 361'821'120},
      {"SmolLM2 1.7B", llama("llama", {2048, 24, 32, 32, 8192, 49152, true}), 1'711'376'384}};
  for (const auto& [name, config, published] : all) {
    INFO(name);
    CHECK(parameters(from(config)) == static_cast<double>(published));
    double sum = 0;
    for (const auto& op : expand(from(config))) sum += op.parameters;
    CHECK(sum == static_cast<double>(published));
  }
}

TEST_CASE("a width of heads changes parameters, memory and cache, and may be what it would be") {
  const sizes nemo{5120, 40, 32, 8, 14336, 131072};
  auto narrow = nemo, same = nemo;
  narrow.more = R"(, "head_dim": 128)";
  same.more = R"(, "head_dim": 160)";
  const auto with = from(llama("mistral", narrow)), without = from(llama("mistral", nemo));
  CHECK(with.head_width == 128);
  CHECK(without.head_width == 0);
  CHECK(from(llama("mistral", same)) == without);
  CHECK(from(llama("mistral", {5120, 40, 32, 8, 14336, 131072, false, R"(, "head_dim": null)"})) ==
        without);
  // Queries and output, keys and values: 32 values less for each of their heads.
  const double fewer = 40 * (2 * 32 + 2 * 8) * 32 * 5120.0;
  CHECK(parameters(without) - parameters(with) == fewer);
  CHECK(cache_page_bytes(with) == cache_page_bytes(without) * 128 / 160);
  job_spec job;
  job.model = with;
  job.global_batch = 1;
  job.memory = memory_options{};
  job.memory->optimizer = "sgd";
  job.memory->precision = "bf16";
  const double narrow_bytes = program_memory(job, 1, 1).total();
  job.model = without;
  CHECK(program_memory(job, 1, 1).total() - narrow_bytes >= 4 * fewer);
  CHECK(shape_of(with).forward_flops < shape_of(without).forward_flops);
}

TEST_CASE("biases count where the configuration has them") {
  const sizes plain{64, 2, 4, 2, 96, 1000};
  auto attention = plain, mlp = plain, neither = plain;
  attention.more = R"(, "attention_bias": true)";
  mlp.more = R"(, "mlp_bias": true)";
  neither.more = R"(, "attention_bias": false, "mlp_bias": null)";
  const auto base = parameters(from(llama("llama", plain)));
  CHECK(parameters(from(llama("llama", attention))) - base == 2 * (64 + 2 * 32 + 64));
  CHECK(parameters(from(llama("llama", mlp))) - base == 2 * (2 * 96 + 64));
  CHECK(from(llama("llama", neither)) == from(llama("llama", plain)));
  CHECK(parameters(from(llama("qwen2", plain))) - base == 2 * (64 + 2 * 32));
  CHECK(from(llama("mistral", attention)) == from(llama("mistral", plain)));
}

TEST_CASE("a model file may say the width of heads and biases, of the family llama alone") {
  const std::string sized =
      "{name: m, family: llama, hidden: 100, layers: 2, heads: 3, kv_heads: 1, head_width: 16, "
      "intermediate: 64, sequence: 32, vocabulary: 50, qkv_bias: true, mlp_bias: true}";
  const auto m = loaded(formats::load_model(temporary("m.yaml", sized)));
  CHECK(m.head_width == 16);  // so heads need not divide hidden
  CHECK(m.qkv_bias);
  CHECK_FALSE(m.output_bias);
  CHECK(m.mlp_bias);
  for (const std::string key :
       {"head_width: 16", "qkv_bias: true", "output_bias: true", "mlp_bias: true"}) {
    const auto bad = formats::load_model(
        temporary("m.yaml",
                  "{name: m, family: gpt, hidden: 96, layers: 2, heads: 3, sequence: 32, "
                  "vocabulary: 50, " +
                      key + "}"));
    REQUIRE_FALSE(bad);
    CHECK_THAT(bad.error().text,
               Catch::Contains(key.substr(0, key.find(':')) +
                               ": only models of the family llama have it, not gpt"));
  }
}
