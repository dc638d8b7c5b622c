#include <sys/stat.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>

#include "cli/program.hpp"
#include "gpu/model/safetensors.hpp"

using namespace troupe::test;
using Catch::Contains;

// `troupe check DATA.jsonl --model DIR`: what becomes of a file's examples, and which are refused.

namespace {

/// A tokenizer.json of printable ASCII, whose number is a character's own, and of newline; with
/// these special tokens from 300 on.
std::string tokenizer_of(const std::vector<std::string>& specials) {
  std::string vocabulary = R"("\u010a": 10, "\u0120": 32)", added;
  for (char c = 33; c < 127; ++c)
    vocabulary +=
        std::string{", \""} + (c == '"' || c == '\\' ? "\\" : "") + c + "\": " + std::to_string(c);
  int number = 300;
  for (const auto& s : specials)
    added += (added.empty() ? "" : ", ") + std::string{"{\"id\": "} + std::to_string(number++) +
             ", \"content\": \"" + s + "\", \"special\": true}";
  return R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )"
         R"("added_tokens": [)" +
         added + R"(], "model": {"type": "BPE", "vocab": {)" + vocabulary + R"(}, "merges": []}})";
}

/// A folder without weights: ASCII, with the tokens of ChatML.
std::string model_in(const scratch& dir, const std::string& more = "") {
  const auto folder = std::filesystem::path{dir / "model"};
  std::filesystem::create_directories(folder);
  dir.write("model/config.json", R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 192, "vocab_size": 400)" +
                                     more + "}");
  dir.write("model/tokenizer.json", tokenizer_of({"<|im_start|>", "<|im_end|>", "<s>"}));
  dir.write(
      "model/chat_template.jinja",
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  return folder.string();
}

std::string said(const std::string& question, const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": ")" + question +
         R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
}

struct checked {
  const scratch dir;
  const std::string model = model_in(dir);

  /// The document about a file with this text.
  nlohmann::json of(const std::string& data, const std::string& job = "") {
    const auto r = run(data, job);
    INFO(r.err);
    REQUIRE(r.status == 0);
    return r.document().at("files").at(0);
  }

  result run(const std::string& data, const std::string& job = "") {
    dir.write("data.jsonl", data);
    std::vector<std::string> words{"check", dir / "data.jsonl", "--model", model, "--json"};
    if (!job.empty()) {
      dir.write("job.yaml", "name: tune\ntrain:\n" + job);
      words.insert(words.end(), {"--job", dir / "job.yaml"});
    }
    return troupe::test::troupe(words);
  }

  /// Refused with exit status 2, the file, the line, what was found and what is expected.
  void refuses(const std::string& data, const std::string& place, const std::string& found,
               const std::string& expected, const std::string& job = "") {
    const auto r = run(data, job);
    INFO(data.substr(0, 300));
    CHECK(r.status == 2);
    const auto error = r.document().at("files").at(0).at("error");
    CHECK_THAT(error.get<std::string>(), Contains("data.jsonl" + place + ":") &&
                                             Contains("found " + found) &&
                                             Contains("expected " + expected));
  }
};

const std::string line = said("hi", "yes");

}  // namespace

