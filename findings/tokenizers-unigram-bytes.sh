#!/usr/bin/env bash
# Hugging Face's tokenizers for JavaScript drops byte_fallback of a Unigram model: text outside the
# vocabulary becomes <unk> and is lost, where the Rust library gives its bytes.
#
# Packages: npm @huggingface/tokenizers 0.2.0 (JavaScript), tokenizers 0.23.2 (Rust); node 20.
# Seen: one tokenizer.json with "byte_fallback": true and tokens for all 256 bytes. Rust encodes
# "a+b" as a, byte 2B, b, and decodes it again; JavaScript as a, <unk>, b. Characters outside the
# vocabulary in a row are one <unk>, so that "x + yz" and "x * qq" have the same ids. The same file
# with a BPE model has the same bytes in both. Nothing warns of it.
# Likely guess: the option is read for both kinds of model, as in Rust; or a file with it is refused.
# Why it matters: Unigram with bytes for the rest is SentencePiece's usual form for a model that
# has to take any text. Embeddings, prompts and counts of tokens that are made in a browser or with
# node differ from those of training, for just the texts (code, names, other scripts) where bytes
# were wanted; a cache of prefixes takes two prompts for one.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(@huggingface/tokenizers@0.2.0 tokenizers@0.23.2)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >bytes.mjs <<'JS'
import rust from "tokenizers";
import {Tokenizer} from "@huggingface/tokenizers";

const hex = (byte) => byte.toString(16).toUpperCase().padStart(2, "0");
const bytes = Array.from({length: 256}, (_, i) => `<0x${hex(i)}>`);
const tokens = ["<unk>", "a", "b", "ab", "▁", ...bytes];
const models = {
  Unigram: {type: "Unigram", unk_id: 0, byte_fallback: true,
            vocab: tokens.map((token, i) => [token, i === 0 ? 0 : i < 5 ? -i : -20])},
  BPE: {type: "BPE", unk_token: "<unk>", fuse_unk: true, byte_fallback: true, dropout: null,
        continuing_subword_prefix: null, end_of_word_suffix: null, ignore_merges: false,
        vocab: Object.fromEntries(tokens.map((token, i) => [token, i])), merges: [["a", "b"]]},
};
for (const [kind, model] of Object.entries(models)) {
  const file = {
    version: "1.0", truncation: null, padding: null, added_tokens: [], post_processor: null,
    normalizer: {type: "Replace", pattern: {String: " "}, content: "▁"}, pre_tokenizer: null,
    decoder: {type: "Sequence", decoders: [
      {type: "Replace", pattern: {String: "▁"}, content: " "}, {type: "ByteFallback"},
      {type: "Fuse"}]},
    model};
  const one = rust.Tokenizer.fromString(JSON.stringify(file));
  const other = new Tokenizer(file, {});
  for (const text of ["ab", "a+b", "é", "x + yz", "x * qq"]) {
    const ids = {Rust: (await one.encode(text)).getIds(), JavaScript: other.encode(text).ids};
    for (const [name, list] of Object.entries(ids))
      console.log(`${kind} "${text}" ${name}: ${list.map((id) => tokens[id]).join(" ")}`,
        `-> "${await one.decode(list, false)}"`);
  }
}
JS

echo "node $(node --version), ${pinned[*]}"
timeout 100 node bytes.mjs 2>&1 | tee seen
cat >expected <<'TEXT'
Unigram "ab" Rust: ab -> "ab"
Unigram "ab" JavaScript: ab -> "ab"
Unigram "a+b" Rust: a <0x2B> b -> "a+b"
Unigram "a+b" JavaScript: a <unk> b -> "a<unk>b"
Unigram "é" Rust: <0xC3> <0xA9> -> "é"
Unigram "é" JavaScript: <unk> -> "<unk>"
Unigram "x + yz" Rust: <0x78> ▁ <0x2B> ▁ <0x79> <0x7A> -> "x + yz"
Unigram "x + yz" JavaScript: <unk> ▁ <unk> ▁ <unk> -> "<unk> <unk> <unk>"
Unigram "x * qq" Rust: <0x78> ▁ <0x2A> ▁ <0x71> <0x71> -> "x * qq"
Unigram "x * qq" JavaScript: <unk> ▁ <unk> ▁ <unk> -> "<unk> <unk> <unk>"
BPE "ab" Rust: ab -> "ab"
BPE "ab" JavaScript: ab -> "ab"
BPE "a+b" Rust: a <0x2B> b -> "a+b"
BPE "a+b" JavaScript: a <0x2B> b -> "a+b"
BPE "é" Rust: <0xC3> <0xA9> -> "é"
BPE "é" JavaScript: <0xC3> <0xA9> -> "é"
BPE "x + yz" Rust: <0x78> ▁ <0x2B> ▁ <0x79> <0x7A> -> "x + yz"
BPE "x + yz" JavaScript: <0x78> ▁ <0x2B> ▁ <0x79> <0x7A> -> "x + yz"
BPE "x * qq" Rust: <0x78> ▁ <0x2A> ▁ <0x71> <0x71> -> "x * qq"
BPE "x * qq" JavaScript: <0x78> ▁ <0x2A> ▁ <0x71> <0x71> -> "x * qq"
TEXT
diff expected seen || { echo "changed: other tokens" >&2; exit 1; }
echo "as seen on 2026-12-01"
