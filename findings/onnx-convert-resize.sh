#!/usr/bin/env bash
# ONNX's own version converter changes what a model computes: a linear Resize of opset 10 gives
# other pixels in 11, and Hardmax of opset 11 other ones in 13.
#
# Packages: Debian 12's python3-onnx 1.12.0-2+b4; npm onnxruntime-node 1.30.0 to run the models;
# node 20.
# Seen: Resize with the mode linear makes 0, 0.5, 1, 1 of 0, 1 in opset 10, and 0, 0.25, 0.75, 1
# after onnx.version_converter.convert_version to 11 or 13: the converted node has no
# coordinate_transformation_mode, whose default in 11 is half_pixel, while opset 10 computes what is
# called asymmetric there. Upsample of opset 9 is right in 10 and likewise wrong in 13. Hardmax of 2
# x 2 x 2 numbers has one 1 for each of the two batch entries in opset 11, where the axes from 1 on
# are one row; converted to 13 it has one for each last axis. Softmax, whose meaning changed in the
# same way, becomes Flatten, Softmax and Reshape, and stays right. The checker accepts all models.
# Likely guess: the same function, or an error where it is not known how. An adapter for Resize from
# 10 to 11 is there: it adds the new input.
# Why it matters: models are brought to the opset that a runtime or a compiler demands by this call.
# The images of a segmentation or diffusion model are shifted by a part of a pixel at each
# upsampling, and a router with Hardmax picks several experts. Accuracy falls, and nothing is
# reported.
# Date: 2026-12-02
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error onnxruntime-node@1.30.0 \
  >/dev/null || exit 2
# The pinned package, and of what it needs only what this machine lacks.
pinned=(python3-onnx=1.12.0-2+b4)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib/x86_64-linux-gnu
export PYTHONPATH=$work/root/usr/lib/python3/dist-packages
export LD_LIBRARY_PATH=$lib:$lib/blas:$lib/lapack

cat >convert.py <<'PYTHON'
import onnx
from onnx import TensorProto, checker, helper, version_converter


def value(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def models(name, opset, targets, shape, result, node, initializers=()):
    graph = helper.make_graph([node], "g", [value("x", shape)], [value("y", result)], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 6
    checker.check_model(model)
    onnx.save(model, f"{name}.{opset}.onnx")
    for target in targets:
        converted = version_converter.convert_version(model, target)
        checker.check_model(converted)
        onnx.save(converted, f"{name}.{target}.onnx")


scales = helper.make_tensor("s", TensorProto.FLOAT, [3], [1, 1, 2])
for mode in "linear", "nearest":
    models(f"Resize {mode}", 10, [11, 13], [1, 1, 2], [1, 1, 4],
           helper.make_node("Resize", ["x", "s"], ["y"], mode=mode), [scales])
models("Upsample linear", 9, [10, 13], [1, 1, 2], [1, 1, 4],
       helper.make_node("Upsample", ["x", "s"], ["y"], mode="linear"), [scales])
for operator in "Softmax", "Hardmax":
    models(operator, 11, [12, 13], [2, 2, 2], [2, 2, 2], helper.make_node(operator, ["x"], ["y"]))
PYTHON
cat >run.cjs <<'JS'
const ort = require("onnxruntime-node");
const models = {"Resize linear": [10, 11, 13], "Resize nearest": [10, 11, 13],
  "Upsample linear": [9, 10, 13], "Softmax": [11, 12, 13], "Hardmax": [11, 12, 13]};
async function main() {
  for (const [name, opsets] of Object.entries(models))
    for (const opset of opsets) {
      const session =
        await ort.InferenceSession.create(`${name}.${opset}.onnx`, {logSeverityLevel: 3});
      const shape = name.endsWith("max") ? [2, 2, 2] : [1, 1, 2];
      const x = shape[0] === 1 ? [0, 1] : [1, 2, 3, 0, 5, 4, 2, 1];
      const {y} = await session.run({x: new ort.Tensor("float32", Float32Array.from(x), shape)});
      console.log(`${name}, opset ${opset}: ${Array.from(y.data, (v) => +v.toFixed(3)).join(" ")}`);
    }
}
main();
JS
echo "${pinned[*]}, onnxruntime-node@1.30.0, node $(node --version)"
timeout 100 /usr/bin/python3 convert.py || exit 2
timeout 100 node run.cjs | tee seen
cat >expected <<'TEXT'
Resize linear, opset 10: 0 0.5 1 1
Resize linear, opset 11: 0 0.25 0.75 1
Resize linear, opset 13: 0 0.25 0.75 1
Resize nearest, opset 10: 0 0 1 1
Resize nearest, opset 11: 0 0 1 1
Resize nearest, opset 13: 0 0 1 1
Upsample linear, opset 9: 0 0.5 1 1
Upsample linear, opset 10: 0 0.5 1 1
Upsample linear, opset 13: 0 0.25 0.75 1
Softmax, opset 11: 0.087 0.237 0.644 0.032 0.696 0.256 0.035 0.013
Softmax, opset 12: 0.087 0.237 0.644 0.032 0.696 0.256 0.035 0.013
Softmax, opset 13: 0.087 0.237 0.644 0.032 0.696 0.256 0.035 0.013
Hardmax, opset 11: 0 0 1 0 1 0 0 0
Hardmax, opset 12: 0 0 1 0 1 0 0 0
Hardmax, opset 13: 0 1 1 0 1 0 1 0
TEXT
diff expected seen || { echo "changed: other results" >&2; exit 1; }
echo "as seen on 2026-12-02"
