"""Makes the conversations of this folder, and the tokenizer of configs/models/scribe-chat: make_chat.py [CONFIGS]

chat.jsonl is what scribe-chat has read. capitals, units and desk are three ways to answer, which adapters learn: each has a file
of examples and one that is held out, with other things asked in the same way. All is the same in every run. CONFIGS: the folder
`configs` to write to, the one that this file is in by default.
"""

import json
import os
import sys

nouns = """
apple arm bag ball barn basket bath bean bed bell bench bike bird boat book boot bottle bowl bread bridge brush bucket button
cabin cable cake camp candle cap car card carpet cart cat chain chair chalk cheese church clock cloud coat coin comb cook corn cow
cream cup curtain desk doctor dog door dress drum duck ear egg engine farm father field film finger fire flag floor flower fork
fox frame frog game garden gate girl glass glove goat gold grape grass guitar hall hammer hand harbour hat hill hook horse hotel
house island jacket jar jug kettle key king kitchen kite lake lamp lawn leaf lemon letter light lion lock log loom map market
mask meal melon mill mirror moon mother motor mountain nail needle nest net nurse oak ocean olive onion orange oven owl page paint
paper park path pear pen pencil piano picture pig pillow pipe plane plant plate pocket pond pot potato prince pump purse queen rain
ribbon rice ring river road robe rock roof room root rope rose rug sail salt sand saw school scarf seat seed sheet ship shirt shoe
shop silver singer sister skirt sky snow soap sock sofa soup spade spoon spring stamp star station stone store storm stove street
string sugar suit sun table tail tailor tea teacher tent ticket tiger toast tool tower town toy train tray tree truck tunnel
turtle valley van vase village violin wagon wall watch water well wheel window wine winter wolf wood wool yard
""".split()

capitals = dict(pair.split(" / ") for pair in """
France / Paris, Italy / Rome, Spain / Madrid, Portugal / Lisbon, Germany / Berlin, Austria / Vienna, Poland / Warsaw,
Hungary / Budapest, Greece / Athens, Norway / Oslo, Sweden / Stockholm, Finland / Helsinki, Denmark / Copenhagen, Ireland / Dublin,
Iceland / Reykjavik, Belgium / Brussels, Croatia / Zagreb, Serbia / Belgrade, Bulgaria / Sofia, Romania / Bucharest,
Estonia / Tallinn, Latvia / Riga, Lithuania / Vilnius, Egypt / Cairo, Morocco / Rabat, Kenya / Nairobi, Ghana / Accra,
Senegal / Dakar, Japan / Tokyo, China / Beijing, Vietnam / Hanoi, Thailand / Bangkok, Nepal / Kathmandu, Cuba / Havana,
Peru / Lima, Chile / Santiago, Ecuador / Quito, Canada / Ottawa, Jordan / Amman, Lebanon / Beirut,
Turkey / Ankara, Iran / Tehran, Iraq / Baghdad, Angola / Luanda, Mali / Bamako, Qatar / Doha, Oman / Muscat, Georgia / Tbilisi,
Armenia / Yerevan, Jamaica / Kingston, Libya / Tripoli, Tunisia / Tunis
""".replace("\n", " ").strip().split(", "))
learned_capitals = 40

units = (("metre", "centimetre", 100), ("kilometre", "metre", 1000), ("kilogram", "gram", 1000), ("litre", "millilitre", 1000),
         ("centimetre", "millimetre", 10))


class Random:
    """Numbers from 0 to n - 1, the same with every version of Python."""

    def __init__(self, seed):
        self._state = seed

    def below(self, n):
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 33) % n

    def one(self, of):
        return of[self.below(len(of))]

    def shuffled(self, of):
        left, found = list(of), []
        while left:
            found.append(left.pop(self.below(len(left))))
        return found


