#!/usr/bin/env bash
# In Gecode's cumulative a task without duration needs its resource: a job that is not run makes a
# schedule impossible, if it would need more than there is.
#
# Packages: Debian 12's minizinc 2.6.4+dfsg1-1, flatzinc and libgecode49 6.2.0-5.
# Seen: models are translated with Gecode's own constraint and with MiniZinc's definition of it, and
# fzn-gecode lists all solutions of both. For durations of 2, 0 and 1 on one unit there are 30 and
# 36 schedules: the task of 0 may not start while another one runs. With a duration of 0 and a need
# of 3 of 2 units there is none, and 9. Three jobs that may be left out (a duration of 0 or 2), one
# of which needs more than there is: unsatisfiable, and two jobs run. If the needs are variables
# too, or no duration is 0, both agree.
# Likely guess: a task without duration never runs and needs nothing, as the definition (start <= t
# < start + duration) has it; a solver's own constraint has the solutions of the definition.
# Why it matters: "not placed" is a duration of 0 in schedulers of jobs on GPUs, and checkpoints or
# barriers are tasks without duration. The solver says UNSATISFIABLE, or proves an optimum that is
# none, of a model that has schedules.
# Date: 2026-12-02
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(minizinc=2.6.4+dfsg1-1 flatzinc=6.2.0-5 libgecode49=6.2.0-5)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu PATH=$work/root/usr/bin:$PATH
library=$work/root/usr/share/minizinc
export MZN_SOLVER_PATH=$library/solvers

# solve GLOBALS: the number of solutions, or for an optimum the last one's objective.
solve() {
  minizinc -c --stdlib-dir "$library" --solver gecode -G "$1" --fzn model.fzn --ozn model.ozn \
    model.mzn >translation 2>&1 || { echo "not translated"; return; }
  timeout 60 fzn-gecode -a model.fzn >solutions
  if grep -q UNSATISFIABLE solutions; then echo "unsatisfiable"
  elif grep -q '^value = ' solutions; then
    sed -n 's/^value = \(.*\);/best \1/p' solutions | tail -n 1
  else grep -c -- '^-----' solutions
  fi
}
echo "${pinned[*]}"
while IFS='|' read -r name model; do
  [[ $model == *value* ]] && goal="maximize value" || goal=satisfy
  printf 'include "cumulative.mzn";\n%s;\nsolve %s;\n' "$model" "$goal" >model.mzn
  echo "$name: Gecode's $(solve gecode), MiniZinc's $(solve std)"
done <<'TEXT' | tee seen
durations 2, 1 and 1|array[1..3] of var 0..3: s; constraint cumulative(s, [2, 1, 1], [1, 1, 1], 1)
durations 2, 0 and 1|array[1..3] of var 0..3: s; constraint cumulative(s, [2, 0, 1], [1, 1, 1], 1)
durations 0 and 1, needs 3 and 1 of 2|array[1..2] of var 0..2: s; constraint cumulative(s, [0, 1], [3, 1], 2)
durations of 0 to 2|array[1..2] of var 0..2: s; array[1..2] of var 0..2: d; constraint cumulative(s, d, [1, 1], 1)
durations and needs of 0 to 2|array[1..2] of var 0..2: s; array[1..2] of var 0..2: d; array[1..2] of var 0..2: r; constraint cumulative(s, d, r, 1)
most jobs that run, needs 1, 2 and 3 of 2|array[1..3] of var 0..4: s; array[1..3] of var {0, 2}: d; var 0..3: value :: output_var; constraint 2 * value = sum(d); constraint cumulative(s, d, [1, 2, 3], 2)
TEXT
cat >expected <<'TEXT'
durations 2, 1 and 1: Gecode's 12, MiniZinc's 12
durations 2, 0 and 1: Gecode's 30, MiniZinc's 36
durations 0 and 1, needs 3 and 1 of 2: Gecode's unsatisfiable, MiniZinc's 9
durations of 0 to 2: Gecode's 57, MiniZinc's 61
durations and needs of 0 to 2: Gecode's 421, MiniZinc's 421
most jobs that run, needs 1, 2 and 3 of 2: Gecode's unsatisfiable, MiniZinc's best 2
TEXT
diff expected seen || { echo "changed: other solutions" >&2; exit 1; }
echo "as seen on 2026-12-02"
