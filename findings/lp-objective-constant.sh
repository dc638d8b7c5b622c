#!/usr/bin/env bash
# The constant of an LP file's objective is right where the objective is maximised; where it is
# minimised, CBC leaves it out, and CLP and SYMPHONY subtract it.
#
# Packages: Debian 12's coinor-cbc 2.10.8+ds1-1, coinor-clp 1.17.6-3, coinor-symphony
# 5.6.17+dfsg-1+b1; npm highs 1.15.3; node 20.
# Seen: "Minimize x + y + 100" with x + y >= 2 is 102. HiGHS says 102, CBC 2, CLP and SYMPHONY -98.
# "Maximize x + y + 100" with x + y <= 4 is 104: all say so (SYMPHONY with the sign of the minimum
# that it makes of it). All end with "optimal" and status 0, and warn of nothing. CBC, CLP and
# SYMPHONY read the file with the same library, CoinUtils.
# Likely guess: a program has constants or lacks them: 102 and 104, or 2 and 4.
# Why it matters: placements and layouts are found by integer programs, and a fixed cost (jobs that
# run already, the iteration's constant part) is such a constant. The chosen placement is right,
# its predicted cost is not; compared with a bound or with another program's answer, the wrong plan
# is taken.
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
pinned=(coinor-cbc=2.10.8+ds1-1 coinor-clp=1.17.6-3 coinor-symphony=5.6.17+dfsg-1+b1)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu PATH=$work/root/usr/bin:$PATH

# model SENSE ROW: an LP file, without a constant and with one.
model() {
  for constant in "" " + 100"; do
    printf '%s\n obj: x + y%s\nSubject To\n c1: %s\nBounds\n x <= 3\n y <= 3\nEnd\n' \
      "$1" "$constant" "$2" >"$1${constant:+-constant}.lp"
  done
}
model Minimize "x + y >= 2"
model Maximize "x + y <= 4"

cat >highs.mjs <<'JS'
import {readFileSync} from "node:fs";
import load from "highs";
const result = (await load()).solve(readFileSync(process.argv[2], "utf8"));
console.log(result.Status, result.ObjectiveValue);
JS

value() { awk '{print $NF + 0}' | tail -n 1; }
echo "${pinned[*]}, highs@1.15.3, node $(node --version)"
for file in Minimize Minimize-constant Maximize Maximize-constant; do
  echo "$file: HiGHS $(node highs.mjs $file.lp | value)" \
    "CBC $(cbc $file.lp solve quit | grep '^Optimal - objective value' | value)" \
    "CLP $(clp $file.lp -dualsimplex | grep '^Optimal - objective value' | value)" \
    "SYMPHONY $(symphony -L $file.lp | grep '^Solution Cost' | value)"
done | tee seen
cat >expected <<'TEXT'
Minimize: HiGHS 2 CBC 2 CLP 2 SYMPHONY 2
Minimize-constant: HiGHS 102 CBC 2 CLP -98 SYMPHONY -98
Maximize: HiGHS 4 CBC 4 CLP 4 SYMPHONY -4
Maximize-constant: HiGHS 104 CBC 104 CLP 104 SYMPHONY -104
TEXT
diff expected seen || { echo "changed: other objectives" >&2; exit 1; }
echo "as seen on 2026-12-01"
