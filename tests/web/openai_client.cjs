// Asks a server of the model "scribe" as OpenAI's own client does, in its versions 4 and 6. Arguments: the folder of
// node_modules, the server's URL, a key; "open" instead: the server wants none.
// Prints one JSON document; exits with 1, and says why, at the first thing that is not as it should be.
const assert = require('node:assert');
const OpenAI = require(process.argv[2] + '/openai');
const [url, key] = process.argv.slice(3), open = key === 'open';
const connect = (apiKey, maxRetries) => new OpenAI({ baseURL: url + '/v1', apiKey, maxRetries });
const client = connect(key, 0);
const model = 'scribe', context = 512, most_choices = 256;
const ask = { model, prompt: 'The President', max_tokens: 24, seed: 5 };
const chat = { model, messages: [{ role: 'user', content: 'Who rules?' }], max_completion_tokens: 24, seed: 2 };
const complete = (more) => client.completions.create({ ...ask, ...more });
const text = async (more) => (await complete(more)).choices[0].text;

async function streamed(parts) {
  const got = { text: '', usage: null, finish: null, last: null };
  for await (const part of parts) {
    for (const c of part.choices) {
      got.text += c.text ?? c.delta.content ?? '';
      got.finish = c.finish_reason ?? got.finish;
    }
    got.usage = part.usage ?? got.usage;
    got.last = part;
  }
  return got;
}

async function until(what, seconds, holds) {
  for (const end = Date.now() + 1e3 * seconds; Date.now() < end;) {
    if (await holds()) return;
    await new Promise((go) => setTimeout(go, 10));
  }
  assert.fail(`${what}: not within ${seconds} s`);
}

// The sum of these lines of /metrics.
async function metric(...names) {
  const answer = await fetch(url + '/metrics', { headers: { Authorization: `Bearer ${key}` } });
  const lines = (await answer.text()).split('\n');
  return names.reduce((sum, name) => sum + Number(lines.find((l) => l.startsWith(name + ' ')).split(' ').at(-1)), 0);
}
const used = () => metric('troupe_kv_pages{state="used"}');
const cancelled = () => metric(`troupe_requests_total{model="${model}",outcome="cancelled"}`);

async function models() {
  const all = [];
  for await (const m of client.models.list()) all.push(m.id);
  assert.deepStrictEqual(all, [model]);
  assert.strictEqual((await client.models.retrieve(model)).object, 'model');
}

