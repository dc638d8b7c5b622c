#!/usr/bin/env bash
# While JSON is streamed, a parser of partial JSON has 1 for 1e-5, and the rest of the number in the
# next key; it is right only once the last bracket has come.
#
# Packages: npm best-effort-json-parser 1.5.1; partial-json 0.1.7, untruncate-json 0.0.1 and
# jsonrepair 3.15.0 to compare; node 20.
# Seen: {"lr": 1e-5, "epochs": 30, cut before its bracket, is {"lr": 1, "e-5, \"epochs\"": 30}, and
# [3e2, 7 is [3, "e2", 7]. In a nested object the rest of the text is dropped. No exception is
# raised. The whole text is right, as JSON.parse is tried first, and so are numbers without an
# exponent. The other three have the numbers right in the same cut texts.
# Likely guess: what is complete in a cut text, here a number that is followed by a comma, has its
# value.
# Why it matters: such parsers show or use the arguments of a tool's call while a language model
# streams them, and an answer that ends at its limit of tokens stays cut. Small and large numbers
# are written with exponents: a learning rate, an epsilon, a count of tokens. A learning rate of 1
# is valid, and the keys that come after it are missing.
# Date: 2026-12-02
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(best-effort-json-parser@1.5.1 partial-json@0.1.7 untruncate-json@0.0.1 jsonrepair@3.15.0)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >numbers.mjs <<'JS'
import * as bestEffort from "best-effort-json-parser";
import {jsonrepair} from "jsonrepair";
import {parse as partial} from "partial-json";
import untruncate from "untruncate-json";

const parsers = {
  "best-effort-json-parser": bestEffort.parse,
  "partial-json": partial,
  "untruncate-json": (text) => JSON.parse((untruncate.default ?? untruncate)(text)),
  "jsonrepair": (text) => JSON.parse(jsonrepair(text)),
};
// The text as far as it has come, and what is complete in it.
const texts = [['{"lr": 0.5, "epochs": 30', '{"lr":0.5,"epochs":30}'],
  ['{"lr": 1e-5, "epochs": 30', '{"lr":0.00001,"epochs":30}'],
  ['{"lr": 1e-5, "epochs": 30}', '{"lr":0.00001,"epochs":30}'],
  ['{"adam": {"lr": -1e-5, "eps": 2.5E-8}, "steps": 7',
    '{"adam":{"lr":-0.00001,"eps":2.5e-8},"steps":7}'],
  ["[300, 7", "[300,7]"], ["[3e2, 7", "[300,7]"], ["[3e2, 7]", "[300,7]"]];
for (const [text, right] of texts) {
  console.log(text);
  for (const [name, parse] of Object.entries(parsers)) {
    const result = JSON.stringify(parse(text));
    console.log(`  ${name}: ${result}${result === right ? "" : ", WRONG"}`);
  }
}
JS

echo "node $(node --version), ${pinned[*]}"
timeout 60 node numbers.mjs 2>log | tee seen
cat >expected <<'TEXT'
{"lr": 0.5, "epochs": 30
  best-effort-json-parser: {"lr":0.5,"epochs":30}
  partial-json: {"lr":0.5,"epochs":30}
  untruncate-json: {"lr":0.5,"epochs":30}
  jsonrepair: {"lr":0.5,"epochs":30}
{"lr": 1e-5, "epochs": 30
  best-effort-json-parser: {"lr":1,"e-5, \"epochs\"":30}, WRONG
  partial-json: {"lr":0.00001,"epochs":30}
  untruncate-json: {"lr":0.00001,"epochs":30}
  jsonrepair: {"lr":0.00001,"epochs":30}
{"lr": 1e-5, "epochs": 30}
  best-effort-json-parser: {"lr":0.00001,"epochs":30}
  partial-json: {"lr":0.00001,"epochs":30}
  untruncate-json: {"lr":0.00001,"epochs":30}
  jsonrepair: {"lr":0.00001,"epochs":30}
{"adam": {"lr": -1e-5, "eps": 2.5E-8}, "steps": 7
  best-effort-json-parser: {"adam":{"lr":-1,"e-5, \"eps\"":2.5}}, WRONG
  partial-json: {"adam":{"lr":-0.00001,"eps":2.5e-8},"steps":7}
  untruncate-json: {"adam":{"lr":-0.00001,"eps":2.5e-8},"steps":7}
  jsonrepair: {"adam":{"lr":-0.00001,"eps":2.5e-8},"steps":7}
[300, 7
  best-effort-json-parser: [300,7]
  partial-json: [300,7]
  untruncate-json: [300,7]
  jsonrepair: [300,7]
[3e2, 7
  best-effort-json-parser: [3,"e2",7], WRONG
  partial-json: [300,7]
  untruncate-json: [300,7]
  jsonrepair: [300,7]
[3e2, 7]
  best-effort-json-parser: [300,7]
  partial-json: [300,7]
  untruncate-json: [300,7]
  jsonrepair: [300,7]
TEXT
diff expected seen || { echo "changed: numbers are parsed otherwise" >&2; exit 1; }
echo "as seen on 2026-12-02"
