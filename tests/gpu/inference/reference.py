"""What PyTorch computes of a model folder: the reference that the engine's logits are compared with.

usage: reference.py FOLDER LOGITS TOKENS [FOLDER LOGITS TOKENS ...]
FOLDER has config.json and model.safetensors; LOGITS is a safetensors file with `logits` [positions,
vocabulary]; TOKENS are the numbers of the tokens at these positions and the one after them, with
commas. Prints a line of JSON for each, with the largest difference, the largest logit, and at how many
positions the most probable token differs although the two best are more than 1e-3 apart. Exit status
77: there is no PyTorch.
"""
import json
import math
import struct
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)

torch.set_num_threads(1)


def read_safetensors(file):
    data = open(file, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + n for n in about["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = values.reshape(about["shape"])
    return tensors


def attend(q, k, v, window=None):
    """Heads first: [heads, positions, width]; every head has keys of its own. In a window of n, a
    position attends to itself and the n - 1 before it."""
    n = q.shape[1]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    hidden = (distance < 0) | (distance >= (window or n))
    scores = scores.masked_fill(hidden, float("-inf"))
    return (F.softmax(scores, dim=-1) @ v).transpose(0, 1).reshape(n, -1)


def heads(x, count):
    return x.view(x.shape[0], count, -1).transpose(0, 1)


def gpt2(c, w, tokens):
    hidden = c["n_embd"]
    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]

    def norm(name, x):
        return F.layer_norm(x, (hidden,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def product(name, x):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    for i in range(c["n_layer"]):
        layer = "h.%d." % i
        q, k, v = product(layer + "attn.c_attn", norm(layer + "ln_1", x)).split(hidden, dim=1)
        y = attend(*(heads(t, c["n_head"]) for t in (q, k, v)))
        x = x + product(layer + "attn.c_proj", y)
        y = F.gelu(product(layer + "mlp.c_fc", norm(layer + "ln_2", x)), approximate="tanh")
        x = x + product(layer + "mlp.c_proj", y)
    head = w["wte.weight"] if c.get("tie_word_embeddings", True) else w["lm_head.weight"]
    return norm("ln_f", x) @ head.T


def frequencies(c, width):
    f = 1.0 / (c.get("rope_theta", 10000.0) ** (torch.arange(0, width, 2).float() / width))
    s = c.get("rope_scaling")
    if not s:
        return f
    kind = s.get("rope_type", s.get("type"))
    if kind == "linear":
        return f / s["factor"]
    if kind == "dynamic":  # no context here is longer than max_position_embeddings
        return f
    if kind == "yarn":
        return yarn_frequencies(s, f, width, c.get("rope_theta", 10000.0))
    old = s["original_max_position_embeddings"]
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    length = 2 * math.pi / f
    smooth = (old / length - low) / (high - low)
    mixed = (1 - smooth) * f / s["factor"] + smooth * f
    f = torch.where(length > old / low, f / s["factor"], torch.where(length < old / high, f, mixed))
    return f


def yarn_frequencies(s, f, width, theta):
    """YaRN (arXiv 2309.00071), section 3.2: a ramp over the dimensions, between those that turn
    beta_fast and beta_slow times within the original context."""

    def dimension(turns):
        old = s["original_max_position_embeddings"]
        return width / 2 * math.log(old / (2 * math.pi * turns)) / math.log(theta)

    low, high = dimension(s.get("beta_fast", 32)), dimension(s.get("beta_slow", 1))
    if s.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = ((torch.arange(width // 2).float() - low) / (high - low)).clamp(0, 1)
    return f / s["factor"] * ramp + f * (1 - ramp)


def yarn_scale(c):
    """The same, section 3.4; with two weights, as DeepSeek's models have them."""
    s = c.get("rope_scaling") or {}
    if s.get("rope_type", s.get("type")) != "yarn":
        return 1.0
    one, two = (0.1 * s.get(k, d) * math.log(s["factor"]) + 1 for k, d in (("mscale", 1), ("mscale_all_dim", 0)))
    return one / two


def rotate(x, angles, scale):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    both = torch.cat((angles, angles), dim=-1)
    return scale * (x * both.cos() + turned * both.sin())


def llama(c, w, tokens):
    n_heads = c["num_attention_heads"]
    n_kv = c.get("num_key_value_heads", n_heads)
    width = c.get("head_dim", c["hidden_size"] // n_heads)
    angles = torch.outer(torch.arange(len(tokens)).float(), frequencies(c, width))
    scale = yarn_scale(c)
    x = w["model.embed_tokens.weight"][tokens]

    def norm(name, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[name]

    def product(name, x):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def placed(name, y, count):
        x = heads(product(name + "_proj", y), count)
        if c["model_type"] == "qwen3":
            x = norm(name + "_norm.weight", x)
        return rotate(x, angles, scale)

    window = c.get("sliding_window", 4096) if c["model_type"] == "mistral" else None
    for i in range(c["num_hidden_layers"]):
        layer = "model.layers.%d." % i
        y = norm(layer + "input_layernorm.weight", x)
        q = placed(layer + "self_attn.q", y, n_heads)
        k = placed(layer + "self_attn.k", y, n_kv)
        v = heads(product(layer + "self_attn.v_proj", y), n_kv)
        k, v = (t.repeat_interleave(n_heads // n_kv, dim=0) for t in (k, v))
        x = x + product(layer + "self_attn.o_proj", attend(q, k, v, window))
        y = norm(layer + "post_attention_layernorm.weight", x)
        y = F.silu(product(layer + "mlp.gate_proj", y)) * product(layer + "mlp.up_proj", y)
        x = x + product(layer + "mlp.down_proj", y)
    tied = c.get("tie_word_embeddings", False)
    head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
    return norm("model.norm.weight", x) @ head.T


def compare(folder, file, words):
    config = json.load(open(folder + "/config.json"))
    weights = {
        name[len("transformer.") :] if name.startswith("transformer.") else name: t
        for name, t in read_safetensors(folder + "/model.safetensors").items()
    }
    tokens = [int(t) for t in words.split(",")]
    with torch.no_grad():
        model = gpt2 if config["model_type"] == "gpt2" else llama
        expected = model(config, weights, torch.tensor(tokens[:-1]))
    found = read_safetensors(file)["logits"]
    assert found.shape == expected.shape, (found.shape, expected.shape)
    best = expected.topk(2).values
    clear = best[:, 0] - best[:, 1] > 1e-3
    wrong = (found.argmax(1) != expected.argmax(1)) & clear
    return {
        "difference": (found - expected).abs().max().item(),
        "largest": expected.abs().max().item(),
        "positions": len(found),
        "clear": int(clear.sum()),
        "wrong": int(wrong.sum()),
    }


if __name__ == "__main__":
    for i in range(1, len(sys.argv), 3):
        print(json.dumps(compare(*sys.argv[i : i + 3])))
