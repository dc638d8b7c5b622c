// Asks a `troupe serve` as OpenAI's own client does. Arguments: the folder of node_modules, the server's URL, a key.
// Prints one JSON document; exits with 1, and says why, at the first thing that is not as it should be.
const assert = require('node:assert');
const OpenAI = require(process.argv[2] + '/openai');
const client = new OpenAI({ baseURL: process.argv[3] + '/v1', apiKey: process.argv[4], maxRetries: 0 });
const model = 'scribe';
const ask = { model, prompt: 'The President', max_tokens: 24, seed: 5 };
const chat = { model, messages: [{ role: 'user', content: 'Who rules?' }], max_completion_tokens: 24, seed: 2 };

async function streamed(parts) {
  let text = '', usage = null, finish = null;
  for await (const part of parts) {
    for (const c of part.choices) {
      text += c.text ?? c.delta.content ?? '';
      finish = c.finish_reason ?? finish;
    }
    usage = part.usage ?? usage;
  }
  return { text, usage, finish };
}

async function main() {
  const models = [];
  for await (const m of client.models.list()) models.push(m.id);
  assert.deepStrictEqual(models, [model]);
  assert.strictEqual((await client.models.retrieve(model)).object, 'model');

  const whole = await client.completions.create(ask);
  const parts = await streamed(
    await client.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } }));
  assert.strictEqual(parts.text, whole.choices[0].text);
  assert.deepStrictEqual(parts.usage, whole.usage);
  assert.strictEqual(parts.finish, 'length');

  const answer = await client.chat.completions.create({ ...chat, logprobs: true, top_logprobs: 2 });
  assert.strictEqual(answer.choices[0].logprobs.content.length, 24);
  assert.strictEqual(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
  assert.strictEqual((await streamed(await client.chat.completions.create({ ...chat, stream: true }))).text,
    answer.choices[0].message.content);
  const final = await client.chat.completions.stream(chat).finalChatCompletion();
  assert.strictEqual(final.choices[0].message.content, answer.choices[0].message.content);

  await assert.rejects(client.completions.create({ ...ask, max_tokens: 0 }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === 'max_tokens');
  await assert.rejects(client.models.retrieve('other'), OpenAI.NotFoundError);
  const stranger = new OpenAI({ baseURL: process.argv[3] + '/v1', apiKey: 'wrong', maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);

  const long = { ...ask, max_tokens: 480, n: 8 };
  for (const stream of [true, false]) {
    const stop = new AbortController();
    const going = client.completions.create({ ...long, stream }, { signal: stop.signal });
    if (stream) {
      for await (const part of await going) {
        assert(part.choices.length === 1);
        stop.abort();
      }
    } else {
      setTimeout(() => stop.abort(), 20);
      await assert.rejects(going, OpenAI.APIUserAbortError);
    }
  }
  console.log(JSON.stringify({ text: whole.choices[0].text, chat: answer.choices[0].message.content }));
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
