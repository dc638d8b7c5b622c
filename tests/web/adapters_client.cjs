// Asks a server of the model "scribe" and of its adapters, each by its name, as OpenAI's own client does, in its versions 4 and 6.
// Arguments: the folder of node_modules, the server's URL, a key, and the expected tokens of each name as JSON.
// Exits with 1, and says why, at the first thing that is not as it should be.
const assert = require('node:assert');
const OpenAI = require(process.argv[2] + '/openai');
const [url, apiKey, expected] = process.argv.slice(3);
const client = new OpenAI({ baseURL: url + '/v1', apiKey, maxRetries: 0 });
const ask = { prompt: 'The President', max_tokens: 12, temperature: 0, return_token_ids: true };

async function main() {
  const wanted = JSON.parse(expected), listed = {};
  for await (const m of client.models.list()) listed[m.id] = m;
  assert.deepStrictEqual(Object.keys(listed).sort(), Object.keys(wanted).sort());
  for (const [model, tokens] of Object.entries(wanted)) {
    assert.strictEqual(listed[model].parent, model === 'scribe' ? null : 'scribe');
    assert.strictEqual((await client.models.retrieve(model)).root, 'scribe');
    const whole = await client.completions.create({ ...ask, model });
    assert.strictEqual(whole.model, model);
    assert.deepStrictEqual(whole.choices[0].token_ids, tokens);
    let text = '';
    for await (const part of await client.completions.create({ ...ask, model, stream: true }))
      for (const c of part.choices) text += c.text;
    assert.strictEqual(text, whole.choices[0].text);
  }
  await assert.rejects(client.completions.create({ ...ask, model: 'nobody' }),
    (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found');
}

main().catch((e) => { console.error(e); process.exit(1); });
