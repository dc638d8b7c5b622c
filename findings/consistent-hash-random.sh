#!/usr/bin/env bash
# Two consistent-hash rings of the same nodes send four fifths of the keys to different nodes: the
# points of the ring are random numbers.
#
# Packages: npm consistent-hash 1.2.2; hashring 3.2.0 and consistent-hashing 0.3.0 to compare; node
# 20.
# Seen: of 20,000 keys and five nodes, two rings of consistent-hash that were made alike in one
# process agree on a fifth, as if the nodes were drawn by lot. hashring and consistent-hashing agree
# on all, in any order of the nodes. With the option distribution: "uniform" the points are the same
# if the nodes come in the same order; in another order a fifth is agreed on. Each node has every
# fifth point then: a node that is removed leaves all its keys to one other, which has two fifths
# afterwards.
# Likely guess: a ring is a function of its nodes' names; that is what consistent hashing is for. A
# node's keys are spread when it goes.
# Why it matters: the routers that send a prompt to the replica with its cached prefix, or a key to
# its shard, are several processes, and are restarted. Within one process all looks right: the
# shares are even, and a removed node moves only its own keys. But two routers share no cache, and a
# restart empties it.
# Date: 2026-12-02
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(consistent-hash@1.2.2 hashring@3.2.0 consistent-hashing@0.3.0)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >rings.cjs <<'JS'
const ConsistentHash = require("consistent-hash");
const ConsistentHashing = require("consistent-hashing");
const HashRing = require("hashring");

const nodes = ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"], keys = 20000;
const added = (options) => (names) => {
  const ring = new ConsistentHash(options);
  for (const name of names) ring.add(name);
  return {get: (key) => ring.get(key), remove: (name) => ring.remove(name)};
};
const rings = {
  "consistent-hash": added(),
  "consistent-hash, uniform": added({distribution: "uniform"}),
  "hashring": (names) => new HashRing(names),
  "consistent-hashing": (names) => {
    const ring = new ConsistentHashing(names);
    return {get: (key) => ring.getNode(key), remove: (name) => ring.removeNode(name)};
  },
};
const place = (ring) => Array.from({length: keys}, (_, i) => ring.get("key" + i));
const agree = (a, b) => a.filter((node, i) => node === b[i]).length / keys;
const word = (share) => share === 1 ? "all" : share < 0.4 ? "about a fifth" : share.toFixed(1);
for (const [name, make] of Object.entries(rings)) {
  const ring = make(nodes), before = place(ring);
  const again = agree(before, place(make(nodes)));
  const turned = agree(before, place(make([...nodes].reverse())));
  ring.remove("gpu-4");
  const after = place(ring);
  const kept = before.every((node, i) => node === "gpu-4" || node === after[i]);
  const heirs = new Set(after.filter((_, i) => before[i] === "gpu-4")).size;
  console.log(`${name}: the same ring again agrees on ${word(again)}, in another order on`,
    `${word(turned)}; without gpu-4 ${kept ? "only its keys move" : "other keys move"}, to`,
    `${heirs} of the 4 other nodes`);
}
JS

echo "node $(node --version), ${pinned[*]}"
timeout 60 node rings.cjs | tee seen
cat >expected <<'TEXT'
consistent-hash: the same ring again agrees on about a fifth, in another order on about a fifth; without gpu-4 only its keys move, to 4 of the 4 other nodes
consistent-hash, uniform: the same ring again agrees on all, in another order on about a fifth; without gpu-4 only its keys move, to 1 of the 4 other nodes
hashring: the same ring again agrees on all, in another order on all; without gpu-4 only its keys move, to 4 of the 4 other nodes
consistent-hashing: the same ring again agrees on all, in another order on all; without gpu-4 only its keys move, to 4 of the 4 other nodes
TEXT
diff expected seen || { echo "changed: other places of the keys" >&2; exit 1; }
echo "as seen on 2026-12-02"
