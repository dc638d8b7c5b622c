"""Runs the Python client of docs/wire.md far enough to compare its bytes with the page's examples.

Another implementation of MessagePack then agrees with ours. Ends with 77 (skipped) without msgpack."""

import re
import sys

try:
    import msgpack
except ImportError:
    print("skipped: python3-msgpack is not installed")
    sys.exit(77)

page = open(sys.argv[1]).read()
code = re.search(r"```python\n(.*?)```", page, re.S).group(1)
blocks = re.findall(r"```\n(.*?)```", page, re.S)
examples = [bytes.fromhex(e) for block in blocks for e in block.split("\n\n")
            if re.fullmatch(r"[0-9a-f\s]+", e)]
client = {"__name__": "client"}
exec(compile(code, sys.argv[1], "exec"), client)

FIRST_CLIENT = 2**31 + 1
assert client["query_jobs"](FIRST_CLIENT, 4242) in examples, "query_jobs"
assert client["pack"](1, 2**31, 0, "my-tool", 99) in examples, "hello"
assert client["pack"](4, FIRST_CLIENT, 0, 256) in examples, "credit"
assert client["unpack"](client["query_jobs"](FIRST_CLIENT, 4242)) == (14, FIRST_CLIENT, 0, [4242, 0])

# Every example, read and packed again by the other library, gives the same bytes.
assert len(examples) == 14, len(examples)
for example in examples:
    assert msgpack.packb(msgpack.unpackb(example)) == example, example.hex(" ")
print("the example client and", len(examples), "examples agree")
