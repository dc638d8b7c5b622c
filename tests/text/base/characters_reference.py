#!/usr/bin/env python3
"""Python's view of characters: normal form C, cases, classes, and how floats are written.

usage: characters_reference.py OUT
Writes one JSON object to OUT. Exit status 77: this Python knows characters of a later Unicode than the tests compare.
"""
import json
import random
import re
import sys
import unicodedata

# As utf8proc of Debian 12; characters that only one side knows differ.
if tuple(map(int, unicodedata.unidata_version.split("."))) > (15, 0, 0):
    print(f"this Python has Unicode {unicodedata.unidata_version}, the tests compare 15.0", file=sys.stderr)
    sys.exit(77)

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Behind these are ideographs, tags and private characters, without cases and numbers.
KNOWN = [c for c in CHARACTERS[:0x1F800] if unicodedata.category(c) not in ("Cn", "Co")]
# Of many classes: overlays, below, above, left, right, of Hebrew, Arabic, Indic, Kana, Greek.
MARKS = [chr(c) for c in (0x0301, 0x0300, 0x0323, 0x0327, 0x0338, 0x0345, 0x0315, 0x031B, 0x05BC, 0x0651, 0x093C, 0x3099, 0x0308)]


def nfc(text):
    return unicodedata.normalize("NFC", text)


def forms():
    """Every character that NFC changes, and every one that is composed, alone and between marks; then mixtures."""
    changed = [c for c in CHARACTERS if nfc(c) != c]
    made = [c for c in CHARACTERS[:0xAC00] if unicodedata.normalize("NFD", c) != c and nfc(c) == c]
    jamo = [chr(c) for c in (0x1100, 0x1112, 0x1161, 0x1175, 0x11A7, 0x11A8, 0x11C2, 0xAC00, 0xAC01, 0xD55C, 0xD7A3)]
    texts = list(changed)
    for i, c in enumerate(changed):
        texts += [c + MARKS[i % len(MARKS)], MARKS[(i + 3) % len(MARKS)] + c, "a" + c + MARKS[(i + 5) % len(MARKS)] + MARKS[(i + 1) % len(MARKS)]]
    for i, c in enumerate(made):
        texts += [c + m for m in MARKS[i % 3::3]] + [unicodedata.normalize("NFD", c), c + c]
    texts += [a + b + c for a in jamo for b in jamo for c in jamo[::2]]
    rng = random.Random(1)
    pool = changed + made[::4] + MARKS * 60 + jamo * 40 + list("aeiouAK e") * 40
    for _ in range(4000):
        texts.append("".join(rng.choice(pool) for _ in range(rng.randint(2, 12))))
    return {"changed": len(changed), "texts": [[t, nfc(t)] for t in texts]}


def ranges(holds):
    out = []
    for c in KNOWN:
        if holds(c):
            if out and out[-1][1] == ord(c) - 1:
                out[-1][1] = ord(c)
            else:
                out.append([ord(c), ord(c)])
    return out


def classes():
    word = re.compile(r"\w")
    return {
        "known": ranges(lambda c: True),
        "space": ranges(str.isspace),
        "digit": ranges(str.isdigit),
        "lower": ranges(str.islower),
        "upper": ranges(str.isupper),
        "title": ranges(lambda c: c.istitle() and not c.isupper()),
        "word": ranges(word.match),
        # A sigma ends a word if what is before it, with these left out, is a letter with a case.
        "ends before sigma": ranges(lambda c: (c + "\u03a3").lower().endswith("\u03c2")),
        "passed before sigma": ranges(lambda c: ("A" + c + "\u03a3").lower().endswith("\u03c2")),
        "passed behind sigma": ranges(lambda c: ("A\u03a3" + c).lower()[1] == "\u03c2"),
    }


def cases():
    """Characters that have another case, with upper(), lower(), title() and capitalize()."""
    return [[c, c.upper(), c.lower(), c.title(), c.capitalize()] for c in KNOWN
            if not c == c.upper() == c.lower() == c.title() == c.capitalize()]


def words():
    """Texts of letters with and without cases, sigmas and signs, with the methods of str."""
    rng = random.Random(2)
    pool = list("ab1Z ' .-_(\u03a3\u03a3\u03c3\u0391\u00df\u01c6\u01c5\ufb01\u0149\u6f22\u2019\u0301\u02b0\u2160\u24d0\t\u00a0\u00aa5\u00b2")
    out = []
    for _ in range(3000):
        t = "".join(rng.choice(pool) for _ in range(rng.randint(1, 9)))
        out.append([t, t.upper(), t.lower(), t.title(), t.capitalize(), t.isupper(), t.islower()])
    return out


def floats():
    rng = random.Random(3)
    all = [0.0, -0.0, 0.1, 0.01, 0.05, 0.001, -0.02, 1e-4, 1e-5, 1e15, 1e16, 123456789.0, 5e-324, 1.7976931348623157e308]
    for digits in (1, 2, 3, 5, 10, 15, 17):
        for exponent in range(-7, 18):
            for _ in range(12):
                all.append(float(f"{rng.choice(['', '-'])}{rng.randint(1, 10 ** digits - 1)}e{exponent - digits}"))
    return [[x.hex(), repr(x)] for x in all]


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"nfc": forms(), "classes": classes(), "cases": cases(), "words": words(), "floats": floats()}, out)


main()
