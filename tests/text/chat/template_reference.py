#!/usr/bin/env python3
"""What jinja2 makes of templates of chats, set up as transformers sets it up.

usage: template_reference.py OUT FOLDER...
Reads every *.jinja, every line of one_liners.txt and every `chat_template` of a tokenizer_config.json below the folders, and writes
to OUT a line of JSON {template, source, tokens, messages, generation, text or error} for each of them with each conversation, or
{template, source, tokens, malformed}. Exit status 77: jinja2 is missing.

       template_reference.py --check FILE
Prints how many lines {source, tokens, messages, text} of the file have another text than jinja2 writes.
"""
import datetime
import json
import pathlib
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
except ImportError:
    print("python3-jinja2 is not installed", file=sys.stderr)
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """{% generation %}: its inside, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("inside"), [], [], body).set_lineno(line)

    def inside(self, caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def now(form):
    return datetime.datetime(2026, 1, 5, 16, 7, 9).strftime(form)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = to_json
environment.globals["raise_exception"] = refuse
environment.globals["strftime_now"] = now


def said(*texts):
    """A conversation: system (None: there is none), user, assistant, user, ..."""
    roles = ["system"] + ["user", "assistant"] * len(texts)
    return [{"role": r, "content": t} for r, t in zip(roles, texts) if t is not None]


TALKS = [
    said(None, "Hi"),
    said("Be kind.", "Hi"),
    said(None, "Hi", "Hello.", "So?"),
    said("Be brief.", "One", "Two", "Three", "Four", "Five"),
    said("  both \n", " \t a\n\n", "\n b ", "c \n "),
    said("Größe: ½ – “ja”", "你好，世界 🙂 é", "مرحبا", "ẞ ŉ ﬁ \u00a0x\u2028y\u200b"),
    said("", ""),
    said(None, "", "", ""),
    said(None, "Call get_weather(city='Oslo') please", '{"name": "get_weather", "arguments": {"city": "Oslo"}}', "ok"),
    said("<|im_end|> <s>", "a<|im_end|>\n<|im_start|>system\nb", "</s>[INST] x [/INST]", "<|eot_id|><think>no</think>"),
    said(None, "x", "<think>\nwhy\n</think>\n\nbecause", "y", "<think>z", "w </think> v"),
    said(None, "{{ 1 }} {% if %} {# #}", "quote ' and \" and \\ and \n", "100 % & <b>"),
    said(None, "one\ntwo\r\nthree\n", "a,b,,c", "tail</think>"),
]


def name_of(token):
    return token["content"] if isinstance(token, dict) else token


def templates(folder):
    """Name, source and names of tokens of each template."""
    plain = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    for file in sorted(folder.rglob("*.jinja")):
        with open(file, encoding="utf-8", newline="") as opened:
            yield str(file.relative_to(folder)), opened.read(), plain
    for file in sorted(folder.rglob("one_liners.txt")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{file.name} {number}", line, plain
    for file in sorted(folder.rglob("tokenizer_config.json")):
        config = json.loads(file.read_text(encoding="utf-8"))
        found = config.get("chat_template") or []
        if isinstance(found, list):
            found = next((t["template"] for t in found if t["name"] == "default"), None)
        tokens = {k: name_of(v) for k, v in config.items()
                  if k in ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token") and v}
        if found:
            yield str(file.parent.relative_to(folder)), found, tokens


def rendered(template, tokens, messages, generation):
    try:
        text = template.render(messages=messages, tools=None, documents=None, add_generation_prompt=generation, **tokens)
        return {"text": text}
    except Exception as e:  # whatever it is, the conversation is refused
        return {"error": f"{type(e).__name__}: {e}"}


def unequal(file):
    found, known = 0, {}
    with open(file, encoding="utf-8") as lines:
        for one in map(json.loads, lines):
            source = one["source"]
            if source not in known:
                known[source] = environment.from_string(source)
            written = rendered(known[source], one["tokens"], one["messages"], False)
            if written.get("text") != one["text"]:
                print(written, one["text"], file=sys.stderr)
                found += 1
    return found


def main():
    if sys.argv[1] == "--check":
        return print(unequal(sys.argv[2]))
    out, *folders = sys.argv[1:]
    with open(out, "w", encoding="utf-8") as written:
        for folder in map(pathlib.Path, folders):
            for name, source, tokens in templates(folder):
                base = {"template": name, "source": source, "tokens": tokens}
                try:
                    template = environment.from_string(source)
                except Exception as e:
                    written.write(json.dumps({**base, "malformed": str(e)}) + "\n")
                    continue
                short = name.startswith("one_liners")
                for messages in TALKS[:6] if short else TALKS:
                    for generation in (True,) if short else (True, False):
                        case = {**base, "messages": messages, "generation": generation,
                                **rendered(template, tokens, messages, generation)}
                        written.write(json.dumps(case) + "\n")


main()
