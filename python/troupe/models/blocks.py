"""A model folder's layers: an embedding, blocks, a head. Each takes and gives (values, positions); the head gives logits.

values: first token numbers [rows, tokens], then hidden values [rows, tokens, hidden]; positions: of each token in its segment
of the row, which begins at 0. Parameters are made of the folder's tensors and have their names (name_of)."""

import torch
import torch.nn.functional as F
from torch import nn

from troupe.models import rope
from troupe.models.attention import attend


def layers(model, weights):
    """All layers of a model, in order. weights: parameter(name, shape) and adapter(name, in, out), as troupe.models.folder.Weights
    has them."""
    block = Gpt2Block if model.family == "gpt2" else LlamaBlock
    first = Embedding(model, weights)
    return [first, *(block(model, i, weights) for i in range(model.layers)), Head(model, weights, first)]


def name_of(model, layer, name):
    """The folder's name of a layer's parameter."""
    gpt2 = model.family == "gpt2"
    if 0 < layer <= model.layers:
        return (f"h.{layer - 1}." if gpt2 else f"model.layers.{layer - 1}.") + name
    if name == "lm_head.weight":
        return _vocabulary(model) if model.tied_head else name
    return name if gpt2 else "model." + name


class Embedding(nn.Module):
    """Rows of the vocabulary and, in GPT-2, of learned positions."""

    def __init__(self, model, weights):
        super().__init__()
        rows = Rows(weights, _vocabulary(model), model.vocabulary, model.hidden)
        if model.family == "gpt2":
            self.wte, self.wpe = rows, Rows(weights, "wpe.weight", model.positions, model.hidden)
        else:
            self.embed_tokens, self.wpe = rows, None

    @property
    def vocabulary(self):
        return self.embed_tokens if self.wpe is None else self.wte

    def forward(self, value):
        tokens, positions = value
        hidden = F.embedding(tokens, self.vocabulary.weight)
        return (hidden if self.wpe is None else hidden + F.embedding(positions, self.wpe.weight)), positions


class Gpt2Block(nn.Module):
    def __init__(self, model, index, weights):
        super().__init__()
        name, hidden, inner = f"h.{index}.", model.hidden, model.intermediate
        self.heads = model.heads
        self.ln_1 = LayerNorm(weights, name + "ln_1", model)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(weights, name + "attn.c_attn", hidden, 3 * hidden),
                                   "c_proj": Conv1D(weights, name + "attn.c_proj", hidden, hidden)})
        self.ln_2 = LayerNorm(weights, name + "ln_2", model)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(weights, name + "mlp.c_fc", hidden, inner),
                                  "c_proj": Conv1D(weights, name + "mlp.c_proj", inner, hidden)})

    def forward(self, value):
        x, positions = value
        q, k, v = (_heads(t, self.heads) for t in self.attn["c_attn"](self.ln_1(x)).chunk(3, dim=-1))
        x = x + self.attn["c_proj"](_joined(attend(q, k, v, positions)))
        wide = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](wide), positions


class LlamaBlock(nn.Module):
    """Also of Mistral, Qwen2 and Qwen3."""

    def __init__(self, model, index, weights):
        super().__init__()
        name, hidden, inner = f"model.layers.{index}.", model.hidden, model.intermediate
        self.model = model
        self.input_layernorm = RmsNorm(weights, name + "input_layernorm.weight", hidden, model)
        self.self_attn = nn.ModuleDict({
            part: Linear(weights, f"{name}self_attn.{part}", wide, out, bias) for part, wide, out, bias in (
                ("q_proj", hidden, model.query_width, model.qkv_bias), ("k_proj", hidden, model.kv_width, model.qkv_bias),
                ("v_proj", hidden, model.kv_width, model.qkv_bias), ("o_proj", model.query_width, hidden, model.output_bias))})
        if model.head_norms:
            for part in ("q_norm", "k_norm"):
                self.self_attn[part] = RmsNorm(weights, f"{name}self_attn.{part}.weight", model.head_width, model)
        self.post_attention_layernorm = RmsNorm(weights, name + "post_attention_layernorm.weight", hidden, model)
        self.mlp = nn.ModuleDict({
            part: Linear(weights, f"{name}mlp.{part}", wide, out, model.mlp_bias) for part, wide, out in (
                ("gate_proj", hidden, inner), ("up_proj", hidden, inner), ("down_proj", inner, hidden))})

    def forward(self, value):
        x, positions = value
        x = x + self.attention(self.input_layernorm(x), positions)
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y)), positions

    def attention(self, y, positions):
        parts, model = self.self_attn, self.model
        q, k, v = (_heads(parts[part](y), count) for part, count in (
            ("q_proj", model.heads), ("k_proj", model.kv_heads), ("v_proj", model.kv_heads)))
        if model.head_norms:
            q, k = parts["q_norm"](q), parts["k_norm"](k)
        cosines, sines = (t[:, None].to(y.dtype) for t in rope.turns(model, positions))
        q, k = rope.rotate(q, cosines, sines), rope.rotate(k, cosines, sines)
        return parts["o_proj"](_joined(attend(q, k, v, positions, model.window)))


