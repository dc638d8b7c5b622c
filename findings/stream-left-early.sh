#!/usr/bin/env bash
# Leaving the loop over a streamed answer ends the request in four clients of language models;
# three others keep it open: one reads the answer to its end, two hold the connection without
# reading.
#
# Packages: npm openai 6.49.0, groq-sdk 1.6.0, @mistralai/mistralai 2.7.0, @langchain/openai 1.5.8
# with @langchain/core 1.4.0, ai 6.0.326 with @ai-sdk/openai-compatible 2.0.92,
# @huggingface/inference 4.13.30, ollama 0.6.4; node 20.
# Seen: the server streams 2,000 pieces of 8 kB as fast as they are taken; the program does "for
# await (const part of answer) { ...; break; }" after two. openai, groq-sdk, mistralai and
# langchain close the connection at once. ai takes all 2,000, also if the reader of its textStream
# is cancelled. @huggingface/inference and ollama take what the buffers hold and nothing more, and
# the connection stays open as long as the script looked. With an abort signal, or abort() of
# ollama's answer, all three close it.
# Likely guess: "break" returns the iterator, which ends the request, as fetch's own body does.
# Why it matters: a server stops computing when its client is gone. Whoever reads until a stop
# word, the first line or the first valid JSON and breaks pays for the whole answer with one
# client; with two others a slot of the server, with its cache of keys and values, stays taken by
# an answer that nobody reads.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(openai@6.49.0 groq-sdk@1.6.0 @mistralai/mistralai@2.7.0 @langchain/openai@1.5.8
  @langchain/core@1.4.0 ai@6.0.326 @ai-sdk/openai-compatible@2.0.92
  @huggingface/inference@4.13.30 ollama@0.6.4)
npm init -y >/dev/null
npm install --ignore-scripts --legacy-peer-deps --no-audit --no-fund --loglevel=error \
  "${pinned[@]}" >/dev/null || exit 2

cat >leave.mjs <<'JS'
import {once} from "node:events";
import http from "node:http";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {InferenceClient} from "@huggingface/inference";
import {ChatOpenAI} from "@langchain/openai";
import {Mistral} from "@mistralai/mistralai";
import {streamText} from "ai";
import Groq from "groq-sdk";
import {Ollama} from "ollama";
import OpenAI from "openai";

const pieces = 2000;
const content = "word ".repeat(1600);
const message = {role: "assistant", content};
const chunk = "data: " + JSON.stringify({
  id: "c", object: "chat.completion.chunk", created: 1, model: "m",
  choices: [{index: 0, delta: message, finish_reason: null}],
}) + "\n\n";
const line = JSON.stringify({model: "m", created_at: "", message, done: false}) + "\n";

let sent, ended, held;
const server = http.createServer(async (request, response) => {
  for await (const _ of request);
  const ollama = request.url.startsWith("/api/");
  const type = ollama ? "application/x-ndjson" : "text/event-stream";
  response.writeHead(200, {"content-type": type, "connection": "close"});
  held = response;
  const gone = new Promise((close) => response.on("close", close));
  for (; sent < pieces && !response.destroyed; ++sent)
    if (!response.write(ollama ? line : chunk))
      await Promise.race([gone, once(response, "drain")]);
  if (!response.destroyed) response.end(ollama ? "" : "data: [DONE]\n\n");
  await gone;
  ended = sent < pieces ? "closes the connection" : "takes the whole answer";
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const root = `http://127.0.0.1:${server.address().port}`;
const ask = {model: "m", messages: [{role: "user", content: "?"}]};

async function leave(parts, before = () => {}) {
  let count = 0;
  for await (const _ of parts)
    if (++count === 2) {
      before();
      break;
    }
}
const openai = {baseURL: root + "/v1", apiKey: "k", maxRetries: 0};
const model = createOpenAICompatible({name: "x", baseURL: root + "/v1"})("m");
const ai = (more = {}) => streamText({model, messages: ask.messages, ...more}).textStream;
const hf = new InferenceClient("k", {endpointUrl: root + "/v1"});
const ollama = new Ollama({host: root});
const clients = {
  "openai": async () =>
    leave(await new OpenAI(openai).chat.completions.create({...ask, stream: true})),
  "groq-sdk": async () => leave(await new Groq({...openai, baseURL: root})
    .chat.completions.create({...ask, stream: true})),
  "@mistralai/mistralai": async () =>
    leave(await new Mistral({serverURL: root, apiKey: "k"}).chat.stream(ask)),
  "@langchain/openai": async () => leave(await new ChatOpenAI(
    {model: "m", apiKey: "k", maxRetries: 0, configuration: openai}).stream("?")),
  "ai": () => leave(ai()),
  "ai, reader cancelled": async () => {
    const reader = ai().getReader();
    await reader.read();
    await reader.cancel();
  },
  "@huggingface/inference": () => leave(hf.chatCompletionStream(ask)),
  "ollama": async () => leave(await ollama.chat({...ask, stream: true})),
  "ai, aborted": () => {
    const stop = new AbortController();
    return leave(ai({abortSignal: stop.signal}), () => stop.abort());
  },
  "@huggingface/inference, aborted": () => {
    const stop = new AbortController();
    return leave(hf.chatCompletionStream(ask, {signal: stop.signal}), () => stop.abort());
  },
  "ollama, aborted": async () => {
    const answer = await ollama.chat({...ask, stream: true});
    return leave(answer, () => answer.abort());
  },
};
for (const [name, run] of Object.entries(clients)) {
  sent = 0;
  ended = undefined;
  await run();
  let before = -1;  // nothing moves for three seconds: held open
  for (let still = 0; !ended && still < 30; still = sent === before ? still + 1 : 0) {
    before = sent;
    await new Promise((tick) => setTimeout(tick, 100));
  }
  console.log(`${name}: ${ended ?? "holds the connection"}`);
  if (!ended) held.destroy();
  while (!ended) await new Promise((tick) => setTimeout(tick, 10));
}
process.exit();
JS

echo "node $(node --version), ${pinned[*]}"
timeout 300 node --no-warnings leave.mjs | tee seen
cat >expected <<'TEXT'
openai: closes the connection
groq-sdk: closes the connection
@mistralai/mistralai: closes the connection
@langchain/openai: closes the connection
ai: takes the whole answer
ai, reader cancelled: takes the whole answer
@huggingface/inference: holds the connection
ollama: holds the connection
ai, aborted: closes the connection
@huggingface/inference, aborted: closes the connection
ollama, aborted: closes the connection
TEXT
diff expected seen || { echo "changed: another client leaves the answer" >&2; exit 1; }
echo "as seen on 2026-12-01"
