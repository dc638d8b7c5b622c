#!/usr/bin/env bash
# XGrammar does not hold an optional property to its own type or enum as soon as the schema allows
# other keys: the grammar takes its name for one of them.
#
# Packages: npm @mlc-ai/web-xgrammar 0.1.27 (its newest); node 20.
# Seen: properties "tp", an enum of 1, 2, 4 and 8, and "note", a string, neither required. With
# "additionalProperties": true, or with none of it and strictMode off, {"tp": 3}, {"tp": "all"} and
# {"note": 7} are taken; with "additionalProperties": {"type": "string"} {"tp": "all"} is. A
# required property is held to its schema, but may come a second time with any value, which is the
# one that JSON.parse keeps. With "additionalProperties": false all is as the schema says.
# Likely guess: the schema of a named property holds wherever the property comes; other keys are
# those that have no schema of their own.
# Why it matters: allowing other keys is the default of JSON Schema and what tools for agents
# write; optional settings with an enum are the common case. The answer that the grammar vouches
# for fails the very schema that it was made from.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(@mlc-ai/web-xgrammar@0.1.27)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2
# The file is a CommonJS module in a package that says it has others only.
cp node_modules/@mlc-ai/web-xgrammar/lib/index.js xgrammar.cjs

cat >properties.cjs <<'JS'
const {Grammar, Testings} = require("./xgrammar.cjs");

const properties = {tp: {enum: [1, 2, 4, 8]}, note: {type: "string"}};
const texts = ['{"tp": 2}', '{"tp": 3}', '{"tp": "all"}', '{"note": 7}', '{"tp": 2, "tp": 3}'];
const cases = [
  ["other keys are strings", {additionalProperties: {type: "string"}}, true],
  ["any other key", {additionalProperties: true}, true],
  ["any other key, tp required", {additionalProperties: true, required: ["tp"]}, true],
  ["not strict", {}, false],
  ["no other key", {additionalProperties: false}, true],
];

async function main() {
  for (const [name, more, strict] of cases) {
    const schema = JSON.stringify({type: "object", properties, ...more});
    // True: white space is free; the next two are the defaults.
    const grammar = await Grammar.fromJSONSchema(schema, true, undefined, undefined, strict);
    const taken = [];
    for (const text of texts)
      if (await Testings.isGrammarAcceptString(grammar, text)) taken.push(text);
    console.log(`${name}: ${taken.join(" ")}`);
  }
}
main();
JS

echo "node $(node --version), ${pinned[*]}"
timeout 60 node properties.cjs | tee seen
cat >expected <<'TEXT'
other keys are strings: {"tp": 2} {"tp": "all"}
any other key: {"tp": 2} {"tp": 3} {"tp": "all"} {"note": 7} {"tp": 2, "tp": 3}
any other key, tp required: {"tp": 2} {"tp": 2, "tp": 3}
not strict: {"tp": 2} {"tp": 3} {"tp": "all"} {"note": 7} {"tp": 2, "tp": 3}
no other key: {"tp": 2}
TEXT
diff expected seen || { echo "changed: other documents are taken" >&2; exit 1; }
echo "as seen on 2026-12-01"
