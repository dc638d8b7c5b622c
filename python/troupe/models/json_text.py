"""JSON as the product's C++ reads and shows it."""

import json
import math


def parsed(text):
    """(value, 0) of a file's bytes; (None, the line) if they are no JSON. The words NaN, Infinity and -Infinity, and numbers beyond the range of a
    double, are texts, so that a reader of a number refuses them."""
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=str, parse_float=_number, parse_int=_whole), 0
    except json.JSONDecodeError as error:
        return None, error.lineno
    except UnicodeDecodeError as error:
        return None, 1 + text.count(b"\n", 0, error.start)
    except RecursionError:
        return None, 0


def equal(found, expected):
    """Numbers by their values; true is no number."""
    return isinstance(found, bool) == isinstance(expected, bool) and found == expected


def dumped(found):
    """As an error shows it: without what has no shape, cut after 60 bytes."""
    return shown(json.dumps(found, ensure_ascii=False, separators=(",", ":"), sort_keys=True))


def shown(text):
    out, length = "", 0
    for c in text:
        length += len(c.encode("utf-8", "surrogatepass"))
        if length > 60:
            return out + "..."
        out += c if c.isprintable() else _escaped(ord(c))
    return out


def _escaped(point):
    return f"\\x{point:02x}" if point <= 0xff else f"\\u{point:04x}" if point <= 0xffff else f"\\U{point:08x}"


def _number(text):
    found = float(text)
    return text if math.isinf(found) else found


def _whole(text):
    found = int(text)
    return found if -1 << 63 <= found < 1 << 64 else _number(text)
