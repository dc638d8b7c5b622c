// The pages' texts of numbers and their curves, in Node: `node page_text_test.cjs FOLDER_OF_WEB`.
// The modules are read as text, since their names end as those of old scripts do.

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");

const load = (file) => import("data:text/javascript," + encodeURIComponent(fs.readFileSync(path.join(process.argv[2], file), "utf8")));

async function main() {
  const { bytes, duration, sameCurves, stepsOf } = await load("page/text.js");
  // The same as in tests/cli/human_test.cpp.
  for (const [s, text] of [[0, "0 s"], [0.00085, "850 us"], [0.0765964, "76.6 ms"], [3.2, "3.2 s"], [59.96, "1m 00s"],
    [125, "2m 05s"], [3599.7, "1h 00m"], [3720, "1h 02m"], [4 * 86400 + 5 * 3600, "4d 05h"], [3414.6, "56m 55s"],
    [4259, "1h 11m"], [null, "-"], [-125, "-2m 05s"]]) assert.equal(duration(s), text);
  for (const [n, text] of [[512, "512 B"], [21.57e9, "21.6 GB"], [39320000, "39.3 MB"], [999999, "1 MB"]]) assert.equal(bytes(n), text);

  // Four of six jobs took at most 80 minutes: the curve is at 2/3 there and stays there up to the next one.
  const steps = stepsOf([20, 80, 100], [1 / 3, 2 / 3, 1]);
  assert.deepEqual(steps, [[0, 0], [20, 0], [20, 1 / 3], [80, 1 / 3], [80, 2 / 3], [100, 2 / 3], [100, 1]]);
  const at = (x) => steps.filter(([px]) => px <= x).at(-1)[1];
  assert.equal(at(90), 2 / 3);

  const points = [[0, 0], [1, 1]];
  assert.deepEqual(sameCurves([{ name: "fcfs", points }, { name: "troupe", points: [[0, 0], [2, 1]] }, { name: "srtf", points }]), ["fcfs and srtf"]);
  assert.deepEqual(sameCurves([{ name: "fcfs", points }]), []);

  const { iterationBar } = await load("page/progress.js");
  const job = { iterations: 50, iteration: 0, command: [] };
  assert.deepEqual(iterationBar(job), { share: 0, text: "starting, 50 iterations to do" });
  assert.equal(iterationBar({ ...job, iteration: 7 }).text, "iteration 7 of 50");
  assert.equal(iterationBar({ ...job, iteration: 0, command: ["a"] }).text, "iteration 0 of 50");
  assert.equal(iterationBar({ ...job, iteration: null }), null);
  console.log("all checks passed");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
