#!/usr/bin/env bash
# ONNX Runtime's GroupNormalization is wrong by any factor, or NaN, where the mean is some thousand
# times the deviation; its LayerNormalization of the same numbers is right.
#
# Packages: npm onnxruntime-node 1.30.0, onnx-proto 8.0.1 to write the models; node 20.
# Seen: -1, 0, 1, 2 plus 3000 are normalised to -1.06 .. 1.06 in place of -1.34 .. 1.34, plus 10,000
# to -474 .. 474, plus 100,000 to NaN; float32 holds all these numbers exactly. LayerNormalization,
# which is the same formula with one group, gives -1.34 .. 1.34 for all, and InstanceNormalization
# is right in three digits. ONNX Runtime has no kernel for the operator, but the function that the
# standard writes it as: the graph that it runs has Sub(MeanOfSquare, SquareOfMean), the variance as
# a difference of two large numbers. Levels of optimisation make no difference.
# Likely guess: accurate, by two passes or Welford's updates, as in PyTorch and as the two operators
# beside it.
# Why it matters: a network that was trained with an accurate group norm gets other activations when
# it is exported and served, from the first layer whose channels have a large mean; nothing warns,
# and no value is out of range until it is NaN.
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

cat >norms.cjs <<'JS'
const {readFileSync} = require("fs");
const {onnx} = require("onnx-proto");
const ort = require("onnxruntime-node");

const FLOAT = 1;
const info = (name, dims) => ({name, type: {tensorType: {elemType: FLOAT,
  shape: dims && {dim: dims.map((dimValue) => ({dimValue}))}}}});
const repeated = (name, value, n) =>
  ({name, dataType: FLOAT, dims: [n], floatData: Array(n).fill(value)});

// A model of one operator: input x, scale 1 and bias 0 of n elements, output y.
const model = (opType, dims, n, attribute) => onnx.ModelProto.encode({
  irVersion: 10, opsetImport: [{domain: "", version: 21}],
  graph: {name: "g", node: [{opType, input: ["x", "scale", "bias"], output: ["y"], attribute}],
          initializer: [repeated("scale", 1, n), repeated("bias", 0, n)],
          input: [info("x", dims)], output: [info("y", dims)]}}).finish();

const norms = {
  LayerNormalization: {dims: [1, 4], n: 4, attribute: []},
  InstanceNormalization: {dims: [1, 1, 4], n: 1, attribute: []},
  GroupNormalization: {dims: [1, 4, 1], n: 4, attribute: [{name: "num_groups", type: 2, i: 1}]},
};

async function main() {
  for (const [name, {dims, n, attribute}] of Object.entries(norms))
    for (const offset of [0, 1000, 3000, 10000, 100000]) {
      const results = new Set();
      for (const graphOptimizationLevel of ["disabled", "all"]) {
        const session = await ort.InferenceSession.create(model(name, dims, n, attribute),
          {graphOptimizationLevel, optimizedModelFilePath: "run.onnx", logSeverityLevel: 3});
        const x = new ort.Tensor("float32", [-1, 0, 1, 2].map((v) => v + offset), dims);
        results.add([...(await session.run({x})).y.data].map((v) => v.toFixed(2)).join(" "));
      }
      console.log(`${name} of -1 0 1 2, plus ${offset}: ${[...results].join(" or ")}`);
    }
  const {node} = onnx.ModelProto.decode(readFileSync("run.onnx")).graph;
  const variance = node.find(({output}) => output[0].endsWith("Var"));
  const short = (names) => names.map((name) => name.split("_").pop()).join(", ");
  console.log(`variance: ${variance.opType}(${short(variance.input)})`);
}
main();
JS

echo "node $(node --version), ${pinned[*]}"
timeout 200 node norms.cjs | tee seen
cat >expected <<'TEXT'
LayerNormalization of -1 0 1 2, plus 0: -1.34 -0.45 0.45 1.34
LayerNormalization of -1 0 1 2, plus 1000: -1.34 -0.45 0.45 1.34
LayerNormalization of -1 0 1 2, plus 3000: -1.34 -0.45 0.45 1.34
LayerNormalization of -1 0 1 2, plus 10000: -1.34 -0.45 0.45 1.34
LayerNormalization of -1 0 1 2, plus 100000: -1.34 -0.45 0.45 1.34
InstanceNormalization of -1 0 1 2, plus 0: -1.34 -0.45 0.45 1.34
InstanceNormalization of -1 0 1 2, plus 1000: -1.34 -0.45 0.45 1.34
InstanceNormalization of -1 0 1 2, plus 3000: -1.34 -0.45 0.45 1.34
InstanceNormalization of -1 0 1 2, plus 10000: -1.34 -0.45 0.45 1.34
InstanceNormalization of -1 0 1 2, plus 100000: -1.34 -0.45 0.45 1.34
GroupNormalization of -1 0 1 2, plus 0: -1.34 -0.45 0.45 1.34
GroupNormalization of -1 0 1 2, plus 1000: -1.34 -0.45 0.45 1.34
GroupNormalization of -1 0 1 2, plus 3000: -1.06 -0.35 0.35 1.06
GroupNormalization of -1 0 1 2, plus 10000: -474.34 -158.11 158.11 474.34
GroupNormalization of -1 0 1 2, plus 100000: NaN NaN NaN NaN
variance: Sub(MeanOfSquare, SquareOfMean)
TEXT
diff expected seen || { echo "changed: other numbers" >&2; exit 1; }
echo "as seen on 2026-12-01"
