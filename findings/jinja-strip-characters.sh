#!/usr/bin/env bash
# Hugging Face's Jinja for JavaScript ignores the argument of strip, lstrip and rstrip: it removes
# white space instead, whatever characters the template named.
#
# Packages: npm @huggingface/jinja 0.5.11; Debian 12's python3-jinja2 3.1.2-1+deb12u3; node 20.
# Seen: "\n    return 1\n".lstrip("\n") keeps the four spaces in Jinja and loses them in JavaScript;
# rstrip("\n") of a line with two spaces at its end loses these, too. strip("<>") of "<tool>" removes
# the brackets in Jinja and nothing in JavaScript. There is no error, as there is for a method that
# the library does not know. Without an argument both agree.
# Likely guess: the characters are those named, as in Python; or more arguments than are known are
# refused.
# Why it matters: templates of reasoning models cut the thoughts out of former answers with
# split("</think>") and lstrip("\n"). An answer that begins with indented code is then another prompt
# than the one of training and of servers in Python: the tokens differ, so that a cache of
# prefixes misses, and the model reads Python code whose first line has lost its indentation.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
modules=(@huggingface/jinja@0.5.11)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${modules[@]}" >/dev/null ||
  exit 2
# The pinned packages, and of what they need only what this machine lacks.
pinned=(python3-jinja2=3.1.2-1+deb12u3)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done

# Templates and the text that each has as its x.
cat >cases.json <<'JSON'
[["{{ x.strip() }}", "\n  a  \n"],
 ["{{ x.lstrip('\\n') }}", "\n    return 1\n"],
 ["{{ x.rstrip('\\n') }}", "a line  \n"],
 ["{{ x.strip('<>') }}", "<tool>"],
 ["{{ x.strip('\"') }}", "\" quoted \""],
 ["{{ x.split('</think>')[-1].lstrip('\\n') }}", "<think>so</think>\n\n    return 1"]]
JSON
cat >python.py <<'PYTHON'
import json
import jinja2

for template, x in json.load(open("cases.json")):
    print(json.dumps(jinja2.Template(template, keep_trailing_newline=True).render(x=x)))
PYTHON
cat >javascript.mjs <<'JS'
import {readFileSync} from "node:fs";
import {Template} from "@huggingface/jinja";

for (const [template, x] of JSON.parse(readFileSync("cases.json", "utf8")))
  console.log(JSON.stringify(x), template, JSON.stringify(new Template(template).render({x})));
JS

echo "${modules[*]}, node $(node --version), ${pinned[*]}"
PYTHONPATH=$work/root/usr/lib/python3/dist-packages /usr/bin/python3 python.py >python.txt
node javascript.mjs >javascript.txt
paste -d '\t' javascript.txt python.txt | sed 's/\t/, Python /' | tee seen
cat >expected <<'TEXT'
"\n  a  \n" {{ x.strip() }} "a", Python "a"
"\n    return 1\n" {{ x.lstrip('\n') }} "return 1\n", Python "    return 1\n"
"a line  \n" {{ x.rstrip('\n') }} "a line", Python "a line  "
"<tool>" {{ x.strip('<>') }} "<tool>", Python "tool"
"\" quoted \"" {{ x.strip('"') }} "\" quoted \"", Python " quoted "
"<think>so</think>\n\n    return 1" {{ x.split('</think>')[-1].lstrip('\n') }} "return 1", Python "    return 1"
TEXT
diff expected seen || { echo "changed: other texts" >&2; exit 1; }
echo "as seen on 2026-12-01"
