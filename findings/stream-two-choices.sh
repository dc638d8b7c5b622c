#!/usr/bin/env bash
# Two answers asked for at once (n: 2) and streamed: three clients mix them into one text or lose
# one, and which of it happens depends on how the server cuts its chunks.
#
# Packages: npm openai 6.49.0, @langchain/openai 1.5.8 with @langchain/core 1.4.0, ai 6.0.326 with
# @ai-sdk/openai-compatible 2.0.92; node 20.
# Seen: the answers are "red green" (finished: stop) and "one two" (cut: length). With a chunk for
# each choice, ai's text and the sum of langchain's chunks are "red one green two", and so is what
# the content events of openai's stream() make; langchain's reason to finish is "stoplength", ai's
# is "length". With both choices in each chunk, ai and langchain have the one that is listed first,
# whatever its index, and nothing of the other. openai's final object keeps both apart; langchain's
# single chunks have the index in their metadata, as "completion". Not streamed, each of the three
# is right about the first answer.
# Likely guess: clients that take n, or pass it on, keep choices apart by their index, or keep the
# first.
# Why it matters: several answers to a prompt are how samples for reinforcement learning, votes and
# evaluations are made, and streaming is switched on for speed or against time limits of a proxy.
# The mixed text is plausible, and the score is of a text that no model wrote.
# Date: 2026-12-01
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v node >/dev/null || { echo "needs node 20 or later" >&2; exit 2; }
pinned=(openai@6.49.0 @langchain/openai@1.5.8 @langchain/core@1.4.0 ai@6.0.326
  @ai-sdk/openai-compatible@2.0.92)
npm init -y >/dev/null
npm install --ignore-scripts --legacy-peer-deps --no-audit --no-fund --loglevel=error \
  "${pinned[@]}" >/dev/null || exit 2

cat >choices.mjs <<'JS'
import http from "node:http";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {ChatOpenAI} from "@langchain/openai";
import {generateText, streamText} from "ai";
import OpenAI from "openai";

const words = [["red ", "green ", "stop"], ["one ", "two ", "length"]];
const part = (index, word) => ({index, delta: {role: "assistant", content: words[index][word]},
                                finish_reason: null});
const end = (index) => ({index, delta: {}, finish_reason: words[index][2]});
const steps = [(i) => part(i, 0), (i) => part(i, 1), end];
const chunk = (choices) => "data: " + JSON.stringify({
  id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices}) + "\n\n";
const join = (chunks) => chunks.join("") + "data: [DONE]\n\n";
const streams = {
  "a chunk for each choice": join(steps.flatMap((step) => [0, 1].map((i) => chunk([step(i)])))),
  "both in each chunk": join(steps.map((step) => chunk([step(0), step(1)]))),
  "both, the second first": join(steps.map((step) => chunk([step(1), step(0)]))),
};
const whole = JSON.stringify({
  id: "c", object: "chat.completion", created: 1, model: "m", choices: [0, 1].map((index) => ({
    index, message: {role: "assistant", content: words[index][0] + words[index][1]},
    finish_reason: words[index][2]}))});

let stream;
const server = http.createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const asked = JSON.parse(body);
  if (asked.n !== 2) throw new Error("n is not passed on");
  const type = asked.stream ? "text/event-stream" : "application/json";
  response.writeHead(200, {"content-type": type}).end(asked.stream ? stream : whole);
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const baseURL = `http://127.0.0.1:${server.address().port}/v1`;
const ask = {model: "m", messages: [{role: "user", content: "?"}], n: 2};
const openai = new OpenAI({baseURL, apiKey: "k", maxRetries: 0});
const langchain = new ChatOpenAI(
  {model: "m", n: 2, apiKey: "k", maxRetries: 0, configuration: {baseURL}});
const ai = {model: createOpenAICompatible({name: "x", baseURL})("m"), messages: ask.messages,
            providerOptions: {x: {n: 2}}, maxRetries: 0};
const line = (text, reason) => text.trim() + ", " + reason;

const clients = {
  "openai, events": async () => {
    let text = "";
    const answer = openai.chat.completions.stream(ask).on("content", (delta) => text += delta);
    await answer.done();
    return text.trim();
  },
  "openai, final": async () => {
    const {choices} = await openai.chat.completions.stream(ask).finalChatCompletion();
    return choices.map((c) => line(c.message.content, c.finish_reason)).join("; ");
  },
  "langchain": async () => {
    let sum;
    for await (const chunk of await langchain.stream("?")) sum = sum ? sum.concat(chunk) : chunk;
    return line(sum.content, sum.response_metadata.finish_reason);
  },
  "ai": async () => {
    const answer = streamText(ai);
    return line(await answer.text, await answer.finishReason);
  },
};
for (const [name, text] of Object.entries(streams)) {
  stream = text;
  console.log(name);
  for (const [client, answer] of Object.entries(clients))
    console.log(`  ${client}: ${await answer()}`);
}
console.log("not streamed");
const first = (await openai.chat.completions.create(ask)).choices[0];
console.log(`  openai: ${line(first.message.content, first.finish_reason)}`);
const message = await langchain.invoke("?");
console.log(`  langchain: ${line(message.content, message.response_metadata.finish_reason)}`);
const answer = await generateText(ai);
console.log(`  ai: ${line(answer.text, answer.finishReason)}`);
process.exit();
JS

echo "node $(node --version), ${pinned[*]}"
timeout 60 node choices.mjs | tee seen
cat >expected <<'TEXT'
a chunk for each choice
  openai, events: red one green two
  openai, final: red green, stop; one two, length
  langchain: red one green two, stoplength
  ai: red one green two, length
both in each chunk
  openai, events: red one green two
  openai, final: red green, stop; one two, length
  langchain: red green, stop
  ai: red green, stop
both, the second first
  openai, events: one red two green
  openai, final: red green, stop; one two, length
  langchain: one two, length
  ai: one two, length
not streamed
  openai: red green, stop
  langchain: red green, stop
  ai: red green, stop
TEXT
diff expected seen || { echo "changed: other texts come out" >&2; exit 1; }
echo "as seen on 2026-12-01"
