#!/usr/bin/env bash
# Hugging Face's tokenizers does not use the ids that a tokenizer.json gives its added tokens: it
# numbers them itself, in the file's order from the vocabulary's size on.
#
# Packages: npm tokenizers 0.23.2 (the Rust library), @huggingface/tokenizers 0.2.0 (the same in
# JavaScript); node 20.
# Seen: with a vocabulary of 3 tokens, <s> 4 and </s> 5 are encoded as 3 and 4; <s> 4 and </s> 3 as
# 3 and 4, exchanged; <s> 3 and </s> 10 as 3 and 4. Decoding the file's own ids leaves out those that
# do not exist any more, without an error. JavaScript's library encodes all as the file has them.
# With the numbers that follow the vocabulary, in their order, both agree. Nothing is printed.
# Likely guess: the file's "id" counts, or a file with other ids is refused.
# Why it matters: a vocabulary is padded to a multiple of 64, or tokens are taken out of it, and the
# file is edited by hand: <s>, the end of a turn, a tool's token then have a row of the embedding
# that nobody trained, or each other's. A program that reads the file itself, as the JavaScript
# library does, takes the file's ids, so that one file has two encodings; and a file that is written
# out again has the new ids.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(tokenizers@0.23.2 @huggingface/tokenizers@0.2.0)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >ids.mjs <<'JS'
import rust from "tokenizers";
import {Tokenizer} from "@huggingface/tokenizers";
import {readFileSync} from "node:fs";

const text = "<s> hello world </s>";
for (const ids of [[["<s>", 3], ["</s>", 4]], [["<s>", 4], ["</s>", 5]], [["<s>", 4], ["</s>", 3]],
                   [["<s>", 3], ["</s>", 10]]]) {
  const file = {
    version: "1.0", truncation: null, padding: null, normalizer: null, post_processor: null,
    decoder: null, pre_tokenizer: {type: "WhitespaceSplit"},
    added_tokens: ids.map(([content, id]) => ({id, content, single_word: false, lstrip: false,
                                               rstrip: false, normalized: false, special: true})),
    model: {type: "WordLevel", unk_token: "<unk>", vocab: {"<unk>": 0, hello: 1, world: 2}}};
  const one = rust.Tokenizer.fromString(JSON.stringify(file));
  const other = new Tokenizer(file, {});
  const encoded = (await one.encode(text)).getIds().join(" ");
  const decoded = await one.decode(ids.map(([, id]) => id), false);
  one.save("saved.json");
  const saved = JSON.parse(readFileSync("saved.json", "utf8")).added_tokens;
  console.log(`${ids.map((pair) => pair.join(" ")).join(", ")}: Rust ${encoded},`,
    `JavaScript ${other.encode(text).ids.join(" ")}; Rust decodes the two "${decoded}",`,
    `saves ${saved.map(({content, id}) => content + " " + id).join(", ")}`);
}
JS

echo "node $(node --version), ${pinned[*]}"
timeout 100 node ids.mjs 2>&1 | tee seen
cat >expected <<'TEXT'
<s> 3, </s> 4: Rust 3 1 2 4, JavaScript 3 1 2 4; Rust decodes the two "<s> </s>", saves <s> 3, </s> 4
<s> 4, </s> 5: Rust 3 1 2 4, JavaScript 4 1 2 5; Rust decodes the two "</s>", saves <s> 3, </s> 4
<s> 4, </s> 3: Rust 3 1 2 4, JavaScript 4 1 2 3; Rust decodes the two "</s> <s>", saves <s> 3, </s> 4
<s> 3, </s> 10: Rust 3 1 2 4, JavaScript 3 1 2 10; Rust decodes the two "<s>", saves <s> 3, </s> 4
TEXT
diff expected seen || { echo "changed: other ids" >&2; exit 1; }
echo "as seen on 2026-12-01"
