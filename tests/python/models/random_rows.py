"""Files of rows as `troupe check --rows` makes them, with random tokens."""

import torch

from troupe import safetensors


def random_rows(count, longest=20):
    """[[{tokens, trained}, ...], ...]: a row's examples."""
    generator = torch.Generator().manual_seed(3)
    rows = []
    for r in range(count):
        rows.append([])
        for _ in range(1 + r % 3):
            length = int(torch.randint(4, longest, (1,), generator=generator))
            tokens = torch.randint(96, (length,), generator=generator).tolist()
            rows[-1].append({"tokens": tokens, "trained": [i > length // 2 or i == 1 for i in range(length)]})
    return rows


def write_rows(path, rows):
    flat = [x for row in rows for x in row]
    examples, begins = [0], [0]
    for x in flat:
        examples.append(examples[-1] + len(x["tokens"]))
    for row in rows:
        begins.append(begins[-1] + len(row))
    safetensors.write(path, {
        "tokens": torch.tensor([t for x in flat for t in x["tokens"]], dtype=torch.int32),
        "trained": torch.tensor([t for x in flat for t in x["trained"]], dtype=torch.uint8),
        "examples": torch.tensor(examples), "rows": torch.tensor(begins)}, {"format": "troupe-rows-1"})
    return path
