#!/usr/bin/env bash
# flatc writes a FlatBuffer's floats as JSON with six decimals and its doubles with twelve: a
# learning rate of 1e-7 is 0.0.
#
# Packages: Debian 12's flatbuffers-compiler 2.0.8+dfsg1-2.
# Seen: of the floats 1e-3, 1e-5, 1e-7 and 1e-20 the JSON has 0.001, 0.00001, 0.0 and 0.0, of the
# doubles 1e-9, 1e-13 and 0.30000000000000004 it has 0.000000001, 0.0 and 0.3. 123456.789 becomes
# 123456.789062. Read again by flatc, those are the values, and a field that is 0 has become its
# default and is left out of the next JSON. There is no warning. 1.5, whole numbers and integers of
# 64 bits come back as they were.
# Likely guess: the shortest text that is read as the same number, or 9 and 17 digits; at worst the
# last digits are lost, and not all.
# Why it matters: models and configurations with FlatBuffers' schemas (TensorFlow Lite is one) are
# edited and compared as JSON that flatc makes. An epsilon of 1e-8 or a scale of quantisation of
# 2e-7 becomes 0, where larger values seem to come back.
# Date: 2026-12-02
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned package, and of what it needs only what this machine lacks.
pinned=(flatbuffers-compiler=2.0.8+dfsg1-2)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu PATH=$work/root/usr/bin:$PATH

cat >training.fbs <<'FBS'
table Training { lr: float; floats: [float]; doubles: [double]; steps: [long]; }
root_type Training;
FBS
cat >training.json <<'JSON'
{"lr": 1e-7, "floats": [1.5, 1e-3, 1e-5, 1e-7, 1e-20, 123456.789, 16777216],
 "doubles": [1e-9, 1e-13, 2.5e-300, 0.30000000000000004, 1e22],
 "steps": [9223372036854775807, -9223372036854775808]}
JSON
# line FILE: the JSON in one line.
line() { tr -d ' \n' <"$1"; echo; }

echo "${pinned[*]}, $(flatc --version)"
{
  flatc --binary training.fbs training.json
  mkdir once twice
  flatc -o once --json --strict-json --raw-binary training.fbs -- training.bin
  line once/training.json
  flatc -o once --binary training.fbs once/training.json
  flatc -o twice --json --strict-json --raw-binary training.fbs -- once/training.bin
  line twice/training.json
  # The float 1e-7 is 33d6bf95, its least byte first.
  for file in training.bin once/training.bin; do
    hex=$(od -An -tx1 -v "$file" | tr -d ' \n')
    [[ $hex == *95bfd633* ]] && echo "$file has the float 1e-7" || echo "$file lacks the float 1e-7"
  done
} | tee seen
cat >expected <<'TEXT'
{"lr":0.0,"floats":[1.5,0.001,0.00001,0.0,0.0,123456.789062,16777216.0],"doubles":[0.000000001,0.0,0.0,0.3,10000000000000000000000.0],"steps":[9223372036854775807,-9223372036854775808]}
{"floats":[1.5,0.001,0.00001,0.0,0.0,123456.789062,16777216.0],"doubles":[0.000000001,0.0,0.0,0.3,10000000000000000000000.0],"steps":[9223372036854775807,-9223372036854775808]}
training.bin has the float 1e-7
once/training.bin lacks the float 1e-7
TEXT
diff expected seen || { echo "changed: other numbers" >&2; exit 1; }
echo "as seen on 2026-12-02"