TEST_CASE("check counts a file's examples, rows and tokens, and shows the first") {
  checked c;
  const auto d = c.of(line + "\n" + said("a longer question", "no") + said("x", "y"));
  CHECK(d.at("kind") == "examples");
  CHECK(d.at("valid") == true);
  CHECK(d.at("examples") == 3);
  CHECK(d.at("rows") == 3);
  CHECK(d.at("format") == "messages");
  CHECK(d.at("ends") == "template");
  CHECK(d.at("tokens") == 26 + 40 + 23);
  CHECK(d.at("trained_tokens") == 4 + 3 + 2);
  CHECK(d.at("longest") == 40);
  CHECK(d.at("sequence") == 192);
  CHECK(d.at("fill").get<double>() == Approx(89.0 / (3 * 192)));
  CHECK(d.at("too_long") == 0);
  CHECK(d.at("dropped") == 0);
  CHECK(d.at("bos_per_example") == 0);
  CHECK(d.at("split_answers") == 0);
  CHECK(d.at("boundary_cuts") == 0);
  CHECK(d.at("unused_keys").empty());
  const auto text = d.at("first").at("text").get<std::string>();
  CHECK(text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n");
  REQUIRE(d.at("first").at("trained").size() == 1);
  const auto from = d.at("first").at("trained").at(0).at(0).get<std::size_t>(),
             to = d.at("first").at("trained").at(0).at(1).get<std::size_t>();
  CHECK(text.substr(from, to - from) == "yes<|im_end|>");
}

TEST_CASE("check reads the four forms of examples") {
  checked c;
  const auto pairs = c.of(
      R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "hi"},)"
      R"( {"from": "gpt", "value": "yes"}]})");  // the last line has no end
  CHECK(pairs.at("format") == "conversations");
  CHECK(pairs.at("trained_tokens") == 4);
  const auto completion = c.of(R"({"prompt": "ab", "completion": "cde"})"
                               "\n");
  CHECK(completion.at("format") == "prompt");
  CHECK(completion.at("tokens") == 5 + 1);
  CHECK(completion.at("trained_tokens") == 3 + 1);
  CHECK(completion.at("ends") == "added");
  const auto lists =
      c.of(R"({"prompt": [{"role": "user", "content": "hi"},)"
           R"( {"role": "assistant", "content": "old"}, {"role": "user", "content": "x"}],)"
           R"( "completion": [{"role": "assistant", "content": "yes"}]})");
  CHECK(lists.at("trained_tokens") == 4);
  const auto texts = c.of("{\"text\": \"abc\"}\n{\"text\": \"de\"}\r\n");
  CHECK(texts.at("tokens") == 4 + 3);
  CHECK(texts.at("trained_tokens") == 3 + 2);
  CHECK(texts.at("first").at("trained").at(0) == nlohmann::json({1, 13}));
}

TEST_CASE("check counts answers without weight as not trained, and names keys that nothing reads") {
  checked c;
  const auto d = c.of(
      R"({"id": 7, "messages": [{"role": "developer", "content": "s"},)"
      R"( {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text",)"
      R"( "text": "i"}], "lang": "en"},)"
      R"( {"role": "assistant", "content": "no", "weight": 0}, {"role": "user", "content": "x"},)"
      R"( {"role": "assistant", "content": "yes", "weight": 1}], "tools": []})");
  CHECK(d.at("trained_tokens") == 4);
  CHECK(d.at("unused_keys") == nlohmann::json({"id", "messages.lang", "tools"}));
  CHECK_THAT(d.at("warnings").at(0).get<std::string>(), Contains("id, messages.lang, tools"));
  CHECK_THAT(d.at("first").at("text").get<std::string>(), Contains("<|im_start|>system\ns"));
}

TEST_CASE("a job says how examples become rows") {
  checked c;
  std::string data;
  for (int i = 0; i < 64; ++i)
    data += said(std::string(1 + i % 7, 'a'), std::string(1 + i % 5, 'b'));
  const auto packed = c.of(data, "  base: ../model\n  packing: true\n  sequence: 128\n");
  CHECK(packed.at("examples") == 64);
  CHECK(packed.at("rows").get<int>() < 20);
  CHECK(packed.at("fill").get<double>() > 0.8);
  const auto apart = c.of(data);
  CHECK(apart.at("tokens") == packed.at("tokens"));
  CHECK(apart.at("rows") == 64);
  const auto all = c.of(data, "  train_on: all\n");
  CHECK(all.at("trained_tokens").get<int>() == all.at("tokens").get<int>() - 64);
  const auto mixed = line + said("a question of many words", "no");
  const auto dropped = c.of(mixed, "  sequence: 40\n  too_long: drop\n");
  CHECK(dropped.at("examples") == 1);
  CHECK(dropped.at("too_long") == 1);
  CHECK(dropped.at("dropped") == 1);
  CHECK(dropped.at("longest") == 47);
  const auto cut =
      c.of(line + said("x", std::string(100, 'y')), "  sequence: 40\n  too_long: cut\n");
  CHECK(cut.at("examples") == 2);
  CHECK(cut.at("too_long") == 1);
  CHECK(cut.at("tokens") == 26 + 40);
}

