#include <catch2/catch.hpp>

#include <functional>
#include <map>

#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/inference_model.hpp"
#include "gpu/inference/model_folder.hpp"
#include "harness/files.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

/// A folder with these files.
fs::path folder_of(const std::map<std::string, std::string>& files) {
  const auto folder = fresh_path("other");
  fs::create_directories(folder);
  for (const auto& [name, text] : files) temporary("other/" + name, text);
  return folder;
}

const std::string& config() {
  return small_model_named("llama").config;
}

/// config.json with one more key.
std::string config_with(const std::string& key) {
  auto text = config();
  text.pop_back();
  return text + ", " + key + "}";
}

/// A safetensors file whose tensors have this type and `bytes` a value, or those alone whose names
/// end so, with another end.
std::string tensors_of_type(const std::string& dtype, std::size_t bytes,
                            const std::string& end = "", const std::string& other_end = "") {
  std::string header = "{";
  std::size_t at = 0;
  for (const auto& t :
       tensors_of(loaded(read_inference_model(folder_of({{"config.json", config()}}))))) {
    const bool is = t.name.ends_with(end);
    const auto name =
        t.name.substr(0, t.name.size() - (is ? end.size() : 0)) + (is ? other_end : "");
    std::size_t size = is ? bytes : 4;
    std::string shape;
    for (const auto n : t.shape) {
      size *= n;
      shape += (shape.empty() ? "" : ", ") + std::to_string(n);
    }
    header += (at == 0 ? "\"" : ", \"") + name + "\": {\"dtype\": \"" + (is ? dtype : "F32") +
              "\", \"shape\": [" + shape + "], \"data_offsets\": [" + std::to_string(at) + ", " +
              std::to_string(at + size) + "]}";
    at += size;
  }
  header += "}";
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> 8 * i & 0xFF);
  return length + header + std::string(at, '\0');
}

/// The refusal of a folder whose tensors have these names.
std::string refused_names(const std::function<std::string(const std::string&)>& name) {
  const auto folder = folder_of({{"config.json", config()}});
  auto tensors = tensors_of(loaded(read_inference_model(folder)));
  for (auto& t : tensors) t.name = name(t.name);
  write_random_weights(folder, tensors);
  return refused(folder);
}

}  // namespace

TEST_CASE("files and folders in other forms are refused with what they are") {
  const auto file = temporary("model-q4.gguf", "GGUF\x03");
  const std::string wanted = "expected a folder with config.json";
  CHECK_THAT(refused(file), Contains("model-q4.gguf: is a file in GGUF") && Contains(wanted));
  CHECK_THAT(refused(temporary("without-extension", "GGUF\x03")), Contains("is a file in GGUF"));
  CHECK_THAT(refused(temporary("model.safetensors", "")),
             Contains("is a file of weights") && Contains(wanted));
  CHECK_THAT(refused(temporary("notes.txt", "x")), Contains("is a file; " + wanted));
  CHECK_THAT(refused(folder_of({{"b.gguf", ""}, {"a.gguf", ""}})),
             Contains("has no config.json, but a.gguf, which is in GGUF"));
  CHECK_THAT(refused(folder_of({{"params.json", "{}"}, {"consolidated.00.pth", ""}})),
             Contains("has params.json and no config.json"));
  CHECK_THAT(refused(folder_of({{"refs/main", ""}, {"snapshots/0a1b/config.json", "{}"}})),
             Contains("is a folder of the Hugging Face Hub's cache; expected one of those in") &&
                 Contains("snapshots"));
  CHECK_THAT(refused(folder_of({})), Contains("has no config.json; " + wanted) &&
                                         Contains("`troupe export` makes one of a checkpoint"));
}

TEST_CASE("adapters are refused with their base model, also beside a model") {
  const std::string adapter = R"({"peft_type": "LORA", "base_model_name_or_path": "org/base"})";
  for (const auto& files : {std::map<std::string, std::string>{{"adapter_config.json", adapter}},
                            {{"adapter_config.json", adapter}, {"config.json", config()}}})
    CHECK_THAT(refused(folder_of(files)),
               Contains("it is an adapter (LoRA) of 'org/base', and no model; give the folder"));
  CHECK_THAT(refused(folder_of({{"adapter_config.json", "no JSON"}})),
             Contains("it is an adapter (LoRA), and no model"));
}

TEST_CASE("a name of the Hub, a URL and a missing path each have their own sentence") {
  for (const std::string name : {"org-1/Model-3.1_8B", "no-such-model"})
    CHECK_THAT(
        refused(name),
        Contains(name + ": there is no such folder; if it is a name of the Hugging Face Hub: "
                        "models are not downloaded") &&
            Contains("hf download " + name));
  CHECK_THAT(refused("https://huggingface.co/org/model"), Contains("is a URL"));
  CHECK_THAT(refused("hf://org/model"), Contains("is a URL"));
  for (const std::string path : {"./org/model", "../model", "a/b/c", "org/", "/nowhere/model"})
    CHECK_THAT(refused(path), Contains("config.json") && Contains("cannot be opened"));
}

