// Results of Hugging Face's tokenizers for small cases, written to tokenizers_recorded.json beside this file.
//
// usage: node tokenizers_recorded.mjs NODE_MODULES
// Needs npm's tokenizers, the library itself behind node (0.23.2 made the file).
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(process.argv[2] + '/package.json');
const { Tokenizer, PreTokenizer, Decoder } = require('tokenizers');
const library = require('tokenizers');
const out = new URL('tokenizers_recorded.json', import.meta.url);

const added = (id, content, special = false) => (
  { id, content, special, single_word: false, lstrip: false, rstrip: false, normalized: false });

function tokenizer(pieces, addedNames, preTokenizer, decoder, fallback = false) {
  const vocab = {};
  for (const p of pieces) vocab[p] = Object.keys(vocab).length;
  let next = pieces.length;
  const tokens = [added(next++, '<|end|>', true)];
  // A name that the vocabulary has keeps its number.
  for (const n of addedNames) tokens.push(added(n in vocab ? vocab[n] : next++, n));
  return { version: '1.0', truncation: null, padding: null, added_tokens: tokens, normalizer: null,
           pre_tokenizer: preTokenizer, post_processor: null, decoder,
           model: { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
                    fuse_unk: false, byte_fallback: fallback, vocab, merges: [] } };
}

const names = ['▁▁', '▁▁▁▁', 'a▁b', '▁x', 'x▁', 'Ġx', 'é', ' y', 'a b', '日本', '<0x41>', '<think>', 'ÿ'];
const pieces = ['a', 'b', '▁', '▁a', '<0x42>', '<0xC3>', '<0xA9>'];
const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
const metaspace = scheme => ({ type: 'Metaspace', replacement: '▁', prepend_scheme: scheme, split: false });
const spaces = { type: 'Replace', pattern: { String: '▁' }, content: ' ' };
const tokenizers = {
  'byte-level': tokenizer(['a', 'b', 'Ġ', 'Ã', '©'], names, byteLevel, byteLevel),
  'llama': tokenizer(pieces, names, null, { type: 'Sequence', decoders: [
    spaces, { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] }, true),
  'gemma': tokenizer(pieces, names, null, { type: 'Sequence', decoders: [spaces, { type: 'ByteFallback' }, { type: 'Fuse' }] }, true),
  'metaspace': tokenizer(pieces, names, metaspace('always'), metaspace('always')),
  'metaspace, never': tokenizer(pieces, names, metaspace('never'), metaspace('never')),
};

const decoded = [];
for (const [name, json] of Object.entries(tokenizers)) {
  const t = Tokenizer.fromString(JSON.stringify(json));
  const numbers = [...new Set([...Object.values(json.model.vocab), ...json.added_tokens.map(a => a.id)])];
  const cases = [];
  const add = async tokens => cases.push([tokens, await t.decode(tokens, true)]);
  // Bytes that are no character together are replaced one by one there, the good ones too: not recorded.
  const isByte = n => t.idToToken(n).startsWith('<0x');
  const fits = (a, b) => !isByte(a) || !isByte(b) || (t.idToToken(a) === '<0xC3>' && t.idToToken(b) === '<0xA9>');
  for (const a of numbers) await add([a]);
  for (const a of numbers) for (const b of numbers) if (fits(a, b)) await add([0, a, b, 1]);
  decoded.push({ name, tokenizer: json, cases });
}

// Patterns of published models: GPT-2, Llama 3, Qwen2, gpt-oss.
const patterns = [
  String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`\s`, String.raw`\S+`, String.raw`[^\s]`,
];
const texts = ["a\u180e'S", 'a\u180eb', ' \u180e ', '\u180e\u180e x', 'a \u180e\n\u180eb', '\u180e', '.\u180e.', '1\u180e2', 'a\u206a\u180e b', '\u00a0\u180e\u2003x',
               'm\u1820\u180e\u1820'];
for (const c of ['\u0085', '\u00a0', '\u1680', '\u2000', '\u200b', '\u2028', '\u202f', '\u205f', '\u2060', '\u3000', '\ufeff', '\u001c', '\u000b'])
  texts.push(`a${c}b ${c}${c} .${c}`);
const words = [];
for (const pattern of patterns) {
  const form = { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false };
  const t = Tokenizer.fromString(JSON.stringify(tokenizer(['a'], [], form, null)));
  for (const text of texts) words.push([form, text, t.getPreTokenizer().preTokenizeString(text).map(w => w[0])]);
}

const lines = decoded.map(d => JSON.stringify(d)).join(",\n");
writeFileSync(out, `{"decoded": [\n${lines}],\n"patterns": ${JSON.stringify(patterns)},\n"words": ${
  JSON.stringify(words.map(([f, t, w]) => [patterns.indexOf(f.pattern.Regex), t, w]))}}\n`);
