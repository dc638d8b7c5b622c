// For libFuzzer: every reader of a file. TROUPE_FUZZ_TARGET names one; with
// TROUPE_FUZZ_SEEDS=DIRECTORY the program only writes a few inputs to start from. `./dev fuzz` does
// both.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "formats/load/groups.hpp"
#include "formats/load/load.hpp"
#include "formats/load/lookup_table.hpp"
#include "formats/traces/throughputs.hpp"
#include "formats/traces/trace.hpp"
#include "gpu/examples/example_line.hpp"
#include "gpu/inference/adapter.hpp"
#include "gpu/inference/inference_model.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/safetensors.hpp"
#include "runtime/zeromq/keys.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

using namespace troupe;
namespace fs = std::filesystem;

namespace {

/// The directory of this process, with the files that readers need in addition to the fuzzed one.
const fs::path& place() {
  static const fs::path made = [] {
    auto p = fs::temp_directory_path() / ("troupe-fuzz-" + std::to_string(getpid()));
    fs::create_directories(p);
    std::atexit([] { fs::remove_all(place()); });
    return p;
  }();
  return made;
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream{file, std::ios::binary} << text;
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
}

std::string shipped(const char* file) {
  std::ifstream in{fs::path{TROUPE_SOURCE_DIR} / "configs" / file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::string start_of(const char* file) {
  return shipped(file).substr(0, 3000);
}

std::string safetensors_text() {
  const std::string header =
      R"({"__metadata__":{"iteration":"7"},"wte.weight":{"dtype":"F32","shape":[2,3],)"
      R"("data_offsets":[0,24]},)"
      R"("h.0.ln_1.bias":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
  std::string text(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(text.data(), &size, sizeof size);
  return text + header + std::string(32, '\x3f');
}

/// Factors of a tensor of 4 x 12 numbers.
std::string adapter_tensors_text() {
  const std::string module = "base_model.model.transformer.h.0.attn.c_attn";
  const std::string header = R"({"__metadata__":{"format":"pt"},")" + module +
                             R"(.lora_A.weight":{"dtype":"F32","shape":[1,4],"data_offsets":)"
                             R"([0,16]},")" +
                             module +
                             R"(.lora_B.weight":{"dtype":"F32","shape":[12,1],"data_offsets":)"
                             R"([16,64]}})";
  std::string text(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(text.data(), &size, sizeof size);
  return text + header + std::string(64, '\x3f');
}

constexpr const char* adapter_text =
    R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["c_attn"], "bias": )"
    R"("none", "use_rslora": false, "rank_pattern": {}, "fan_in_fan_out": true})";

/// An adapter that is read fits the model completely.
void read_adapter(const fs::path& file) {
  gpu::inference_model m;
  m.hidden = 4, m.layers = 1, m.heads = m.kv_heads = 1, m.head_width = 4;
  m.intermediate = 8, m.positions = 8, m.vocabulary = 8;
  const auto found = gpu::read_adapter(file.parent_path(), m,
                                       [] { return expected<std::string>{std::string(64, '0')}; });
  if (found && (!found->fits(m) || found->tensors == 0)) std::abort();
}

std::string vocabulary_text() {
  std::string text = "{\"<|endoftext|>\": 256";
  // GPT-2's alphabet: printable bytes stand for themselves, all others for 256 and on.
  std::uint32_t beyond = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const std::uint32_t c = itself ? byte : beyond++;
    text += ", \"";
    if (c == '"' || c == '\\') text += '\\';
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += static_cast<char>(0xC0 | c >> 6);
      text += static_cast<char>(0x80 | (c & 0x3F));
    }
    text += "\": " + std::to_string(byte);
  }
  return text + ", \"he\": 257, \"ll\": 258, \"hell\": 259}";
}

