#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/files.hpp"
#include "harness/source_dir.hpp"

using namespace troupe;
using test::loaded;
using test::temporary;

// The files are shortened from those that the libraries write; some irrelevant keys are kept.
namespace {

model from(const std::string& json) {
  return loaded(formats::load_model(temporary("my-model/config.json", json)));
}

}  // namespace

TEST_CASE("GPT-2's config.json is read: a null n_inner is four times hidden, the head is tied") {
  const auto m = from(R"({"model_type": "gpt2", "activation_function": "gelu_new", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_inner": null, "n_layer": 12, "n_positions": 1024,
    "task_specific_params": {"text-generation": {"do_sample": true}}, "vocab_size": 50257})");
  CHECK(m == model{"my-model", "gpt", 768, 12, 12, 0, 0, 1024, 50257, true, {}});
}

TEST_CASE("Llama's config.json is read: grouped heads, its own MLP width, an untied head") {
  const auto m =
      from(R"({"_name_or_path": "meta-llama/Llama-3", "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": false,
    "vocab_size": 128256})");
  CHECK(m == model{"meta-llama/Llama-3", "llama", 4096, 32, 32, 8, 14336, 8192, 128256, false, {}});
}

TEST_CASE("Mistral's and Qwen2's config.json are read as Llama's family") {
  const auto mistral =
      from(R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 32000})");
  CHECK(mistral == model{"my-model", "llama", 4096, 32, 32, 8, 14336, 32768, 32000, false, {}});
  const auto qwen = loaded(formats::load_model(std::filesystem::path{troupe::test::source_dir()} /
                                               "configs/models/qwen2-0.5b.json"));
  CHECK(qwen ==
        model{"qwen2-0.5b", "llama", 896, 24, 14, 2, 4864, 131072, 151936, true, {}, 0, true});
}

TEST_CASE(
    "BERT's and ViT's config.json are read: patches and class token as sequence, labels as "
    "vocabulary") {
  const auto bert = from(R"({"model_type": "bert", "hidden_size": 1024, "intermediate_size": 4096,
    "max_position_embeddings": 512, "num_attention_heads": 16, "num_hidden_layers": 24,
    "vocab_size": 30522})");
  CHECK(bert == model{"my-model", "bert", 1024, 24, 16, 0, 4096, 512, 30522, true, {}});
  const auto vit =
      from(R"({"model_type": "vit", "hidden_size": 1024, "image_size": 224, "patch_size": 16,
    "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
    "id2label": {"0": "tench", "1": "goldfish", "2": "shark"}})");
  CHECK(vit == model{"my-model", "vit", 1024, 24, 16, 0, 4096, 197, 3, false, {}});
}

TEST_CASE("a YAML model may refer to a config.json or its folder, and shorten the sequence") {
  temporary("hf/config.json", R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1,
    "n_positions": 1024, "vocab_size": 100})");
  const auto m = loaded(
      formats::load_model(temporary("m.yaml", "{huggingface: hf, name: mine, sequence: 128}")));
  CHECK(m.name == "mine");
  CHECK(m.sequence == 128);
  CHECK(loaded(formats::load_model(temporary("m.yaml", "huggingface: hf/config.json"))).sequence ==
        1024);
}