TEST_CASE("check writes rows with the tokens and targets that it counts") {
  checked c;
  c.dir.write("data.jsonl", line + said("x", "y"));
  const auto file = c.dir / "new/rows.safetensors";
  const auto r =
      troupe::test::troupe({"check", c.dir / "data.jsonl", "--model", c.model, "--rows", file});
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto opened = troupe::gpu::safetensors::open(file);
  REQUIRE(opened);
  const auto& rows = *opened;
  const auto values = [&](const char* name, auto one) {
    for (const auto& t : rows.all()) {
      if (t.name != name) continue;
      std::vector<decltype(one)> out((t.end - t.begin) / sizeof one);
      CHECK(rows.read_bytes(t, 0, std::as_writable_bytes(std::span{out})));
      return out;
    }
    FAIL(name);
    return std::vector<decltype(one)>{};
  };
  using edges = std::vector<std::int64_t>;
  CHECK(values("examples", std::int64_t{}) == edges{0, 26, 49});
  CHECK(values("rows", std::int64_t{}) == edges{0, 1, 2});
  const auto tokens = values("tokens", std::int32_t{});
  const auto trained = values("trained", std::uint8_t{});
  REQUIRE(tokens.size() == 49);
  REQUIRE(trained.size() == 49);
  std::string targets;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (trained[i] != 0)
      targets += tokens[i] < 256 ? std::string(1, static_cast<char>(tokens[i])) : "{end}";
  CHECK(targets == "yes{end}y{end}");
  CHECK(std::count(tokens.begin(), tokens.end(), 301) == 4);
  CHECK(rows.metadata("format") == "troupe-rows-1");
  CHECK(rows.metadata("vocabulary") == "400");
}

TEST_CASE("check names the day that a template writes, by the job") {
  checked c;
  c.dir.write("model/chat_template.jinja",
              "{{ strftime_now('%A %d %B %Y') }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
              "{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  CHECK_THAT(c.of(line, "  date: \"2026-11-29\"\n").at("first").at("text").get<std::string>(),
             Contains("Sunday 29 November 2026<|im_start|>user"));
  c.dir.write("bad.yaml", "name: x\ntrain: {date: 2026-02-30}\n");
  const auto r = troupe::test::troupe(
      {"check", c.dir / "data.jsonl", "--model", c.model, "--job", c.dir / "bad.yaml"});
  CHECK(r.status == 2);
  CHECK_THAT(r.err, Contains("date: found '2026-02-30', expected a day as 2026-11-29"));
}

TEST_CASE("check warns about a doubled BOS token, and about answers without an end token") {
  const scratch dir;
  const auto model = model_in(dir, R"(, "bos_token_id": 302)");
  dir.write("model/chat_template.jinja",
            "<s><s>{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}");
  dir.write("data.jsonl", line);
  const auto r = troupe::test::troupe({"check", dir / "data.jsonl", "--model", model, "--json"});
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto d = r.document().at("files").at(0);
  CHECK(d.at("bos_per_example") == 2);
  CHECK(d.at("ends") == "none");
  CHECK_THAT(d.at("warnings").at(0).get<std::string>(), Contains("starts with 2 BOS tokens"));
  CHECK_THAT(d.at("warnings").at(1).get<std::string>(), Contains("answers have no end token"));
}

