#!/usr/bin/env bash
# A t-digest of values that repeat is far off in the middle: of 9,900 times 1 and 100 times 1000,
# p75 is 510 and p90 is 810.
#
# Packages: npm tdigest 0.1.3; @datadog/sketches-js 2.1.1 and hdr-histogram-js 3.0.1 to compare;
# node 20.
# Seen: equal values become one centroid, however many they are, and what lies between the centres
# of two centroids is interpolated. Two values are thus a straight line from the middle of the first
# to the middle of the second: p60 211, p75 510, p90 810, p99 1000, and the rank of 1 is 0.495. Of 1,
# 2, 8 and 64 with 60, 20, 10 and 10 percent, p75 is 4 and p80 is 6, exactly 2 both. With some noise
# added p90 is 1. DDSketch and HdrHistogram say 1 of the same values.
# Likely guess: as exact as a sketch can be, since two values fit into it without loss; a t-digest's
# error of ranks is some thousandths.
# Why it matters: what a server measures repeats: whole milliseconds, batch sizes, numbers of
# tokens, retries, timeouts that all take 30,000 ms. An autoscaler that looks at p90 sees 810 where
# 99 of 100 requests took 1, and one request in a thousand that is slow moves p75 from 1 to 501.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(tdigest@0.1.3 @datadog/sketches-js@2.1.1 hdr-histogram-js@3.0.1)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >percentiles.cjs <<'JS'
const {TDigest} = require("tdigest");
const {DDSketch} = require("@datadog/sketches-js");
const hdr = require("hdr-histogram-js");

const shares = [0.5, 0.6, 0.75, 0.8, 0.9, 0.99, 0.999];
const cases = {
  "1 of 100 is 1000": (i) => i % 100 ? 1 : 1000,
  "1 of 1000 is 1000": (i) => i % 1000 ? 1 : 1000,
  "1, 2, 8, 64": (i) => [1, 1, 1, 1, 1, 1, 2, 2, 8, 64][i % 10],
  "1 of 100 is 1000, noise": (i) => (i % 100 ? 1 : 1000) + i * 7919 % 10000 / 1e6,
};
for (const [name, value] of Object.entries(cases)) {
  const values = Array.from({length: 10000}, (_, i) => value(i));
  const sorted = [...values].sort((a, b) => a - b);
  const digest = new TDigest(), sketch = new DDSketch({relativeAccuracy: 0.01});
  const histogram = hdr.build();
  for (const v of values) {
    digest.push(v);
    sketch.accept(v);
    histogram.recordValue(Math.round(v));
  }
  const show = (who, of) => console.log(`${name}: ${who}`,
    shares.map((share) => `p${+(share * 100).toFixed(1)} ${of(share).toFixed(1)}`).join(" "));
  show("exact", (share) => sorted[Math.ceil(share * sorted.length) - 1]);
  show("tdigest", (share) => digest.percentile(share));
  show("DDSketch", (share) => sketch.getValueAtQuantile(share));
  show("HdrHistogram", (share) => histogram.getValueAtPercentile(100 * share));
}
JS

echo "node $(node --version), ${pinned[*]}"
timeout 100 node percentiles.cjs | tee seen
cat >expected <<'TEXT'
1 of 100 is 1000: exact p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1000.0
1 of 100 is 1000: tdigest p50 11.0 p60 210.8 p75 510.5 p80 610.4 p90 810.2 p99 990.0 p99.9 1000.0
1 of 100 is 1000: DDSketch p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1002.4
1 of 100 is 1000: HdrHistogram p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1000.0
1 of 1000 is 1000: exact p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1.0
1 of 1000 is 1000: tdigest p50 2.0 p60 201.8 p75 501.5 p80 601.4 p90 801.2 p99 981.0 p99.9 999.0
1 of 1000 is 1000: DDSketch p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1.0
1 of 1000 is 1000: HdrHistogram p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1.0
1, 2, 8, 64: exact p50 1.0 p60 1.0 p75 2.0 p80 2.0 p90 8.0 p99 64.0 p99.9 64.0
1, 2, 8, 64: tdigest p50 1.5 p60 1.8 p75 4.0 p80 6.0 p90 36.0 p99 64.0 p99.9 64.0
1, 2, 8, 64: DDSketch p50 1.0 p60 1.0 p75 2.0 p80 2.0 p90 7.9 p99 63.4 p99.9 63.4
1, 2, 8, 64: HdrHistogram p50 1.0 p60 1.0 p75 2.0 p80 2.0 p90 8.0 p99 64.0 p99.9 64.0
1 of 100 is 1000, noise: exact p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1000.0
1 of 100 is 1000, noise: tdigest p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 500.5 p99.9 1000.0
1 of 100 is 1000, noise: DDSketch p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1002.4
1 of 100 is 1000, noise: HdrHistogram p50 1.0 p60 1.0 p75 1.0 p80 1.0 p90 1.0 p99 1.0 p99.9 1000.0
TEXT
diff expected seen || { echo "changed: other percentiles" >&2; exit 1; }
echo "as seen on 2026-12-01"
