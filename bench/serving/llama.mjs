// llama.cpp for bench_serving: node llama.mjs NODE_MODULES GGUF THREADS, then lines on standard input: "version", "prefill TOKENS",
// "decode COUNT". Each is answered by one line of JSON. No GPU.
import fs from "node:fs";
import readline from "node:readline";

const [modules, file, count] = process.argv.slice(2), threads = Number(count);
const { getLlama } = await import(`${modules}/node-llama-cpp/dist/index.js`);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: threads, logLevel: "error" });
const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
const context = await model.createContext({ contextSize: 1024, batchSize: 512, threads, flashAttention: false });
const sequence = context.getSequence();
let last = null;

const seconds = () => performance.now() / 1e3;

/// The token after these, the most probable one.
async function next(tokens) {
  for await (const token of sequence.evaluate(tokens, { temperature: 0 })) return token;
}

async function prefill(tokens) {
  await sequence.clearHistory();
  const begin = seconds();
  last = await next(tokens);
  return { s: seconds() - begin };
}

async function decode(count) {
  const tokens = [last], begin = seconds();
  for await (const token of sequence.evaluate([last], { temperature: 0 })) {
    tokens.push(token);
    if (tokens.length > count) break;
  }
  return { s: seconds() - begin, tokens: tokens.slice(0, count + 1) };
}

function version() {
  const read = (name) => JSON.parse(fs.readFileSync(`${modules}/${name}/package.json`)).version;
  return { version: `node-llama-cpp ${read("node-llama-cpp")}`, threads: context.currentThreads };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [what, more] = line.split(" ");
  const answer = what === "version" ? version() : what === "prefill" ? await prefill(more.split(",").map(Number)) :
    await decode(Number(more));
  process.stdout.write(JSON.stringify(answer) + "\n");
}
process.exit(0);