TEST_CASE("examples that cannot be learned from are refused with file, line, found and expected") {
  checked c;
  const std::string forms =
      "a JSON object with messages, conversations, prompt and completion, or text";
  c.refuses(line + "not JSON\n", ":2", "'not JSON'", forms);
  c.refuses(line + line + "[1]\n", ":3", "'[1]'", forms);
  c.refuses("{\"text\": \"a\xff\"}\n", ":1", "the byte 0xff at 11", "UTF-8");
  c.refuses("{\"text\": \"a\", \"text\": \"b\"}\n", ":1", "the name 'text' twice", "it once");
  c.refuses("{\"text\": \"a\", \"messages\": []}\n", ":1", "messages and text", "one of them");
  c.refuses("{\"prompt\": \"a\"}\n", ":1", "no completion", "prompt and completion");
  c.refuses("{\"instruction\": \"a\", \"output\": \"b\"}\n", ":1", "the keys instruction, output",
            "messages");
  c.refuses(line + "{\"text\": \"a\"}\n", ":2", "text", "messages as in the lines before");
  c.refuses(R"({"messages": [{"role": "narrator", "content": "x"}]})", ":1", "\"narrator\"",
            "system, user, assistant or developer");
  c.refuses(R"({"conversations": [{"from": "bot", "value": "x"}]})", ":1", "\"bot\"",
            "human, gpt, system, user or assistant");
  c.refuses(R"({"messages": [{"role": "user", "content": "x"}]})", ":1", "no answer",
            "an answer of the assistant");
  c.refuses(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant",)"
            R"( "content": "y", "weight": 0}]})",
            ":1", "no answer that counts", "an answer of the assistant");
  c.refuses(said("x", ""), ":1", "an empty answer", "a text");
  c.refuses("{\"prompt\": \"a\", \"completion\": \"\"}\n", ":1", "an empty text", "an answer");
  c.refuses("{\"text\": \"\"}\n", ":1", "\"\"", "a text that is not empty");
  c.refuses(R"({"tools": [{}], "messages": [{"role": "assistant", "content": "x"}]})", ":1",
            "tools", "none: examples are texts alone");
  c.refuses(R"({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]})", ":1",
            "one", "none: examples are texts alone");
  c.refuses(R"({"messages": [{"role": "tool", "content": "x"}]})", ":1", "\"tool\"",
            "no calls of tools");
  c.refuses(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", ":1",
            "a part {", "parts of type text");
  c.refuses(R"({"messages": [{"role": "user", "content": "x", "weight": 1}]})", ":1", "1",
            "none: only an assistant's message may have a weight");
  c.refuses(R"({"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]})", ":1", "0.5",
            "0 or 1");
  c.refuses(said("x", std::string(200, 'y')), ":1", "an example of 222 tokens",
            "at most 192 (sequence)");
  c.refuses(line + said("x", std::string(17u << 20, 'y')), ":2",
            "a line of more than 16777216 bytes", "less");
  c.refuses("\n\n", "", "no line", "at least one example");
  c.refuses(said("a", "b"), "", "no example that fits into a row", "at least one example",
            "  sequence: 5\n  too_long: drop\n");
  c.refuses("{\"text\": \"abc\"}\n", ":1", "a text, in which nothing is an answer", "train_on: all",
            "  train_on: answers\n");
  c.refuses("{\"text\": \"" + std::string(1000, '[') + "\", \"x\": " + std::string(100, '[') +
                std::string(100, ']') + "}\n",
            ":1", "101 levels of JSON", "at most 64");
}

TEST_CASE("check of examples refuses what is no file, and a folder that is no model") {
  checked c;
  c.of(line);
  const auto refused = [&](std::vector<std::string> words, const std::string& what) {
    words.insert(words.begin(), "check");
    const auto r = troupe::test::troupe(words);
    CHECK(r.status == 2);
    CHECK_THAT(r.err, Contains(what));
  };
  const auto data = c.dir / "data.jsonl", fifo = c.dir / "fifo.jsonl";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  refused({fifo, "--model", c.model}, "fifo.jsonl");
  refused({c.dir / "nowhere.jsonl", "--model", c.model}, "nowhere.jsonl");
  refused({data}, "give --model");
  refused({data, "--model", c.dir / "gone"}, "gone/config.json");
  c.dir.write("job.yaml", "name: x\ntrain:\n  sequence: 193\n");
  refused({data, "--model", c.model, "--job", c.dir / "job.yaml"},
          "sequence: found 193, expected at most the model's 192 positions");
  c.dir.write("job.yaml", "name: x\ntrain:\n  too_long: skip\n");
  refused({data, "--model", c.model, "--job", c.dir / "job.yaml"}, "job.yaml:3: train.too_long");
  c.dir.write("model/chat_template.jinja", "{{ raise_exception('users alone') }}");
  refused({data, "--model", c.model}, "data.jsonl:1: ");
}
