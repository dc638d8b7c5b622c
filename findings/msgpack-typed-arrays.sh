#!/usr/bin/env bash
# A Float32Array through four MessagePack libraries of JavaScript: two send its memory, one a map of
# decimal keys, and one a byte for each number, in which the number is lost.
#
# Packages: npm @msgpack/msgpack 3.1.3, msgpackr 2.1.4, msgpack5 6.1.0, notepack.io 3.0.1; node 20.
# Seen: for 1.5, -2.5 and 300.25, @msgpack/msgpack and msgpackr write a bin of twelve bytes.
# msgpack5 writes a map {"0": 1.5, "1": -2.5, ...}. notepack.io writes a bin of three bytes, 01 fe
# 2c: each number cut to an integer, modulo 256, without an error. A Uint16Array likewise; a
# Uint8Array is the same bin for all four.
# Likely guess: the array's memory, or an array of floats, or an error.
# Why it matters: weights, gradients and activations are typed arrays in node. A frame that has a
# tensor in it is valid, is received, has a plausible length, and other numbers.
# Date: 2026-11-29
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(@msgpack/msgpack@3.1.3 msgpackr@2.1.4 msgpack5@6.1.0 notepack.io@3.0.1)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >arrays.mjs <<'JS'
import {encode} from "@msgpack/msgpack";
import msgpack5 from "msgpack5";
import {pack} from "msgpackr";
import notepack from "notepack.io";

const encoders = {
  "@msgpack/msgpack": encode,
  "msgpackr": pack,
  "msgpack5": msgpack5().encode,
  "notepack.io": notepack.encode,
};
const arrays = {
  "Float32Array 1.5 -2.5 300.25": new Float32Array([1.5, -2.5, 300.25]),
  "Uint16Array 258 65535": new Uint16Array([258, 65535]),
  "Uint8Array 1 255": new Uint8Array([1, 255]),
};
for (const [name, array] of Object.entries(arrays)) {
  console.log(name);
  for (const [library, encoder] of Object.entries(encoders)) {
    const frame = Buffer.from(encoder(array).slice());
    console.log(`  ${library}: ${frame.toString("hex")}`);
  }
}
JS

echo "node $(node --version), ${pinned[*]}"
node arrays.mjs | tee seen
cat >expected <<'TEXT'
Float32Array 1.5 -2.5 300.25
  @msgpack/msgpack: c40c0000c03f000020c000209643
  msgpackr: c40c0000c03f000020c000209643
  msgpack5: 83a130ca3fc00000a131cac0200000a132ca43962000
  notepack.io: c40301fe2c
Uint16Array 258 65535
  @msgpack/msgpack: c4040201ffff
  msgpackr: c4040201ffff
  msgpack5: 82a130cd0102a131cdffff
  notepack.io: c40202ff
Uint8Array 1 255
  @msgpack/msgpack: c40201ff
  msgpackr: c40201ff
  msgpack5: c40201ff
  notepack.io: c40201ff
TEXT
diff expected seen || { echo "changed: a typed array is written otherwise" >&2; exit 1; }
echo "as seen on 2026-11-29"
