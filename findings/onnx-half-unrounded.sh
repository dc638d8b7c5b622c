#!/usr/bin/env bash
# ONNX Runtime's CPU does not round float16 values between two operators, so that the outputs of one
# run contradict each other: q is infinite, and the quotient that is computed from q is 1000.
#
# Packages: npm onnxruntime-node 1.30.0, onnx-proto 8.0.1 to write the models; node 20.
# Seen: of a float16 graph q = x x, y = q / x, x = 1000 gives q = Infinity and y = 1000, where
# Infinity was expected; 0.0001 gives q = 0 and y = 0.0001. With q = x + 2048, y = q - 2048, 1.25
# gives q = 2050 and y = 1.25. y = float32(x + x) is 80000 for x = 40000, which float16 does not
# hold, and Infinity as soon as x + x is an output as well. A Cast from float32 to float16 and back
# does round. All of it is the same with optimisations off.
# Likely guess: each tensor of type float16 is rounded when its operator ends, as in PyTorch; what
# is computed from an output agrees with that output, and further outputs change nothing.
# Why it matters: a half-precision model is checked on the CPU before it goes to a GPU. Its
# overflows and lost small numbers do not appear there; and intermediate outputs that are added to
# find the first Infinity show some that the run did not have, or bring them about.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(onnxruntime-node@1.30.0 onnx-proto@8.0.1)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >half.cjs <<'JS'
const {onnx} = require("onnx-proto");
const ort = require("onnxruntime-node");

const TYPES = {float32: 1, float16: 10};
const info = (name, type) =>
  ({name, type: {tensorType: {elemType: TYPES[type], shape: {dim: [{dimValue: 1}]}}}});

// float16 numbers as their bits; exact for those used here, besides 0.0001.
function bits(value) {
  const exponent = Math.max(Math.floor(Math.log2(value)), -14);
  return (exponent + 14 << 10) + Math.round(value / 2 ** exponent * 1024);
}
function value({type, data}) {
  if (type !== "float16") return data[0];
  const exponent = data[0] >> 10, fraction = (data[0] & 1023) / 1024;
  if (exponent === 31) return Infinity;
  return exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
}

// The outputs for x and z, with optimisations and without: of q and y, then of y alone.
async function show(text, nodes, types, x, z = 1) {
  const input = [info("x", types.x || "float16"), info("z", "float16")];
  const seen = {};
  for (const graphOptimizationLevel of ["disabled", "all"])
    for (const outputs of [["q", "y"], ["y"]]) {
      const model = onnx.ModelProto.encode({
        irVersion: 10, opsetImport: [{domain: "", version: 20}],
        graph: {name: "g", input,
                output: outputs.map((name) => info(name, types[name] || "float16")),
                node: nodes.map(([opType, inputs, output, to]) =>
                  ({opType, input: inputs, output: [output],
                    attribute: to ? [{name: "to", type: 2, i: TYPES[to]}] : []}))}}).finish();
      const session = await ort.InferenceSession.create(model,
        {graphOptimizationLevel, logSeverityLevel: 3});
      const tensor = (name, v) => types[name] === "float32" ? new ort.Tensor("float32", [v], [1])
        : new ort.Tensor("float16", Uint16Array.of(bits(v)), [1]);
      const result = await session.run({x: tensor("x", x), z: tensor("z", z)});
      const numbers = outputs.map((name) => `${name} = ${+value(result[name]).toPrecision(3)}`);
      (seen[outputs] ||= new Set()).add(numbers.join(", "));
    }
  console.log(`${text}, x = ${x}: ` +
    Object.values(seen).map((lines) => [...lines].join(" or ")).join("; alone "));
}

async function main() {
  const quotient = [["Mul", ["x", "x"], "q"], ["Div", ["q", "x"], "y"]];
  await show("q = x x, y = q / x", quotient, {}, 1000);
  await show("q = x x, y = q / x", quotient, {}, 0.0001);
  await show("q = x + 2048, y = q - 2048", [["Add", ["x", "z"], "q"], ["Sub", ["q", "z"], "y"]],
             {}, 1.25, 2048);
  await show("q = exp x, y = log q", [["Exp", ["x"], "q"], ["Log", ["q"], "y"]], {}, 20);
  await show("q = x + x, y = float32(q)",
             [["Add", ["x", "x"], "q"], ["Cast", ["q"], "y", "float32"]],
             {y: "float32"}, 40000);
  await show("q = float16(x), y = float32(q)",
             [["Cast", ["x"], "q", "float16"], ["Cast", ["q"], "y", "float32"]],
             {x: "float32", y: "float32"}, 80000);
}
main();
JS

echo "node $(node --version), ${pinned[*]}"
timeout 200 node half.cjs | tee seen
cat >expected <<'TEXT'
q = x x, y = q / x, x = 1000: q = Infinity, y = 1000; alone y = 1000
q = x x, y = q / x, x = 0.0001: q = 0, y = 0.0001; alone y = 0.0001
q = x + 2048, y = q - 2048, x = 1.25: q = 2050, y = 1.25; alone y = 1.25
q = exp x, y = log q, x = 20: q = Infinity, y = 20; alone y = 20
q = x + x, y = float32(q), x = 40000: q = Infinity, y = Infinity; alone y = 80000
q = float16(x), y = float32(q), x = 80000: q = Infinity, y = Infinity; alone y = Infinity
TEXT
diff expected seen || { echo "changed: other values are rounded" >&2; exit 1; }
echo "as seen on 2026-12-01"