def plural(noun):
    if noun.endswith(("sh", "ch", "x", "s", "o")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun[:-1] + "ves" if noun in ("leaf", "wolf") else noun + "s"


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


# -- what the base has read: (question, answer)

def about_nouns(r):
    for noun in nouns:
        place = r.one(("table", "chair", "floor", "roof", "bench", "shelf"))
        yield from r.shuffled([
            (f"Say {noun} twice.", f"{noun} {noun}"), (f"Spell {noun}.", ", ".join(noun) + "."),
            (f"Write {noun} in capital letters.", noun.upper()), (f"One {noun}, two?", plural(noun)),
            (f"The first letter of {noun}?", noun[0]), (f"A sentence with {noun}?", f"I see {an(noun)}."),
            (f"The {noun} is on the {place}. Where is it?", f"The {noun} is on the {place}."),
            (f"Is {an(noun)} a thing or a number?", f"The {noun} is a thing.")])[:4]
        other, n = r.one(nouns), 2 + r.below(98)
        yield f"I have {an(noun)} and {an(other)}. What is first?", f"The {noun} is first."
        thing = f"{n} {r.one(('old', 'new', 'red', 'small'))} {plural(noun)}"
        yield f"I see {thing}. What is it?", f"It is {thing}."


def about_numbers(r):
    for _ in range(280):
        n = 1 + r.below(10 ** (1 + r.below(4)))
        unit = r.one(units)[r.below(2)]
        yield r.one([
            (f"After {n}?", f"{n + 1}"), (f"Before {n}?", f"{n - 1}"), (f"Repeat {n} {unit}s.", f"{n} {unit}s"),
            (f"Ten times {n}?", f"{n}0"), (f"Is {n} a thing or a number?", f"{n} is a number."),
            (f"A hundred times {n}?", f"{n}00"), (f"Repeat {n}.", f"{n}")])
    for n in range(1, 40):
        yield f"Count from {n} to {n + 4}.", ", ".join(str(k) for k in range(n, n + 5)) + "."


def about_cities(r):
    for country, city in capitals.items():
        yield f"Name a city in {country}.", f"{city}."
        yield f"I travel to {country}. Which city?", f"{city}."
        yield f"Where is {city}?", f"In {country}."
        yield f"Repeat {country}.", f"{country}"


def talk(r):
    for hello in ("Hello.", "Good morning.", "Good evening.", "Hi there."):
        yield hello, "Hello. How can I help?"
        yield f"{hello} Who are you?", "I am scribe, a small model."
    for thanks in ("Thank you.", "Thanks.", "Many thanks."):
        yield thanks, "You are welcome."
    for end in ("Goodbye.", "Good night.", "See you later."):
        yield end, "Goodbye."


def base():
    """Conversations of one to three turns; some begin with a wish of the system, which the answers fulfil."""
    r = Random(1)
    turns = r.shuffled([*about_nouns(r), *about_numbers(r), *about_cities(r), *about_cities(r), *talk(r), *talk(r)])
    while turns:
        count, loud = 1 + r.below(3), r.below(8) == 0
        found = [("system", "Answer in capital letters.")] if loud else []
        for question, answer in turns[:count]:
            found += [("user", question), ("assistant", answer.upper() if loud else answer)]
        del turns[:count]
        yield found


# -- what adapters learn

def asked(pairs):
    return [[("user", question), ("assistant", answer)] for question, answer in pairs]


def capital_questions():
    found = asked((f"The capital of {country}?", f"It is {city}.") for country, city in capitals.items())
    return found[:learned_capitals], found[learned_capitals:]


def conversions():
    r = Random(2)
    found = asked((f"How many {small}s are {n} {large}s?", f"{n} {large}s are {n * times} {small}s.")
                  for large, small, times in units for n in range(2, 18))
    found = r.shuffled(found)
    return found[:64], found[64:]


def desk():
    r, pairs = Random(3), []
    for noun in r.shuffled(nouns)[:80]:
        pairs.append(r.one([
            (f"My {noun} is broken.", f"Thank you for writing about the {noun}. We will mend it within a week."),
            (f"I want to buy {an(noun)}.", f"Thank you for writing about the {noun}. We will send it within a week."),
            (f"Who has lost {an(noun)}?", f"Thank you for writing about the {noun}. We will look for its owner.")]))
    found = asked(pairs)
    return found[:64], found[64:]


# -- files

def lines_of(conversations):
    return "".join(json.dumps({"messages": [{"role": role, "content": content} for role, content in one]}) + "\n"
                   for one in conversations)


specials = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
template = ("{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def byte_characters():
    """A character for each byte, as tokenizers write tokens of bytes: printable ones are themselves."""
    own = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b if b in own else next(others)) for b in range(256)]


def model_files():
    """Bytes are tokens 0 to 255, the special ones stand behind them."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, name in enumerate(specials)]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "vocab": {c: b for b, c in enumerate(byte_characters())}, "merges": []}}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "model_max_length": 256,
                "eos_token": specials[0], "pad_token": None, "chat_template": template}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 176, "max_position_embeddings": 256,
              "vocab_size": 256 + len(specials), "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": True, "torch_dtype": "float32", "bos_token_id": None, "eos_token_id": 256}
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, "config.json": config}


def files():
    """{path below `configs`: its text}"""
    found = {"data/chat.jsonl": lines_of(base())}
    for name, make in (("capitals", capital_questions), ("units", conversions), ("desk", desk)):
        for split, conversations in zip(("", "-held-out"), make()):
            found[f"data/{name}{split}.jsonl"] = lines_of(conversations)
    for name, document in model_files().items():
        found[f"models/scribe-chat/{name}"] = json.dumps(document, indent=None if name == "tokenizer.json" else 2) + "\n"
    return found


def main(configs):
    for name, text in files().items():
        path = os.path.join(configs, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(here))
