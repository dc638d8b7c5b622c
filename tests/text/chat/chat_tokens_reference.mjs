// The tokens that @huggingface/tokenizers makes of what templates of chats write.
//
// usage: node chat_tokens_reference.mjs MODULES CASES FOLDER OUT
// CASES is what template_reference.py wrote of FOLDER. Writes to OUT a line {template, messages, tokens} for each case with a
// tokenizer.json beside its template, unless a message has the name of a special token, which is text for us. Exit status 77: the
// package is missing.
import fs from "fs";
import path from "path";
import { createRequire } from "module";

const [modules, cases, folder, out] = process.argv.slice(2);
let Tokenizer;
try {
  ({ Tokenizer } = createRequire(path.join(modules, "x.js"))("@huggingface/tokenizers"));
} catch (e) {
  console.error(String(e.message).split("\n")[0]);
  process.exit(77);
}

const read = (file) => JSON.parse(fs.readFileSync(file, "utf8"));
const opened = new Map();
const tokenizerOf = (name) => {
  if (opened.has(name)) return opened.get(name);
  const file = path.join(folder, name, "tokenizer.json");
  let one = null;
  if (fs.existsSync(file)) {
    const all = read(file);
    const special = (all.added_tokens ?? []).filter((t) => t.special).map((t) => t.content);
    one = { special, encode: new Tokenizer(all, read(path.join(folder, name, "tokenizer_config.json"))) };
  }
  opened.clear(); // one at a time: they are large
  opened.set(name, one);
  return one;
};

const lines = [];
for (const line of fs.readFileSync(cases, "utf8").split("\n")) {
  if (!line) continue;
  const one = JSON.parse(line);
  if (one.text === undefined || !one.generation) continue;
  const t = tokenizerOf(one.template);
  if (!t || one.messages.some((m) => t.special.some((name) => m.content.includes(name)))) continue;
  const tokens = Array.from(t.encode.encode(one.text, { add_special_tokens: false }).ids);
  lines.push(JSON.stringify({ template: one.template, messages: one.messages, tokens }));
}
fs.writeFileSync(out, lines.join("\n"));