class Head(nn.Module):
    """The last norm and the product with the vocabulary's rows, which are the embedding's, if the head is tied and it is here."""

    def __init__(self, model, weights, embedding=None):
        super().__init__()
        if model.family == "gpt2":
            self.ln_f = LayerNorm(weights, "ln_f", model)
        else:
            self.norm = RmsNorm(weights, "model.norm.weight", model.hidden, model)
        if model.tied_head and embedding is not None:
            self.lm_head = embedding.vocabulary
        else:
            name = _vocabulary(model) if model.tied_head else "lm_head.weight"
            self.lm_head = Rows(weights, name, model.vocabulary, model.hidden)

    def forward(self, value):
        return F.linear((self.norm if hasattr(self, "norm") else self.ln_f)(value[0]), self.lm_head.weight)


class Rows(nn.Module):
    """weight [rows, hidden]"""

    def __init__(self, weights, name, rows, hidden):
        super().__init__()
        self.weight = _parameter(weights, name, rows, hidden)


class Linear(nn.Module):
    """weight [out, in]; with an adapter its product is added."""

    def __init__(self, weights, name, wide, out, bias):
        super().__init__()
        self.weight = _parameter(weights, name + ".weight", out, wide)
        self.bias = _parameter(weights, name + ".bias", out) if bias else None
        _add_adapter(self, weights, name, wide, out)

    def forward(self, x):
        return _adapted(self, x, F.linear(x, self.weight, self.bias))


class Conv1D(nn.Module):
    """GPT-2's product: weight [in, out]; with an adapter its product is added."""

    def __init__(self, weights, name, wide, out):
        super().__init__()
        self.weight = _parameter(weights, name + ".weight", wide, out)
        self.bias = _parameter(weights, name + ".bias", out)
        _add_adapter(self, weights, name, wide, out)

    def forward(self, x):
        return _adapted(self, x, x @ self.weight + self.bias)


class LayerNorm(nn.Module):
    def __init__(self, weights, name, model):
        super().__init__()
        self.epsilon = model.norm_epsilon
        self.weight = _parameter(weights, name + ".weight", model.hidden)
        self.bias = _parameter(weights, name + ".bias", model.hidden)

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RmsNorm(nn.Module):
    """The mean of squares is taken in 32 bits."""

    def __init__(self, weights, name, width, model):
        super().__init__()
        self.epsilon = model.norm_epsilon
        self.weight = _parameter(weights, name, width)

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).to(x.dtype) * self.weight


def _vocabulary(model):
    return "wte.weight" if model.family == "gpt2" else "model.embed_tokens.weight"


def _parameter(weights, name, *shape):
    return weights.parameter(name, shape)


def _add_adapter(module, weights, name, wide, out):
    adapter = weights.adapter(name, wide, out)
    if adapter is not None:
        module.lora_A, module.lora_B, module.lora_scale = adapter
    else:
        module.lora_scale = None


# The order of the products is that of the inference engine: through the few numbers in the middle.
def _adapted(module, x, y):
    if module.lora_scale is None:
        return y
    return y + module.lora_scale * F.linear(F.linear(x, module.lora_A.weight), module.lora_B.weight)


def _heads(x, count):
    return x.view(*x.shape[:-1], count, -1).transpose(1, 2)


def _joined(x):
    return x.transpose(1, 2).flatten(2)