constexpr const char* merges_text = "#version: 0.2\nh e\nl l\nhe ll\n";
constexpr const char* tokenizer_text =
    R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend",)"
    R"("prepend": "_"}, {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},)"
    R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":)"
    R"({"Regex": "\\p{N}{1,3}| ?\\p{L}+"}, "behavior": "Isolated", "invert": false},)"
    R"({"type": "Digits", "individual_digits": true}, {"type": "Metaspace", "replacement": "_"}]},)"
    R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken":)"
    R"({"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [9]}}},)"
    R"("decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},)"
    R"("added_tokens": [{"id": 9, "content": "<s>", "special": true, "rstrip": true}],)"
    R"("model": {"type": "BPE", "unk_token": "?", "byte_fallback": true, "vocab": {"?": 0, "h": 1,)"
    R"("e": 2, "he": 3, "<0xC3>": 4, "_": 5}, "merges": ["h e"]}})";
constexpr const char* tokenizer_config_text =
    R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "add_eos_token": false,)"
    R"("bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "add_prefix_space":)"
    R"(false, "additional_special_tokens": ["<x>"], "split_special_tokens": false,)"
    R"("added_tokens_decoder": {"9": {"content": "<s>", "special": true, "normalized": true}}})";
constexpr const char* llama3_text =
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "rms_norm_eps": 1e-5,)"
    R"("num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,)"
    R"("max_position_embeddings": 256, "vocab_size": 300, "rope_scaling": {"rope_type": "llama3",)"
    R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,)"
    R"("original_max_position_embeddings": 64}, "eos_token_id": [1, 2]})";
constexpr const char* index_text =
    R"({"metadata":{"iteration":"7"},"weight_map":{"wte.weight":"model.safetensors"}})";

void read_safetensors(const fs::path& file) {
  const auto opened = gpu::safetensors::open(file);
  if (!opened) return;
  for (const auto& [name, t] : opened->tensors()) {
    std::uint64_t count = 1;
    for (auto n : t.shape) count *= n;
    std::vector<float> values(std::min<std::uint64_t>(count, 4096));
    (void)opened->read(t, values);
  }
}

void read_vocabulary(const fs::path& file) {
  const auto opened = gpu::open_vocabulary(file.parent_path());
  if (!opened) return;
  const auto tokens = (*opened)->encode("hello, hell <|endoftext|> \xff\xc3\xa9");
  (void)(*opened)->decode(tokens);
}

void read_tokenizer(const fs::path& file) {
  const auto opened = gpu::open_tokenizer(file.parent_path(), 1'000'000);
  if (!opened || !*opened) return;
  const auto tokens = (*opened)->encode_prompt("hello, hell <s> 12 \xff\xc3\xa9");
  (void)(*opened)->decode(tokens);
}

void read_checkpoint(const fs::path& file) {
  const auto opened = gpu::checkpoint::open(file.parent_path());
  if (!opened) return;
  gpu::parameter p;
  p.name = "wte.weight";
  std::array<float, 6> weights{}, first{}, second{};
  (void)opened->read(p, weights, first, second);
}

void read_example_lines(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  for (std::string line; std::getline(in, line);) (void)gpu::read_example_line(line, "x:1");
}

struct target {
  const char* name;
  const char* file;  // as the reader wants it called
  std::function<void(const fs::path&)> read;
  std::vector<std::string> seeds;
  std::function<void()> prepare = {};
};

void with_keys() {
  (void)runtime::make_keys(place().string(), {"controller", "client"});
}

