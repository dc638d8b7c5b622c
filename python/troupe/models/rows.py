"""Rows of tokens that `troupe check DATA.jsonl --model FOLDER --rows FILE` has made, as samples of a training."""

import torch

from troupe.errors import ProgramError
from troupe.safetensors import SafeTensors

_format = "troupe-rows-1"
_tensors = {"tokens": torch.int32, "trained": torch.uint8, "examples": torch.int64, "rows": torch.int64}
_ignored = -100  # as torch.nn.functional.cross_entropy has it


class Rows:
    """rows[i]: (tokens, positions, targets) of a row. positions begin at 0 with each example; targets[k] is the token behind k
    if that is to be learned, else -100. Raises ProgramError for a file of another kind, or for tokens beyond the vocabulary."""

    def __init__(self, file, vocabulary):
        opened = SafeTensors(file)
        if opened.metadata.get("format") != _format or any(
                name not in opened.names or opened.dtype(name) != kind for name, kind in _tensors.items()):
            raise ProgramError(f"{file}: found no rows of examples, expected a file of `troupe check --rows`")
        self._tokens, self._trained, self._examples, self._rows = (opened.tensor(name) for name in _tensors)
        sound = (len(self._tokens) == len(self._trained) and _rises(self._examples, len(self._tokens))
                 and _rises(self._rows, len(self._examples) - 1))
        if not sound:
            raise ProgramError(f"{file}: found rows that do not fit together: the file is damaged")
        if int(self._tokens.min()) < 0 or int(self._tokens.max()) >= vocabulary:
            raise ProgramError(f"{file}: found token {int(self._tokens.max())}, expected less than the model's vocabulary of "
                               f"{vocabulary}")

    def __len__(self):
        return len(self._rows) - 1

    def __getitem__(self, index):
        edges = self._examples[self._rows[index]:self._rows[index + 1] + 1]
        begin, end = int(edges[0]), int(edges[-1])
        tokens = self._tokens[begin:end].long()
        positions = torch.cat([torch.arange(n, dtype=torch.int32) for n in edges.diff().tolist()])
        wanted = (self._trained[begin + 1:end] != 0) & (positions[1:] != 0)
        targets = torch.full_like(tokens, _ignored)
        targets[:-1][wanted] = tokens[1:][wanted]
        return tokens, positions, targets

    def trained(self, index):
        """How many tokens of a row are to be learned."""
        return int((self[index][2] != _ignored).sum())


def collate(rows):
    """((tokens, positions), targets) of a micro-batch. Shorter rows are filled up with a segment that nothing learns."""
    longest = max(len(tokens) for tokens, _, _ in rows)
    filled = [(_filled(t, torch.zeros(longest - len(t), dtype=t.dtype)),
               _filled(p, torch.arange(longest - len(p), dtype=p.dtype)),
               _filled(y, torch.full((longest - len(y),), _ignored))) for t, p, y in rows]
    tokens, positions, targets = (torch.stack(x) for x in zip(*filled))
    return (tokens, positions), targets


def loss(logits, targets):
    """The sum over all targets, in 32 bits; weights() of the rows make a mean of it."""
    kept = targets != _ignored
    return torch.nn.functional.cross_entropy(logits[kept].float(), targets[kept], reduction="sum")


def _filled(values, more):
    return torch.cat((values, more))


def _rises(edges, last):
    return len(edges) >= 2 and int(edges[0]) == 0 and int(edges[-1]) == last and bool((edges.diff() > 0).all())