async function whole_and_streamed() {
  const whole = await complete({});
  const parts = await streamed(await complete({ stream: true, stream_options: { include_usage: true } }));
  assert.strictEqual(parts.text, whole.choices[0].text);
  assert.deepStrictEqual(parts.usage, whole.usage);
  assert.deepStrictEqual(whole.usage, { prompt_tokens: 13, completion_tokens: 24, total_tokens: 37 });
  assert.deepStrictEqual(parts.last.choices, []);
  assert.strictEqual(parts.finish, 'length');
  const answer = await client.chat.completions.create({ ...chat, logprobs: true, top_logprobs: 2 });
  const said = answer.choices[0].message.content;
  assert.strictEqual(answer.choices[0].logprobs.content.length, 24);
  assert.strictEqual(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
  assert.strictEqual((await streamed(await client.chat.completions.create({ ...chat, stream: true }))).text, said);
  const runs = client.chat.completions.stream ? client.chat.completions : client.beta.chat.completions;
  const final = await runs.stream(chat).finalChatCompletion();
  assert.strictEqual(final.choices[0].message.content, said);
  return { text: whole.choices[0].text, chat: said };
}

async function parameters() {
  const three = (await complete({ n: 3 })).choices;
  assert.deepStrictEqual(three.map((c) => c.index), [0, 1, 2]);
  for (const i of [0, 1, 2]) assert.strictEqual(await text({ seed: 5 + i }), three[i].text);
  const first = three[0].text;
  for (const stop of [first.slice(5, 8), first.slice(-1)]) {
    const cut = (await complete({ stop })).choices[0];
    assert.strictEqual(cut.text, first.slice(0, first.indexOf(stop)));
    assert.strictEqual(cut.finish_reason, 'stop');
    assert.strictEqual((await streamed(await complete({ stop, stream: true }))).text, cut.text);
  }
  assert.strictEqual((await complete({ max_tokens: 1 })).usage.completion_tokens, 1);
  const most = context - ask.prompt.length;
  assert.strictEqual((await complete({ max_tokens: most })).usage.completion_tokens, most);
  await assert.rejects(complete({ max_tokens: most + 1 }),
    (e) => e instanceof OpenAI.BadRequestError && e.code === 'context_length_exceeded');
  const logged = (await complete({ logprobs: 3 })).choices[0].logprobs;
  assert.strictEqual(logged.tokens.join(''), first);
  assert.deepStrictEqual([logged.token_logprobs.length, logged.top_logprobs.length, logged.text_offset[1]], [24, 24, 1]);
  assert.strictEqual(await text({ echo: true }), ask.prompt + first);
  assert.strictEqual(await text({ echo: true, max_tokens: 0 }), ask.prompt);
  assert.strictEqual(await text({ max_tokens: 0 }), '');
  const tokens = [...Buffer.from(ask.prompt)];
  assert.strictEqual(await text({ prompt: tokens }), first);
  const list = (await complete({ prompt: [ask.prompt, 'We'] })).choices;
  assert.deepStrictEqual([list.length, list[0].text], [2, first]);
  assert.strictEqual(await text({ logit_bias: { 65: 100 }, max_tokens: 3 }), 'AAA');
}

async function errors() {
  for (const bad of [() => complete({ max_tokens: -1 }), () => client.chat.completions.create({ ...chat, max_tokens: 0 })])
    await assert.rejects(bad, (e) => e instanceof OpenAI.BadRequestError && e.param === 'max_tokens');
  await assert.rejects(complete({ suffix: 'x' }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'suffix');
  await assert.rejects(complete({ model: 'other' }), OpenAI.NotFoundError);
  await assert.rejects(client.models.retrieve('other'), OpenAI.NotFoundError);
  if (!open) await assert.rejects(connect('wrong', 0).models.list(), OpenAI.AuthenticationError);
}

// A client that leaves frees its pages, whether it has got a first token or not.
async function aborts() {
  const long = { max_tokens: 480, n: 16 };
  for (const stream of [true, false]) {
    const stop = new AbortController(), before = await cancelled();
    const going = client.completions.create({ ...ask, ...long, stream }, { signal: stop.signal });
    if (stream) {
      for await (const part of await going) {
        assert(part.choices.length === 1);
        stop.abort();
      }
    } else {
      setTimeout(() => stop.abort(), 20);
      await assert.rejects(going, OpenAI.APIUserAbortError);
    }
    await until('a request that was left is counted', 5, async () => await cancelled() === before + 1);
    await until('its pages are free', 5, async () => await used() === 0);
  }
  const all = [];
  for (let i = 0; i < 40; ++i) {
    const stop = new AbortController();
    all.push(client.completions.create({ ...ask, max_tokens: 300 }, { signal: stop.signal }).catch(() => null));
    setTimeout(() => stop.abort(), (i * 37) % 200);
  }
  await Promise.all(all);
  await until('all pages are free', 10, async () => await used() === 0);
}

// As many streams as are allowed, each with its own text; one more is declined, and a client that retries gets through.
async function load() {
  const max_tokens = 450;
  const few = await Promise.all([0, 1, 2, 3].map((seed) => text({ seed, max_tokens })));
  const waits = new Array(most_choices).fill(0).map(async (_, i) =>
    streamed(await client.completions.create({ ...ask, seed: i % 4, max_tokens, stream: true })));
  await until('all of them are there', 20, async () =>
    await metric('troupe_sequences{state="running"}', 'troupe_sequences{state="waiting"}') === most_choices);
  await assert.rejects(complete({}), (e) => e instanceof OpenAI.RateLimitError && Number(
    e.headers.get ? e.headers.get('retry-after') : e.headers['retry-after']) >= 1);
  const patient = connect(key, 60).completions.create(ask);
  const all = await Promise.all(waits);
  all.forEach((s, i) => assert.strictEqual(s.text, few[i % 4]));
  assert.strictEqual((await patient).choices[0].finish_reason, 'length');
}

async function main() {
  await models();
  const said = await whole_and_streamed();
  await parameters();
  await errors();
  await aborts();
  await load();
  console.log(JSON.stringify(said));
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