std::string of_place(const char* file) {
  with_keys();
  std::ifstream in{place() / file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

const std::vector<gpu_type>& catalogue() {
  static const auto loaded =
      formats::load_catalogue(fs::path{TROUPE_SOURCE_DIR} / "configs" / "gpus.yaml").value();
  return loaded;
}

/// A type and a datacenter that a file may name.
cluster fuzzed_cluster() {
  cluster c;
  c.gpus.resize(1);
  c.gpus[0].name = "A";
  c.datacenters.push_back({"x", ""});
  return c;
}

std::vector<target> targets() {
  using namespace formats;
  return {
      {"catalogue", "gpus.yaml", [](auto& f) { (void)load_catalogue(f); }, {start_of("gpus.yaml")}},
      {"cluster",
       "cluster.yaml",
       [](auto& f) { (void)load_cluster(f, catalogue()); },
       {shipped("clusters/demo.yaml"), shipped("clusters/espresso.yaml")}},
      {"model",
       "model.yaml",
       [](auto& f) { (void)load_model(f); },
       {shipped("models/gpt2-7b.yaml"), shipped("models/moe-0.69b.yaml")}},
      {"huggingface",
       "config.json",
       [](auto& f) { (void)load_model(f); },
       {shipped("models/qwen2-0.5b.json")}},
      {"job",
       "job.yaml",
       [](auto& f) { (void)load_job(f, catalogue()); },
       {shipped("jobs/hello.yaml"), shipped("jobs/train-across.yaml"), shipped("jobs/figure6.yaml"),
        shipped("jobs/inline.yaml")}},
      {"faults",
       "faults.yaml",
       [](auto& f) { (void)load_faults(f); },
       {shipped("faults/storm.yaml"), shipped("faults/split.yaml"),
        shipped("faults/stragglers.yaml")}},
      {"profile",
       "profile.yaml",
       [](auto& f) { (void)load_profile(f); },
       {profile_text(device_profile{})}},
      {"trace",
       "trace.csv",
       [](auto& f) { (void)load_trace(f); },
       {start_of("traces/philly-day.csv")}},
      {"inference-trace",
       "trace.csv",
       [](auto& f) {
         (void)load_inference_trace(f);
         (void)import_azure_llm(f);
       },
       {"arrival_s,prompt_tokens,generated_tokens\n0.5,10,20\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n"}},
      {"philly",
       "trace.csv",
       [](auto& f) {
         (void)import_jobs("philly", f);
         (void)import_jobs("itp", f);
       },
       {start_of("traces/philly-day.csv")}},
      {"published-traces",
       "trace.csv",
       [](auto& f) {
         for (const auto& format : job_trace_formats()) (void)import_jobs(format, f);
       },
       {R"json([{"status": "Pass", "vc": "v", "jobid": "j", "submitted_time": "2017-10-07 01:00:00",
 "attempts": [{"start_time": "2017-10-07 01:01:00", "end_time": "2017-10-07 01:02:00",
 "detail": [{"ip": "m", "gpus": ["gpu0"]}]}]}])json",
        "job_id,gpu_num,submit_time,duration,vc\n7,2,2020-06-09 18:41:01,60,v\n",
        "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\na,1,460,0,50,10\n",
        "a,worker,3.0,Terminated,110.0,410.0,600.0,29.3,50.0,T4\n",
        "name,time,application,num_replicas,batch_size\nc-0,107,cifar10,6,2048\n",
        "LM (batch size 5)\tpython main.py\t--steps\t1\t8601\t40.0\t2\n"}},
      {"throughputs",
       "speeds.csv",
       [](auto& f) { (void)load_throughputs(f); },
       {"model,gpu_type,gpus,samples_per_s,iterations\nbert,T4,2,24.5,900\n"}},
      {"throughputs-json",
       "speeds.json",
       [](auto& f) { (void)load_throughputs(f); },
       {R"json({"v100": {"('LM', 2)": {"null": 9.5, "('A', 1)": [1, 2]}, "A": {"null": 1}}})json"}},
      {"lookup-table",
       "lut.json",
       [](auto& f) { (void)load_lookup_table(f, catalogue()); },
       {R"json({"rows": [{"gpu": "V100-32GB", "model": "vit-large-16", "gpus": 1, "accumulate": 1,
                          "batch": 64, "iteration_s": 0.5, "bytes_per_gpu": 8e9}]})json"}},
      {"groups",
       "groups.json",
       [](auto& f) { (void)load_groups(f, fuzzed_cluster()); },
       {R"json({"rows_per_microbatch": 2, "groups": [{"pipelines": 1, "microbatches": 3,
                "stages": [{"gpu": "A", "pieces": 4, "datacenter": "x"}]}]})json"}},
      {"vocabulary",
       "vocab.json",
       read_vocabulary,
       {vocabulary_text()},
       [] { write(place() / "merges.txt", merges_text); }},
      {"merges",
       "merges.txt",
       read_vocabulary,
       {merges_text},
       [] { write(place() / "vocab.json", vocabulary_text()); }},
      {"tokenizer", "tokenizer.json", read_tokenizer, {tokenizer_text}},
      {"tokenizer-config",
       "tokenizer_config.json",
       read_tokenizer,
       {tokenizer_config_text},
       [] { write(place() / "tokenizer.json", tokenizer_text); }},
      {"added-tokens",
       "added_tokens.json",
       read_tokenizer,
       {R"({"<x>": 300, "<s>": 9})"},
       [] { write(place() / "tokenizer.json", tokenizer_text); }},
      {"served-model",
       "config.json",
       [](auto& f) { (void)gpu::read_inference_model(f.parent_path()); },
       {shipped("models/scribe/config.json"), shipped("models/qwen2-0.5b.json"), llama3_text}},
      {"adapter",
       "adapter_config.json",
       read_adapter,
       {adapter_text},
       [] { write(place() / "adapter_model.safetensors", adapter_tensors_text()); }},
      {"adapter-tensors",
       "adapter_model.safetensors",
       read_adapter,
       {adapter_tensors_text()},
       [] { write(place() / "adapter_config.json", adapter_text); }},
      {"examples",
       "data.jsonl",
       read_example_lines,
       {shipped("data/capitals.jsonl").substr(0, 500),
        R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})",
        R"({"prompt": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],)"
        R"( "completion": [{"role": "assistant", "content": "b", "weight": 1}]})",
        R"({"prompt": "a", "completion": "b"})"
        "\n"
        R"({"text": "a"})"}},
      {"safetensors", "model.safetensors", read_safetensors, {safetensors_text()}},
      {"checkpoint",
       "model.safetensors.index.json",
       read_checkpoint,
       {index_text},
       [] { write(place() / "model.safetensors", safetensors_text()); }},
      {"authorized",
       "authorized",
       [](auto& f) { (void)runtime::load_keys(f.parent_path().string(), "controller"); },
       {of_place("authorized")},
       with_keys},
      {"key",
       "controller.key",
       [](auto& f) { (void)runtime::load_keys(f.parent_path().string(), "controller"); },
       {of_place("controller.key")},
       with_keys},
  };
}

const target& chosen() {
  static const target one = [] {
    const char* wanted = std::getenv("TROUPE_FUZZ_TARGET");
    for (auto& t : targets())
      if (wanted && std::string{wanted} == t.name) return t;
    std::fprintf(stderr, "TROUPE_FUZZ_TARGET is one of:");
    for (const auto& t : targets()) std::fprintf(stderr, " %s", t.name);
    std::fprintf(stderr, "\n");
    std::exit(2);
  }();
  return one;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const auto& t = chosen();
  if (const char* seeds = std::getenv("TROUPE_FUZZ_SEEDS")) {
    fs::create_directories(seeds);
    for (std::size_t i = 0; i < t.seeds.size(); ++i)
      write(fs::path{seeds} / ("seed-" + std::to_string(i)), t.seeds[i]);
    std::exit(0);
  }
  if (t.prepare) t.prepare();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto& t = chosen();
  const auto file = place() / t.file;
  std::ofstream out{file, std::ios::binary | std::ios::trunc};
  out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  out.close();
  t.read(file);
  return 0;
}
