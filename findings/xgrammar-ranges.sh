#!/usr/bin/env bash
# XGrammar's grammar of a JSON schema lets through numbers above a maximum or below a minimum ("1
# to 128" takes 129), and of decimals it shuts out many that are allowed.
#
# Packages: npm @mlc-ai/web-xgrammar 0.1.27 (its newest); node 20.
# Seen: {"type": "integer", "minimum": 1, "maximum": 128} takes 129, 1 to 1024 takes 1025 to 1029,
# -128 to 127 takes -129, 128 and 129, 100 to 150 takes 151 to 159; 1 to 100, 0 to 255 and 1 to
# 4096 are exact. Of the ranges from 1 to 100, 101, ... 260, half take too much. Numbers 0 to 1
# take 1.5, also with both exclusive; -1 to 1 takes 1.5 and -1.5 and shuts out -0.5; with a minimum
# of 0 alone 0.5 is shut out; 0 to 1.5 shuts out 1. Nothing warns.
# Likely guess: bounds are exact, at least for integers; or a schema whose bounds a grammar cannot
# express is refused.
# Why it matters: a grammar is used so that the answer need not be checked. A number of replicas, a
# batch, a port, a probability is then taken as it comes; and where 0.5 is shut out the model is
# made to say something else, which no check of the answer shows.
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

cat >ranges.cjs <<'JS'
const {Grammar, Testings} = require("./xgrammar.cjs");

const within = (text, {minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity,
                       exclusiveMaximum = Infinity}) =>
  +text >= minimum && +text <= maximum && +text > exclusiveMinimum && +text < exclusiveMaximum;

// The texts that the grammar takes and should not, and those that it should take and does not.
async function faults(type, bounds, texts) {
  const grammar = await Grammar.fromJSONSchema(JSON.stringify({type, ...bounds}));
  const found = {takes: [], refuses: []};
  for (const text of texts) {
    const taken = await Testings.isGrammarAcceptString(grammar, text);
    if (taken !== within(text, bounds)) found[taken ? "takes" : "refuses"].push(text);
  }
  grammar.dispose();
  return found;
}

function show(name, {takes, refuses}) {
  const some = (verb, texts) => texts.length ? ` ${verb} ${texts.join(" ")}` : "";
  console.log(name + ":" + (some("takes", takes) + some("refuses", refuses) || " exact"));
}

async function main() {
  const integers = (from, to) => Array.from({length: to - from + 1}, (_, i) => String(from + i));
  for (const [minimum, maximum] of
       [[1, 100], [1, 128], [0, 255], [100, 150], [1, 1024], [1, 4096], [-128, 127]])
    show(`integer ${minimum} to ${maximum}`,
         await faults("integer", {minimum, maximum}, integers(minimum - 99, maximum + 999)));

  let wrong = 0;
  for (let maximum = 100; maximum <= 260; ++maximum)
    wrong += (await faults("integer", {minimum: 1, maximum},
                           integers(maximum + 1, maximum + 12))).takes.length > 0;
  console.log(`integer 1 to 100, 101, ... 260: ${wrong} of 161 take too much`);

  const decimals = ["-1.5", "-1", "-0.5", "0", "0.5", "1", "1.5", "2", "2.5", "10", "10.5", "11"];
  for (const bounds of [{minimum: 0, maximum: 1}, {exclusiveMinimum: 0, exclusiveMaximum: 1},
                        {minimum: -1, maximum: 1}, {minimum: 0, maximum: 10},
                        {minimum: 0, maximum: 1.5}, {minimum: 0}])
    show("number " + JSON.stringify(bounds), await faults("number", bounds, decimals));
}
main();
JS

echo "node $(node --version), ${pinned[*]}"
timeout 200 node ranges.cjs | tee seen
cat >expected <<'TEXT'
integer 1 to 100: exact
integer 1 to 128: takes 129
integer 0 to 255: exact
integer 100 to 150: takes 151 152 153 154 155 156 157 158 159
integer 1 to 1024: takes 1025 1026 1027 1028 1029
integer 1 to 4096: exact
integer -128 to 127: takes -129 128 129
integer 1 to 100, 101, ... 260: 81 of 161 take too much
number {"minimum":0,"maximum":1}: takes 1.5
number {"exclusiveMinimum":0,"exclusiveMaximum":1}: takes 0 1 1.5
number {"minimum":-1,"maximum":1}: takes -1.5 1.5 refuses -0.5
number {"minimum":0,"maximum":10}: takes 10.5
number {"minimum":0,"maximum":1.5}: refuses 1
number {"minimum":0}: refuses 0.5
TEXT
diff expected seen || { echo "changed: another set of numbers is taken" >&2; exit 1; }
echo "as seen on 2026-12-01"
