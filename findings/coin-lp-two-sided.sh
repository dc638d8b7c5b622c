#!/usr/bin/env bash
# CBC, CLP and SYMPHONY read the "<=" of a two-sided row in an LP file as a variable's name, and
# the "->" of an indicator as another; then they solve that, to "optimal".
#
# Packages: Debian 12's coinor-cbc 2.10.8+ds1-1, coinor-clp 1.17.6-3, coinor-symphony
# 5.6.17+dfsg-1+b1 (all with CoinUtils 2.11.4), glpk-utils 5.0-1; npm highs 1.15.3; node 20.
# Seen: "Minimize x + y" with "2 <= x + y <= 5" has the answer 0, not 2: the row is 2 v + x + y <= 5
# with a third variable v, whose name was "<=". Maximising it is right, by chance.
# "b = 1 -> x <= 2" is b = 1 and x - v <= 2: max x + 3 b is 9 with b = 1 and x = 6; the best is 6.
# The exit status is 0. The log has a line that column names are invalid, and the variables are
# called x0, x1, x2 from then on. HiGHS and GLPK refuse both files.
# Likely guess: read, as CPLEX and SCIP do, or refused. Two-sided rows are how a solver writes what
# MPS calls a range.
# Why it matters: a lower bound on what a job gets (2 to 5 GPUs) or "if placed here, then" are the
# first things such files have. The bound is gone, the plan starves the job, and the status says
# that it is optimal.
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
# The pinned packages, and of what they need only what this machine lacks.
pinned=(coinor-cbc=2.10.8+ds1-1 coinor-clp=1.17.6-3 coinor-symphony=5.6.17+dfsg-1+b1
  glpk-utils=5.0-1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu PATH=$work/root/usr/bin:$PATH

printf 'Minimize\n obj: x + y\nSubject To\n c1: x + y >= 2\n c2: x + y <= 5\nEnd\n' >two-rows.lp
printf 'Minimize\n obj: x + y\nSubject To\n c1: 2 <= x + y <= 5\nEnd\n' >two-sided.lp
printf 'Maximize\n obj: x + y\nSubject To\n c1: 3 <= x + y <= 5\nEnd\n' >maximised.lp
printf 'Maximize\n obj: x + 3 b\nSubject To\n c1: b = 1 -> x <= 2\n c2: x <= 6\nBinary\n b\nEnd\n' \
  >indicator.lp

cat >highs.mjs <<'JS'
import {readFileSync} from "node:fs";
import load from "highs";
try {
  const quiet = () => {};
  const highs = await load({print: quiet, printErr: quiet});
  console.log(highs.solve(readFileSync(process.argv[2], "utf8")).ObjectiveValue);
} catch (error) {
  console.log(/Unable to read/.test(error.message) ? "refuses" : error.message);
}
JS

# The constraints that CBC has read, as it writes them.
rows() {
  cbc "$1" presolve off export read.lp quit >export.log
  sed -n '/^Subject To/,/^Bounds/p' read.lp | sed '1d; $d' | tr -s '\n ' ' ' | sed 's, $,,'
}
value() { awk '{print $NF + 0}' | tail -n 1; }
glpk() {
  glpsol --lp "$1" -o glpk.txt >glpk.log || { echo refuses; return; }
  sed -n 's/^Objective: .*= \([^ ]*\).*/\1/p' glpk.txt
}
echo "${pinned[*]}, highs@1.15.3, node $(node --version)"
for file in two-rows two-sided maximised indicator; do
  cbc $file.lp solve solution $file.txt quit >cbc.log && status=$?
  echo "$file: HiGHS $(node highs.mjs $file.lp) GLPK $(glpk $file.lp)" \
    "CLP $(clp $file.lp -dualsimplex | grep '^Optimal - objective value' | value)" \
    "SYMPHONY $(symphony -L $file.lp | grep '^Solution Cost' | value)" \
    "CBC $(head -n 1 $file.txt | value) (status $status," \
    "$(grep -c 'Invalid column names' cbc.log || true) lines about names): $(rows $file.lp)"
done | tee seen
cat >expected <<'TEXT'
two-rows: HiGHS 2 GLPK 2 CLP 2 SYMPHONY 2 CBC 2 (status 0, 0 lines about names): c1: x + y >= 2 c2: x + y <= 5
two-sided: HiGHS refuses GLPK refuses CLP 0 SYMPHONY 0 CBC 0 (status 0, 1 lines about names): c1: x0 + x1 + 2 x2 <= 5
maximised: HiGHS refuses GLPK refuses CLP 5 SYMPHONY -5 CBC 5 (status 0, 1 lines about names): c1: x0 + x1 + 3 x2 <= 5
indicator: HiGHS refuses GLPK refuses CLP 9 SYMPHONY -9 CBC 9 (status 0, 1 lines about names): c1: x1 = 1 cons1: x0 - x2 <= 2 c2: x0 <= 6
TEXT
diff expected seen || { echo "changed: other objectives" >&2; exit 1; }
echo "as seen on 2026-12-01"
