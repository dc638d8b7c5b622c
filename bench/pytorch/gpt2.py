"""GPT-2 and its AdamW in PyTorch, as its users write them: what both benchmarks of training compare with.

Needs PyTorch 1.13 or newer. Attention is fused where it is asked for and FUSED_ATTENTION; else all its
probabilities are kept.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")
# The backends of attention, by name: PyTorch's number, and the switch in torch.backends.cuda (cuDNN's came with 2.5).
BACKENDS = {
    "math": (0, "enable_math_sdp"),
    "flash": (1, "enable_flash_sdp"),
    "efficient": (2, "enable_mem_efficient_sdp"),
    "cudnn": (3, "enable_cudnn_sdp"),
}


def allow_only(backend):
    """Fused attention by this backend alone, in the whole process. False: this PyTorch has no such backend."""
    switches = torch.backends.cuda
    if not FUSED_ATTENTION or not hasattr(switches, BACKENDS[backend][1]):
        return False
    for name, (_, switch) in BACKENDS.items():
        if hasattr(switches, switch):
            getattr(switches, switch)(name == backend)
    return True


def chosen_backend(heads, qkv):
    """The backend that PyTorch takes for attention of these queries, keys and values; None: it does not say."""
    if not hasattr(torch, "_fused_sdp_choice"):
        return None
    number = torch._fused_sdp_choice(*split_heads(qkv, heads), is_causal=True)
    return next((name for name, (n, _) in BACKENDS.items() if n == number), "none")


def split_heads(qkv, heads):
    """(rows, sequence, 3 x hidden) as queries, keys and values of (rows, heads, sequence, hidden / heads)."""
    rows, sequence, width = qkv.shape
    return [t.view(rows, sequence, heads, -1).transpose(1, 2) for t in qkv.split(width // 3, dim=2)]


class Attention(nn.Module):
    def __init__(self, hidden, heads, sequence, fused):
        super().__init__()
        self.heads = heads
        self.fused = fused
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)
        if not fused:
            mask = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
            self.register_buffer("mask", mask)

    def forward(self, x):
        rows, sequence, hidden = x.shape
        q, k, v = split_heads(self.c_attn(x), self.heads)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * (hidden // self.heads) ** -0.5
            y = F.softmax(scores.masked_fill(self.mask, float("-inf")), dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(rows, sequence, hidden))


class Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.c_fc = nn.Linear(hidden, 4 * hidden)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, hidden, heads, sequence, fused):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden)
        self.attn = Attention(hidden, heads, sequence, fused)
        self.ln_2 = nn.LayerNorm(hidden)
        self.mlp = Mlp(hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Tied head, no dropout. The vocabulary may be padded; targets never name what was added."""

    def __init__(self, layers, hidden, heads, sequence, vocabulary, fused=False):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(sequence, hidden)
        self.h = nn.ModuleList(Block(hidden, heads, sequence, fused) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(places)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def adamw(model, rate, **form):
    """`form`: how it is computed, as torch.optim.AdamW has it."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=rate, betas=(0.9, 0.95), eps=1e-8, **form)
