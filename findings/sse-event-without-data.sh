#!/usr/bin/env bash
# An event without data in a stream, which server-sent events allow and every browser ignores, ends
# the answer of two clients of OpenAI's protocol with a SyntaxError.
#
# Packages: npm openai 6.49.0, groq-sdk 1.6.0, ai 6.0.326 with @ai-sdk/openai-compatible 2.0.92,
# @huggingface/inference 4.13.30, @mistralai/mistralai 2.7.0; node 20.
# Seen: a chat completion is streamed with "event: ping" and an empty line between its chunks, a
# keep-alive while the model computes. openai and groq-sdk raise "Unexpected end of JSON input" at
# the first one, before any text; the other three read the whole answer. Comments (": ping"), retry
# and id fields, CR as the end of a line, a chunk over several data lines and a byte-order mark are
# fine for all five.
# Likely guess: the clients that read every other corner of the format read this one too; the
# standard says that an event whose data is empty is not dispatched.
# Why it matters: a server that answers slowly (a long prompt, a queue) must send something, or a
# proxy closes the connection. With the wrong one of two equally valid keep-alives its most used
# client fails at once, and only when the server is slow.
# Date: 2026-11-29
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(openai@6.49.0 groq-sdk@1.6.0 ai@6.0.326 @ai-sdk/openai-compatible@2.0.92
  @huggingface/inference@4.13.30 @mistralai/mistralai@2.7.0)
npm init -y >/dev/null
npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${pinned[@]}" >/dev/null ||
  exit 2

cat >clients.mjs <<'JS'
import http from "node:http";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {InferenceClient} from "@huggingface/inference";
import {Mistral} from "@mistralai/mistralai";
import {streamText} from "ai";
import Groq from "groq-sdk";
import OpenAI from "openai";

const chunk = (delta, finish_reason = null) => ({
  id: "c", object: "chat.completion.chunk", created: 1, model: "m",
  choices: [{index: 0, delta, finish_reason}],
});
const chunks = ["Two", " words"].map((content) => chunk({role: "assistant", content}));
chunks.push(chunk({}, "stop"));

const data = (c) => `data: ${JSON.stringify(c)}\n\n`;
const done = "data: [DONE]\n\n";
const before = (keep_alive) => chunks.map((c) => keep_alive + data(c)).join("") + done;
const severalLines = (c) => JSON.stringify(c, null, 1).replace(/^/gm, "data: ") + "\n\n";
const streams = {
  "as OpenAI sends it": before(""),
  "event: ping, without data": before("event: ping\n\n"),
  "comments": before(": ping\n\n"),
  "retry and id": before("retry: 3000\nid: 7\n"),
  "lines that end with CR": before("").replaceAll("\n", "\r"),
  "chunks over several data lines": chunks.map(severalLines).join("") + done,
  "a byte-order mark": "\ufeff" + before(""),
};

let stream;
const server = http.createServer((request, response) => {
  request.resume().on("end", () => {
    response.writeHead(200, {"content-type": "text/event-stream"}).end(stream);
  });
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const root = `http://127.0.0.1:${server.address().port}`;
const ask = {model: "m", messages: [{role: "user", content: "?"}]};

async function join(parts, text_of = (c) => c.choices[0].delta.content) {
  let text = "";
  for await (const part of parts) text += text_of(part) ?? "";
  return text;
}
const clients = {
  "openai": async () => {
    const client = new OpenAI({baseURL: root + "/v1", apiKey: "k", maxRetries: 0, logLevel: "off"});
    return join(await client.chat.completions.create({...ask, stream: true}));
  },
  "groq-sdk": async () => {
    const client = new Groq({baseURL: root, apiKey: "k", maxRetries: 0, logLevel: "off"});
    return join(await client.chat.completions.create({...ask, stream: true}));
  },
  "ai": () => {
    const model = createOpenAICompatible({name: "x", baseURL: root + "/v1"})("m");
    return join(streamText({model, messages: ask.messages, maxRetries: 0}).textStream, (t) => t);
  },
  "@huggingface/inference": () =>
    join(new InferenceClient("k", {endpointUrl: root + "/v1"}).chatCompletionStream(ask)),
  "@mistralai/mistralai": async () =>
    join(await new Mistral({serverURL: root, apiKey: "k"}).chat.stream(ask),
         (e) => e.data.choices[0].delta.content),
};

console.error = () => {};  // the two that fail print the event as well
for (const [name, text] of Object.entries(streams)) {
  stream = text;
  console.log(name);
  for (const [client, answer] of Object.entries(clients))
    console.log(`  ${client}:`, await answer().catch((e) => `${e.constructor.name}: ${e.message}`));
}
process.exit();
JS

echo "node $(node --version), ${pinned[*]}"
timeout 60 node clients.mjs | tee seen
{
  for name in "as OpenAI sends it" "event: ping, without data" comments "retry and id" \
    "lines that end with CR" "chunks over several data lines" "a byte-order mark"; do
    echo "$name"
    for client in openai groq-sdk ai @huggingface/inference @mistralai/mistralai; do
      case $name-$client in
        event*-openai | event*-groq-sdk)
          echo "  $client: SyntaxError: Unexpected end of JSON input"
          ;;
        *) echo "  $client: Two words" ;;
      esac
    done
  done
} >expected
diff expected seen || { echo "changed: a client reads a stream otherwise" >&2; exit 1; }
echo "as seen on 2026-11-29"