TEST_CASE("an unsupported config.json is refused with its own line") {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"model_type\": \"t5\"}", ":1: model_type: 't5' is not supported; supported: gpt2, llama"},
      {"{\n\"model_type\": \"mixtral\"\n}",
       ":2: model_type: 'mixtral' is not supported; supported: gpt2, llama, mistral, qwen2, "
       "qwen3, bert, vit"},
      {"{\n\"hidden_size\": 8\n}", ":1: missing key 'model_type'"},
      {"{\"model_type\": \"gpt2\",\n\"n_embd\": \"768\"}",
       ":2: n_embd: found the text '768', expected a whole"},
      {"{\"model_type\": \"gpt2\",\n\"n_embd\": -1\n}", ":2: n_embd: found '-1'"},
      {"{\"model_type\": \"gpt2\",\n\"n_embd\": 10,\n\"n_layer\": 1,\n\"n_head\": "
       "3,\n\"n_positions\": 4, "
       "\"vocab_size\": 5}",
       ":4: heads: 3 heads do not divide hidden (10)"},
      {"{\"model_type\": \"gpt2\",\n\"model_type\": \"bert\"}", ":2: duplicate key 'model_type'"},
      {"{\"model_type\": \"gpt2\"", "not valid JSON"},
      {"[1, 2]", "expected a map"},
  };
  for (const auto& [json, words] : cases) {
    const auto m = formats::load_model(temporary("bad.json", json));
    REQUIRE_FALSE(m);
    INFO(m.error().text);
    CHECK(m.error().text.find("bad.json") != std::string::npos);
    CHECK(m.error().text.find(words) != std::string::npos);
    CHECK(m.error().text.find("did you mean") == std::string::npos);
  }
}

TEST_CASE("a model id of the hub is distinguished from a path, in job and model files") {
  const auto job = formats::load_job(temporary(
      "job.yaml", "name: j\nmodel: meta-llama/Llama-3.1-8B\nglobal_batch: 1\niterations: 1\n"));
  const auto m = formats::load_model(temporary("m.yaml", "huggingface: meta-llama/Llama-3.1-8B"));
  REQUIRE_FALSE(job);
  REQUIRE_FALSE(m);
  for (const auto& text : {job.error().text, m.error().text}) {
    INFO(text);
    CHECK(text.find("nothing is downloaded") != std::string::npos);
    CHECK(text.find("config.json") != std::string::npos);
    CHECK(text.find("did you mean") == std::string::npos);
  }
}

TEST_CASE("a config.json with Python's NaN and Infinity is read where no number is needed") {
  const std::string sizes = R"("model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,
    "vocab_size": 50257, )";
  const auto m =
      from("{" + sizes + R"("loss": NaN, "a": [-Infinity, 1e999], "n_positions": 1024})");
  CHECK(m.sequence == 1024);
  const auto wrong = formats::load_model(
      temporary("my-model/config.json", "{" + sizes + "\"n_positions\": Infinity}"));
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().text, Catch::Contains("n_positions"));
}

TEST_CASE(
    "linear scaling and YaRN lengthen the context by the factor, and other scaling does not") {
  const auto with = [](const std::string& rope) {
    return from(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
      "max_position_embeddings": 4096, "num_attention_heads": 8, "num_hidden_layers": 4,
      "vocab_size": 96, )" +
                rope + "}")
        .sequence;
  };
  CHECK(with(R"("rope_scaling": {"type": "linear", "factor": 4.0})") == 16384);
  CHECK(with(R"("rope_parameters": {"rope_type": "linear", "factor": 2.5})") == 10240);
  CHECK(with(R"("rope_scaling": {"type": "yarn", "factor": 4.0})") == 16384);
  CHECK(with(R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
    "original_max_position_embeddings": 1024})") == 4096);
  CHECK(with(R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
    "original_max_position_embeddings": 2048})") == 8192);
  CHECK(with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})") == 4096);
  // Refused, as when it is served.
  for (const std::string type : {"linear", "yarn"}) {
    const auto wrong = formats::load_model(
        temporary("my-model/config.json", R"({"model_type": "llama", "hidden_size": 64,
      "intermediate_size": 96, "max_position_embeddings": 4096, "num_attention_heads": 8,
      "num_hidden_layers": 4, "vocab_size": 96, "rope_scaling": {"factor": 90000, "type": ")" +
                                              type + "\"}}"));
    REQUIRE_FALSE(wrong);
    CHECK_THAT(wrong.error().text,
               Catch::Contains("factor: found 90000, times 4096 positions, expected at most"));
  }
  CHECK(with(R"("rope_scaling": null, "rope_parameters": {"rope_theta": 5e5})") == 4096);
}