TEST_CASE("weights in other forms beside config.json are named") {
  const std::pair<const char*, const char*> files[] = {
      {"pytorch_model.bin", "PyTorch's pickle (pytorch_model.bin)"},
      {"pytorch_model-00001-of-00002.bin", "PyTorch's pickle (pytorch_model-00001-of-00002.bin)"},
      {"pytorch_model.bin.index.json", "PyTorch's pickle (pytorch_model.bin.index.json)"},
      {"model.pt", "PyTorch's pickle (model.pt)"},
      {"model-q8.gguf", "GGUF, the format of llama.cpp, which is not read (model-q8.gguf)"},
      {"tf_model.h5", "TensorFlow's form (tf_model.h5)"},
      {"flax_model.msgpack", "Flax's form (flax_model.msgpack)"}};
  for (const auto& [file, what] : files)
    CHECK_THAT(
        refused(folder_of({{"config.json", config()}, {file, ""}})),
        Contains(std::string{"has weights only in "} + what) && Contains("expected *.safetensors"));
  CHECK_THAT(refused(folder_of({{"config.json", config()}})), Contains("has no *.safetensors"));
}

TEST_CASE("quantized weights are refused with how they are quantized") {
  const auto refused_key = [](const std::string& key) {
    return refused(folder_of({{"config.json", config_with(key)}}));
  };
  CHECK_THAT(refused_key(R"("quantization_config": {"quant_method": "gptq", "bits": 4})"),
             Contains("quantization_config: the weights are quantized (gptq, 4 bits), expected 32- "
                      "or 16-bit floats"));
  CHECK_THAT(refused_key(R"("quantization_config": {"quant_method": "fp8"})"),
             Contains("quantized (fp8)"));
  CHECK_THAT(refused_key(R"("quantization": {"group_size": 64, "bits": 4})"),
             Contains("quantization: the weights are quantized (4 bits)"));
  CHECK_THAT(refused_key(R"("quantization_config": {"a": 1})"), Contains("that is not known"));
  CHECK_THAT(refused_key(R"("compression_config": {"format": "int-quantized"})"),
             Contains("compression_config: the weights are quantized (int-quantized)"));
  for (const auto& [type, bytes] : {std::pair{"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1}, {"F64", 8}})
    CHECK_THAT(refused(folder_of({{"config.json", config()},
                                  {"model.safetensors",
                                   tensors_of_type(type, static_cast<std::size_t>(bytes))}})),
               Contains(std::string{"'model.embed_tokens.weight' has values of type "} + type +
                        ", expected F32, F16 or BF16"));
  CHECK_THAT(
      refused(folder_of(
          {{"config.json", config()},
           {"model.safetensors", tensors_of_type("I32", 4, "k_proj.weight", "k_proj.qweight")}})),
      Contains("has no tensor 'model.layers.0.self_attn.k_proj.weight'; instead, "
               "'model.layers.0.self_attn.k_proj.qweight' is there, with values of type I32; "
               "expected F32, F16 or BF16"));
}

TEST_CASE("a missing tensor is refused with a name that is there") {
  for (const std::string prefix : {"_orig_mod.", "module.", "language_model."})
    CHECK_THAT(refused_names([&](const std::string& n) { return prefix + n; }),
               Contains("has no tensor 'model.embed_tokens.weight'; instead, '" + prefix +
                        "model.embed_tokens.weight' is there"));
  CHECK_THAT(refused_names(
                 [&](const std::string& n) { return n.starts_with("model.") ? n.substr(6) : n; }),
             Contains("instead, 'embed_tokens.weight' is there"));
  const std::string norm = "model.layers.2.input_layernorm.weight";
  CHECK_THAT(refused_names([&](const std::string& n) { return n == norm ? "x." + n : n; }),
             Contains("has no tensor '" + norm + "'; instead, 'x." + norm + "' is there"));
  int number = 0;
  CHECK_THAT(refused_names([&](const std::string&) { return "x." + std::to_string(number++); }),
             Contains("; for example, 'x."));
}

TEST_CASE("a folder without a tokenizer that is read says which one it has") {
  const auto text = [](const std::map<std::string, std::string>& files) {
    const auto folder = folder_of(files);
    const auto words = open_tokenizer(folder, 300);
    REQUIRE(words);
    CHECK(*words == nullptr);
    return missing_tokenizer_text(folder);
  };
  const std::string none = "has no tokenizer (tokenizer.json, or vocab.json and merges.txt)";
  CHECK(text({}) == none);
  CHECK_THAT(text({{"tokenizer.model", "\n"}}), Contains(none + ", only tokenizer.model, which"));
  CHECK_THAT(text({{"tekken.json", "{}"}}), Contains(none + ", only tekken.json, which"));
}
