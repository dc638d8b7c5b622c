#include "gpu/model/export.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/load/load.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/pipeline.hpp"
#include "harness/files.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace fs = std::filesystem;

namespace {

/// A checkpoint of iteration 1 as a training leaves it: `root` has it, and the pipeline's weights.
std::vector<float> trained(const fs::path& root, const model& m) {
  pipeline p{devices()[0], m, {4, 8}};
  p.learn(lessons(m, 2, 1, 1));
  const auto directory = checkpoint_directory(root, 1);
  p.save(directory.string());
  std::vector<std::string> files;
  for (const auto& s : p.specs) files.push_back(stage_file(s));
  const auto first = loaded(safetensors::open(directory / files[0]));
  const auto iteration = std::stoull(first.iteration().value());
  CHECK(write_index(directory, m, iteration, files));
  return p.weights();
}

}  // namespace

TEST_CASE("an exported checkpoint is a Hugging Face folder with the same model and weights") {
  const bool tied = GENERATE(true, false);
  const auto m = small_model(tied);
  const auto root = fresh_path("to-export"), to = fresh_path("exported");
  const auto weights = trained(root, m);
  const auto tokenizer = temporary("tokenizer/vocab.json", "{}").parent_path();
  temporary("tokenizer/merges.txt", "#version: 0.2\n");
  const auto done = loaded(export_model({root, to, {}, tokenizer}));
  CHECK(done.from.filename() == "iteration-000001");

  const auto read = loaded(formats::load_model(to / "config.json"));
  CHECK(read.family == "gpt");
  CHECK(read.hidden == m.hidden);
  CHECK(read.layers == m.layers);
  CHECK(read.heads == m.heads);
  CHECK(read.sequence == m.sequence);
  CHECK(read.vocabulary == m.vocabulary);
  CHECK(read.tied_head == m.tied_head);
  pipeline again{devices()[0], m, {6, 6}};
  again.load((to / "model.safetensors").string());
  CHECK(again.weights() == weights);
  const auto file = loaded(safetensors::open(to / "model.safetensors"));
  for (const auto& [name, about] : file.tensors()) CHECK(name.find("adam") == std::string::npos);
  CHECK((file.find("lm_head.weight") == nullptr) == tied);
  for (const auto* name : {"vocab.json", "merges.txt", "tokenizer_config.json"})
    CHECK(fs::exists(to / name));
  CHECK_THAT(export_model({root, to, {}, {}}).error().text, Catch::Contains("already exists"));
}

TEST_CASE("an exported model of bytes has a tokenizer whose tokens are the bytes") {
  auto m = small_model();
  m.vocabulary = 256;
  const auto root = fresh_path("of-bytes"), to = fresh_path("bytes-exported");
  trained(root, m);
  REQUIRE(export_model({root, to, {}, {}}));
  REQUIRE(fs::exists(to / "tokenizer.json"));
  const auto words = loaded(open_tokenizer(to, 256));
  CHECK(words->size() == 256);
  std::string all, text = "The President's \xC3\xA9t\xC3\xA9 \xE2\x82\xAC  \n\t<|endoftext|>";
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  for (const auto& t : {text, all, std::string(3000, ' ')}) {
    const auto tokens = words->encode_prompt(t);
    REQUIRE(tokens.size() == t.size());
    CHECK(std::ranges::equal(tokens, t, {}, {},
                             [](char c) { return static_cast<unsigned char>(c); }));
    CHECK(words->decode(tokens) == t);
  }
  const auto config = nlohmann::json::parse(std::ifstream{to / "tokenizer_config.json"});
  CHECK(config["tokenizer_class"] == "PreTrainedTokenizerFast");
  m.vocabulary = 300;
  const auto other = fresh_path("not-of-bytes"), without = fresh_path("without-tokenizer");
  trained(other, m);
  REQUIRE(export_model({other, without, {}, {}}));
  CHECK_FALSE(fs::exists(without / "tokenizer.json"));
}

TEST_CASE("Hugging Face's tokenizers read the tokenizer of bytes") {
  if (std::system("python3 -c 'import tokenizers' 2>/dev/null") != 0) return;
  auto m = small_model();
  m.vocabulary = 256;
  const auto root = fresh_path("bytes-for-python"), to = fresh_path("bytes-read-by-python");
  trained(root, m);
  REQUIRE(export_model({root, to, {}, {}}));
  const auto script = temporary("read_tokenizer.py", R"(
import sys, tokenizers
t = tokenizers.Tokenizer.from_file(sys.argv[1] + '/tokenizer.json')
text = "The President's \u00e9t\u00e9 \u20ac  \n\t<|endoftext|>"
assert t.encode(text).ids == list(text.encode())
assert t.decode(t.encode(text).ids) == text
)");
  CHECK(std::system(("python3 " + script.string() + " " + to.string()).c_str()) == 0);
}

TEST_CASE("a checkpoint without its model is exported with the job's model, or refused") {
  const auto m = small_model();
  const auto root = fresh_path("unsaid");
  trained(root, m);
  const auto directory = checkpoint_directory(root, 1);
  fs::remove(directory / "model.safetensors.index.json");
  CHECK_THAT(export_model({directory, fresh_path("e1"), {}, {}}).error().text,
             Catch::Contains("--job"));
  CHECK(export_model({directory, fresh_path("e2"), m, {}}));
}

TEST_CASE("numpy reads an exported checkpoint by GPT-2's names and shapes") {
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) return;
  const auto m = small_model();
  const auto root = fresh_path("for-python"), to = fresh_path("read-by-python");
  trained(root, m);
  REQUIRE(export_model({root, to, {}, {}}));
  const auto script = temporary("read.py", R"(
import json, struct, sys, numpy
c = json.load(open(sys.argv[1] + '/config.json'))
assert c['model_type'] == 'gpt2' and c['architectures'] == ['GPT2LMHeadModel'], c
b = open(sys.argv[1] + '/model.safetensors', 'rb').read()
n = struct.unpack('<Q', b[:8])[0]
h = json.loads(b[8:8 + n])
assert h.pop('__metadata__') == {'format': 'pt'}
d, inner = c['n_embd'], c['n_inner']
want = {'wte.weight': [c['vocab_size'], d], 'wpe.weight': [c['n_positions'], d],
        'ln_f.weight': [d], 'ln_f.bias': [d]}
shapes = {'ln_1.weight': [d], 'ln_1.bias': [d], 'ln_2.weight': [d], 'ln_2.bias': [d],
          'attn.c_attn.weight': [d, 3 * d], 'attn.c_attn.bias': [3 * d],
          'attn.c_proj.weight': [d, d], 'attn.c_proj.bias': [d],
          'mlp.c_fc.weight': [d, inner], 'mlp.c_fc.bias': [inner],
          'mlp.c_proj.weight': [inner, d], 'mlp.c_proj.bias': [d]}
for i in range(c['n_layer']):
    for name, shape in shapes.items():
        want[f'h.{i}.{name}'] = shape
assert {k: v['shape'] for k, v in h.items()} == {'transformer.' + k: v for k, v in want.items()}, h
for k, v in h.items():
    begin, end = (8 + n + o for o in v['data_offsets'])
    a = numpy.frombuffer(b[begin:end], numpy.float32)
    assert v['dtype'] == 'F32' and a.size == numpy.prod(v['shape']), k
    assert numpy.isfinite(a).all(), k
)");
  CHECK(std::system(("python3 " + script.string() + " " + to.string()).c_str()) == 0);
}
