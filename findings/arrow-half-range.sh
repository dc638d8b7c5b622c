#!/usr/bin/env bash
# Apache Arrow's JavaScript library stores numbers that half precision does not reach as others
# within it: 100,000 becomes 3.05, 1e-8 minus infinity, 1e-40 NaN.
#
# Packages: npm apache-arrow 21.2.0; node 20.
# Seen: a Float16 vector of 65536 is 2, of 1e5 3.05, of 1e6 3.81, of 1e9 3.72, of 1e20 Infinity.
# Below half of the smallest half, 2.98e-8, comes -Infinity, then 1e-10 as 5.3e-5, 1e-20 as 1.9e-5
# and 1e-40 as NaN, where 0 was expected. Of the powers of two those from 2^-24 to 2^15 are right,
# none from 2^16 to 2^60, and 23 of the 36 from 2^-60 to 2^-25. Nothing is raised, and the IPC file
# has these numbers. Within the range, ties are rounded away from zero (2049 is 2050, numpy's 2048).
# Likely guess: Infinity above 65520 and 0 below 2^-25, as IEEE 754 has it and numpy, or an error.
# Why it matters: probabilities, embeddings and quantisation scales are stored as half floats. A
# probability of 1e-8 is -Infinity, and a sum or a softmax over the column is NaN from there on; an
# outlier of 100,000 is an ordinary 3.05 that no check of ranges finds.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(apache-arrow@21.2.0)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >half.mjs <<'JS'
import {Float16, Table, tableFromIPC, tableToIPC, vectorFromArray} from "apache-arrow";

// What is read of an IPC stream into which the numbers were written as half floats.
function stored(numbers) {
  const table = new Table({column: vectorFromArray(numbers, new Float16())});
  return [...tableFromIPC(tableToIPC(table)).getChild("column")];
}

const show = (name, numbers) => console.log(name + ":", stored(numbers).map((half, i) =>
  `${numbers[i]} is ${+half.toPrecision(5)}`).join(", "));
show("within", [1, 0.1, 2049, 65504, 65519, 6e-8, 3e-8]);
show("above", [65520, 65536, 7e4, 1e5, 1e6, 1e9, 1e20, -1e5]);
show("below", [2.9e-8, 1e-8, -1e-8, 1e-10, 1e-20, 1e-40]);

const exponents = Array.from({length: 121}, (_, i) => i - 60);
const halves = stored(exponents.map((e) => 2 ** e));
const right = (e, half) => half === (e < -24 ? 0 : e > 15 ? Infinity : 2 ** e);
for (const [name, from, to] of [["below", -60, -25], ["within", -24, 15], ["above", 16, 60]]) {
  const part = exponents.filter((e) => e >= from && e <= to);
  console.log(`2^${from} to 2^${to}, ${name}: ${part.filter((e) => right(e, halves[e + 60])).length}`,
    `of ${part.length} right`);
}
JS

echo "node $(node --version), ${pinned[*]}"
timeout 100 node half.mjs | tee seen
cat >expected <<'TEXT'
within: 1 is 1, 0.1 is 0.099976, 2049 is 2050, 65504 is 65504, 65519 is 65504, 6e-8 is 5.9605e-8, 3e-8 is 5.9605e-8
above: 65520 is Infinity, 65536 is 2, 70000 is 2.1348, 100000 is 3.0508, 1000000 is 3.8145, 1000000000 is 3.7246, 100000000000000000000 is Infinity, -100000 is -3.0508
below: 2.9e-8 is -Infinity, 1e-8 is -Infinity, -1e-8 is -Infinity, 1e-10 is 0.000053167, 1e-20 is 0.000019193, 1e-40 is NaN
2^-60 to 2^-25, below: 23 of 36 right
2^-24 to 2^15, within: 40 of 40 right
2^16 to 2^60, above: 0 of 45 right
TEXT
diff expected seen || { echo "changed: other numbers" >&2; exit 1; }
echo "as seen on 2026-12-01"
