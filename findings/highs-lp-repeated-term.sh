#!/usr/bin/env bash
# HiGHS adds up a variable's terms in a constraint of an LP file; in the objective the last one
# counts and the others are dropped.
#
# Packages: npm highs 1.15.3 (HiGHS 1.15.1); node 20.
# Seen: "2 x + y + 3 x" is read as 5 x + y in a constraint and as 3 x + y in the objective, and
# "x + x + x + y" as x + y. With 2 x - 2 x the objective has -2 x, and another point is optimal. The
# status is "Optimal". The log warns of the terms that were added up, and not of those that were dropped.
# Likely guess: the terms are added up in both, or the file is refused (CBC 2.10.8 and GLPK 5.0
# refuse it in both).
# Why it matters: a scheduler's objective is written as a sum over jobs, GPUs and time slots, where
# one variable has several terms (a throughput, a migration's cost, a penalty). The last of them
# alone is optimised, and the reported objective agrees with it: the plan is wrong, and says so
# nowhere. The same terms in a budget's constraint are right.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error highs@1.15.3 >/dev/null || exit 2

cat >terms.mjs <<'JS'
import load from "highs";

const log = [];
const highs = await load({print: (line) => log.push(line), printErr: (line) => log.push(line)});

function solve(objective, row) {
  log.length = 0;
  const {Status, ObjectiveValue, Columns} = highs.solve(
    `Maximize\n obj: ${objective}\nSubject To\n c1: ${row}\nBounds\n x <= 4\n y <= 1\nEnd\n`,
    {output_flag: true, log_to_console: true});
  const point = `x ${Columns.x.Primal.toFixed(3)} y ${Columns.y.Primal.toFixed(3)}`;
  const warnings = log.filter((line) => /warning|error:/i.test(line)).length;
  console.log(`max ${objective}, ${row}: ${Status} ${ObjectiveValue.toFixed(3)} at ${point},`,
    `warnings ${warnings}`);
}

solve("5 x + y", "x + y <= 6");
solve("2 x + y + 3 x", "x + y <= 6");
solve("x + x + x + y", "x + y <= 6");
solve("2 x + y - 2 x", "x + y <= 6");
solve("x + y", "5 x + y <= 6");
solve("x + y", "2 x + y + 3 x <= 6");
console.log(log.find((line) => line.startsWith("Running HiGHS")).split(" ").slice(1, 3).join(" "));
JS

echo "highs@1.15.3, node $(node --version)"
node terms.mjs | tee seen
cat >expected <<'TEXT'
max 5 x + y, x + y <= 6: Optimal 21.000 at x 4.000 y 1.000, warnings 0
max 2 x + y + 3 x, x + y <= 6: Optimal 13.000 at x 4.000 y 1.000, warnings 0
max x + x + x + y, x + y <= 6: Optimal 5.000 at x 4.000 y 1.000, warnings 0
max 2 x + y - 2 x, x + y <= 6: Optimal 1.000 at x 0.000 y 1.000, warnings 0
max x + y, 5 x + y <= 6: Optimal 2.000 at x 1.000 y 1.000, warnings 0
max x + y, 2 x + y + 3 x <= 6: Optimal 2.000 at x 1.000 y 1.000, warnings 2
HiGHS 1.15.1
TEXT
diff expected seen || { echo "changed: repeated terms are read otherwise" >&2; exit 1; }
echo "as seen on 2026-12-01"
