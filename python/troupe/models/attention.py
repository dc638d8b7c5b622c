"""Attention of queries to the keys before them, in the segment of a row that they are in."""

import math

import torch


def attend(q, k, v, positions, window=0):
    """[rows, heads, tokens, width] of q; k and v may have fewer heads, each of which serves as many of q's. Position 0 begins a
    segment: a token attends to those of its own segment that are not behind it, and with a window of n to n of them, itself
    included. Products of a segment do not depend on what else its row has."""
    if not bool((positions[:, 1:] == 0).any()):
        return _attend(q, k, v, window)
    rows = []
    for row, begins in enumerate((positions == 0).unbind()):
        starts = begins.nonzero().flatten().tolist()
        parts = [slice(a, b) for a, b in zip(starts, [*starts[1:], positions.shape[1]])]
        rows.append(torch.cat([_attend(*(t[row:row + 1, :, part] for t in (q, k, v)), window) for part in parts], dim=2))
    return torch.cat(rows)


def _attend(q, k, v, window):
    rows, heads, tokens, width = q.shape
    groups = k.shape[1]
    q = q.reshape(rows, groups, heads // groups, tokens, width)
    scores = q @ k.unsqueeze(2).transpose(-2, -1) / math.sqrt(width)
    place = torch.arange(tokens, device=q.device)
    distance = place[:, None] - place[None, :]
    hidden = distance < 0 if window == 0 else (distance < 0) | (distance >= window)
    scores = scores.masked_fill(hidden, float("-inf"))
    found = torch.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype) @ v.unsqueeze(2)
    return found.reshape(rows, heads, tokens, width)
