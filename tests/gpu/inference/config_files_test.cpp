#include <catch2/catch.hpp>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gpu/inference/inference_model.hpp"
#include "harness/files.hpp"
#include "harness/source_dir.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using nlohmann::json;

// The package in Python reads the same files for trainings (tests/python/models/config_test.py).

namespace {

json described(const rope_scaling& r) {
  const char* kinds[] = {"none", "linear", "llama3", "yarn"};
  return {{"kind", kinds[static_cast<int>(r.what)]},
          {"factor", r.factor},
          {"low_frequency_factor", r.low_frequency_factor},
          {"high_frequency_factor", r.high_frequency_factor},
          {"original_positions", r.original_positions},
          {"fast_turns", r.fast_turns},
          {"slow_turns", r.slow_turns},
          {"whole_bounds", r.whole_bounds},
          {"attention_factor", r.attention_factor}};
}

json described(const inference_model& m) {
  return {{"family", m.kind == inference_model::family::gpt2 ? "gpt2" : "llama"},
          {"hidden", m.hidden},
          {"layers", m.layers},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_width", m.head_width},
          {"intermediate", m.intermediate},
          {"positions", m.positions},
          {"vocabulary", m.vocabulary},
          {"tied_head", m.tied_head},
          {"norm_epsilon", m.norm_epsilon},
          {"rope_theta", m.rope_theta},
          {"rope", described(m.rope)},
          {"qkv_bias", m.qkv_bias},
          {"output_bias", m.output_bias},
          {"mlp_bias", m.mlp_bias},
          {"head_norms", m.head_norms},
          {"window", m.window}};
}

}  // namespace

TEST_CASE(
    "each config.json of the table is read into its recorded fields, or refused with its recorded "
    "reason") {
  std::ifstream in{std::string{source_dir()} + "/tests/gpu/inference/config_files.json"};
  const auto cases = json::parse(in);
  CHECK(cases.size() >= 60);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    INFO(text);
    const auto file = temporary("table/config.json", text);
    const auto m = read_inference_model(file.parent_path());
    if (m) {
      CHECK(described(*m) == one.value("model", json()));
    } else {
      const auto prefix = file.string() + ": ";
      CHECK(m.error().text.starts_with(prefix));
      CHECK(m.error().text.substr(prefix.size()) == one.value("refused", ""));
    }
  }
}
