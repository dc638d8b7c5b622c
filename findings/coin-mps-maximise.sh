#!/usr/bin/env bash
# A maximisation does not survive an MPS file of CBC and CLP: writing one, they leave out that it is
# to be maximised; reading OBJSENSE MAX, they minimise.
#
# Packages: Debian 12's coinor-cbc 2.10.8+ds1-1, coinor-clp 1.17.6-3 (with CoinUtils 2.11.4),
# lp-solve 5.5.2.5-2.
# Seen: max 3 x + 2 y is 11. CBC's and CLP's "export" of it to MPS has the coefficients 3 and 2
# without a sense and without changed signs: CBC, CLP and lp_solve find the optimum 0 in it. CBC's
# "export" to LP says "Minimize -3 x - 2 y" and is right. The same model in an MPS file with a
# section OBJSENSE, MAX is 11 in lp_solve; in CBC and CLP it is 0, "optimal", with status 0. One
# line of the log says that it was ignored.
# Likely guess: written with the sense or with changed signs, as for LP files; OBJSENSE is read, as
# CPLEX, Gurobi, HiGHS and SCIP do, by a solver that can maximise.
# Why it matters: the programs of schedulers maximise throughput or fairness, and MPS files carry
# them between tools: to compare solvers, to report a case, to keep what was decided. The best plan
# becomes the worst one, "do nothing", which is feasible and optimal.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(coinor-cbc=2.10.8+ds1-1 coinor-clp=1.17.6-3 lp-solve=5.5.2.5-2)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib
export LD_LIBRARY_PATH=$lib/x86_64-linux-gnu:$lib/lp_solve PATH=$work/root/usr/bin:$PATH

cat >model.lp <<'TEXT'
Maximize
 obj: 3 x + 2 y
Subject To
 c1: x + y <= 4
 c2: x + 3 y <= 6
Bounds
 x <= 3
End
TEXT
cat >objsense.mps <<'TEXT'
NAME          model
OBJSENSE
    MAX
ROWS
 N  obj
 L  c1
 L  c2
COLUMNS
    x         obj                3.0   c1                 1.0
    x         c2                 1.0
    y         obj                2.0   c1                 1.0
    y         c2                 3.0
RHS
    RHS       c1                 4.0   c2                 6.0
BOUNDS
 UP BND       x                  3.0
ENDATA
TEXT

cbc model.lp export cbc.lp export cbc.mps quit >export.log
clp model.lp export clp.mps quit >export.log

value() { awk '{print $NF + 0}' | tail -n 1; }
# objectives FILE: by each solver, and how many lines say that something is ignored.
objectives() {
  cbc "$1" solve quit >cbc.log
  clp "$1" -dualsimplex >clp.log
  echo -n "CBC $(grep '^Optimal - objective' cbc.log | value)" \
    "CLP $(grep '^Optimal - objective' clp.log | value)"
  case $1 in
    *.mps) echo -n " lp_solve $(lp_solve -fmps "$1" | grep '^Value of objective' | value)" ;;
  esac
  echo ", $(cat cbc.log clp.log | grep -c 'Coin ignores' || true) lines"
}
echo "${pinned[*]}"
for file in model.lp cbc.lp cbc.mps clp.mps objsense.mps; do
  echo "$file: $(objectives $file)"
done | tee seen
cat >expected <<'TEXT'
model.lp: CBC 11 CLP 11, 0 lines
cbc.lp: CBC -11 CLP -11, 0 lines
cbc.mps: CBC 0 CLP 0 lp_solve 0, 0 lines
clp.mps: CBC 0 CLP 0 lp_solve 0, 0 lines
objsense.mps: CBC 0 CLP 0 lp_solve 11, 2 lines
TEXT
diff expected seen || { echo "changed: other objectives" >&2; exit 1; }
echo "as seen on 2026-12-01"
