"""config.json of a model folder: the same files are read and refused as by the inference engine
(gpu/inference/inference_model.cpp), with the same sentences."""

import json
import math
import os
from dataclasses import dataclass, field

from troupe.errors import ProgramError
from troupe.models.json_text import dumped, equal, parsed, shown

_max_bytes = 16 << 20
# As messages/admission/limits.hpp has them.
_max_hidden, _max_layers, _max_heads, _max_intermediate = 1_000_000, 2000, 100_000, 10_000_000
_max_sequence = _max_vocabulary = 100_000_000

# Keys that change results at any value but this one (or null).
_of_one_value = {
    "is_causal": True, "is_encoder_decoder": False, "add_cross_attention": False, "partial_rotary_factor": 1.0, "rotary_pct": 1,
    "rope_interleaved": False, "use_mrope": False, "alibi": False, "attn_logit_softcapping": None,
    "final_logit_softcapping": None, "logit_scale": 1, "logits_scaling": 1, "embedding_multiplier": 1,
    "residual_multiplier": 1, "attention_multiplier": None, "scale_emb": 1, "clip_qkv": None, "qk_norm": False,
    "use_qk_norm": False, "qk_layernorm": False, "no_rope_layers": None, "attention_chunk_size": None}
_rope_common = ("rope_theta", "rope_type", "type", "finetuned", "original_max_position_embeddings")
_rope_keys = {
    "llama3": (*_rope_common, "factor", "low_freq_factor", "high_freq_factor"), "linear": (*_rope_common, "factor"),
    "dynamic": (*_rope_common, "factor"),
    "yarn": (*_rope_common, "factor", "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim", "attention_factor")}
_rope_neutral = ("factor", "partial_rotary_factor", "attention_factor")


@dataclass
class Rope:
    """How rotary positions reach beyond those that the model was first trained on. kind: none, linear, llama3 or yarn."""

    kind: str = "none"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_positions: float = 0.0
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    whole_bounds: bool = True
    attention_factor: float = 1.0


@dataclass
class Model:
    """A model without its weights. family: gpt2, or llama, which Mistral, Qwen2 and Qwen3 are, too. window: positions that each
    attends to, its own included; 0: all before it."""

    family: str = "gpt2"
    hidden: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_width: int = 0
    intermediate: int = 0
    positions: int = 0
    vocabulary: int = 0
    tied_head: bool = True
    norm_epsilon: float = 1e-5
    rope_theta: float = 10_000.0
    rope: Rope = field(default_factory=Rope)
    qkv_bias: bool = True
    output_bias: bool = True
    mlp_bias: bool = True
    head_norms: bool = False
    window: int = 0

    @property
    def query_width(self):
        return self.heads * self.head_width

    @property
    def kv_width(self):
        return self.kv_heads * self.head_width


def read_model(folder):
    """The Model of a folder. Raises ProgramError, naming file and key, for whatever would change results and is not computed."""
    path = os.path.join(folder, "config.json")
    try:
        with open(path, "rb") as file:
            text = file.read(_max_bytes + 1)
    except OSError as error:
        raise ProgramError(f"{path}: {error.strerror}, expected the config.json of a model folder") from None
    if len(text) > _max_bytes:
        raise ProgramError(f"{path}: has more than {_max_bytes} bytes")
    found, line = parsed(text)
    if not isinstance(found, dict):
        raise ProgramError(f"{path}: is not a JSON object" + (f", by its line {line}" if line else ""))
    return _model_of(_Keys(found, path))


class _Keys:
    """An object's keys. A null counts as missing."""

    def __init__(self, found, file):
        self.all, self.file = found, file

    def get(self, key):
        return self.all.get(key)

    def whole(self, key, otherwise, low, high, required=False):
        found = self.get(key)
        if found is None and not required:
            return otherwise
        if type(found) is int and low <= found <= high:
            return found
        self.fail(key, found, f"a whole number from {low} to {high}")

    def number(self, key, otherwise, low, high, required=False):
        found = self.get(key)
        if found is None and not required:
            return otherwise
        if type(found) in (int, float) and low <= found <= high:
            return float(found)
        self.fail(key, found, f"a number from {low:g} to {high:g}")

    def flag(self, key, otherwise):
        found = self.get(key)
        if found is not None and type(found) is not bool:
            self.fail(key, found, "true or false")
        return otherwise if found is None else found

    def word(self, key, otherwise):
        found = self.get(key)
        if found is not None and not isinstance(found, str):
            self.fail(key, found, "a name")
        return otherwise if found is None else found

    def must_be(self, key, only):
        found = self.get(key)
        if found is not None and not equal(found, only):
            self.fail(key, found, json.dumps(only))

    def fail(self, key, found, wanted):
        self.refuse(f"{key}: found {'nothing' if found is None else dumped(found)}, expected {wanted}")

    def refuse(self, text):
        raise ProgramError(f"{self.file}: {text}")


def _model_of(c):
    m = Model()
    kind = c.word("model_type", "")
    if kind == "gpt2":
        _read_gpt2(c, m)
    elif kind in ("llama", "mistral", "qwen2", "qwen3"):
        _read_llama(c, kind, m)
    else:
        c.fail("model_type", c.get("model_type"), "gpt2, llama, mistral, qwen2 or qwen3")
    m.vocabulary = c.whole("vocab_size", 0, 1, _max_vocabulary, True)
    for key, value in _of_one_value.items():
        c.must_be(key, value)
    for key in ("quantization_config", "quantization", "compression_config"):
        if c.get(key) is not None:
            c.refuse(f"{key}: the weights are quantized ({_quantization(c.get(key))}), expected 32- or 16-bit floats")
    _check_sizes(c, m)
    for key in ("bos_token_id", "eos_token_id"):
        _check_tokens(c, key)
    return m


def _read_gpt2(c, m):
    m.hidden = c.whole("n_embd", 0, 1, _max_hidden, True)
    m.layers = c.whole("n_layer", 0, 1, _max_layers, True)
    m.heads = m.kv_heads = c.whole("n_head", 0, 1, _max_heads, True)
    m.positions = c.whole("n_positions", 0, 1, _max_sequence, True)
    m.intermediate = c.whole("n_inner", 4 * m.hidden, 1, _max_intermediate)
    m.tied_head = c.flag("tie_word_embeddings", True)
    if c.word("activation_function", "gelu_new") not in ("gelu_new", "gelu_pytorch_tanh"):
        c.fail("activation_function", c.get("activation_function"), "gelu_new or gelu_pytorch_tanh")
    if c.number("layer_norm_epsilon", m.norm_epsilon, 0, 1) != 1e-5:
        c.fail("layer_norm_epsilon", c.get("layer_norm_epsilon"), "1e-05")
    c.must_be("scale_attn_weights", True)
    c.must_be("scale_attn_by_inverse_layer_idx", False)


def _read_llama(c, kind, m):
    m.family = "llama"
    m.hidden = c.whole("hidden_size", 0, 1, _max_hidden, True)
    m.layers = c.whole("num_hidden_layers", 0, 1, _max_layers, True)
    m.heads = c.whole("num_attention_heads", 0, 1, _max_heads, True)
    m.intermediate = c.whole("intermediate_size", 0, 1, _max_intermediate, True)
    m.positions = c.whole("max_position_embeddings", 0, 1, _max_sequence, True)
    m.kv_heads = c.whole("num_key_value_heads", m.heads, 1, _max_heads)
    m.head_width = c.whole("head_dim", 0, 1, 65_536)
    m.tied_head = c.flag("tie_word_embeddings", False)
    m.norm_epsilon = c.number("rms_norm_eps", m.norm_epsilon, 1e-12, 1, True)
    c.must_be("hidden_act", "silu")
    m.qkv_bias, m.output_bias, m.mlp_bias = kind == "qwen2", False, False
    if kind in ("llama", "qwen3"):
        m.head_norms = kind == "qwen3"
        m.head_width = m.head_width or (128 if m.head_norms else 0)  # Qwen3's default
        m.qkv_bias = m.output_bias = c.flag("attention_bias", False)
        m.mlp_bias = c.flag("mlp_bias", False) if kind == "llama" else False
    _read_rope(c, m)
    if kind == "mistral":
        _read_mistral_window(c, m)
    else:
        _check_window(c, kind, m)


# Older files have rope_theta beside rope_scaling, newer ones both in rope_parameters: they must mean the same.
def _read_rope(c, m):
    theta, positions = c.number("rope_theta", m.rope_theta, 1, 1e15), m.positions
    found = []
    for key in ("rope_scaling", "rope_parameters"):
        value = c.get(key)
        if value is None:
            continue
        if not isinstance(value, dict):
            c.fail(key, value, "an object or null")
        found.append(_read_rope_object(_Keys(value, f"{c.file}: {key}"), theta, positions))
        if len(found) == 2 and found[0][:2] != found[1][:2]:
            c.fail(key, value, "what rope_scaling says")
    m.rope, m.rope_theta, m.positions = found[-1] if found else (Rope(), theta, positions)
    if m.rope.kind == "linear":
        m.positions = _longer(c, m.positions, m.rope.factor, m.positions)


# (Rope, theta, positions)
def _read_rope_object(inner, theta, positions):
    rope = Rope()
    theta = inner.number("rope_theta", theta, 1, 1e15)
    older = inner.word("type", "default")
    kind = inner.word("rope_type", older)
    if inner.get("type") is not None and kind != older:
        inner.fail("type", inner.get("type"), f'"{kind}", as rope_type')
    if kind in ("llama3", "linear"):
        rope.kind = kind
        rope.factor = inner.number("factor", 1.0, 1, 1e6, True)
    elif kind == "yarn":
        positions = _read_yarn(inner, rope, theta, positions)
    elif kind == "dynamic":
        inner.number("factor", 1.0, 1, 1e6, True)
    elif kind != "default":
        key = "rope_type" if inner.get("rope_type") is not None else "type"
        inner.fail("rope_type", inner.get(key), "default, linear, dynamic, llama3 or yarn")
    if kind == "llama3":
        rope.low_frequency_factor = inner.number("low_freq_factor", 1.0, 1e-3, 1e6, True)
        rope.high_frequency_factor = inner.number("high_freq_factor", 4.0, 1e-3, 1e6, True)
        rope.original_positions = inner.number("original_max_position_embeddings", 0.0, 1, 1e9, True)
        if rope.high_frequency_factor <= rope.low_frequency_factor:
            inner.fail("high_freq_factor", inner.get("high_freq_factor"), "more than low_freq_factor")
    typed = inner.get("rope_type") is not None or inner.get("type") is not None
    for key in sorted(inner.all, key=str.encode):
        value = inner.all[key]
        if key not in _rope_keys.get(kind, _rope_common) and value is not None and not (
                key in _rope_neutral and equal(value, 1)):
            inner.fail(shown(key), value, f"none: '{kind}' does not use it" if typed else "a rope_type that uses it")
    return rope, theta, positions


# The context is the original one times the factor; a file may say so already.
def _read_yarn(inner, rope, theta, positions):
    rope.kind = "yarn"
    rope.factor = inner.number("factor", 1.0, 1, 1e6, True)
    rope.original_positions = inner.number("original_max_position_embeddings", float(positions), 1, 1e9)
    rope.fast_turns = inner.number("beta_fast", 32.0, 1e-3, 1e6)
    rope.slow_turns = inner.number("beta_slow", 1.0, 1e-3, 1e6)
    rope.whole_bounds = inner.flag("truncate", True)
    weight, of_all = (inner.number(key, 0.0, 0, 1e3) for key in ("mscale", "mscale_all_dim"))

    def sharpness(by):
        return 1.0 if rope.factor <= 1 else 0.1 * by * math.log(rope.factor) + 1

    usual = sharpness(weight) / sharpness(of_all) if weight > 0 and of_all > 0 else sharpness(1)
    rope.attention_factor = inner.number("attention_factor", usual, 1e-3, 1e3)
    if rope.fast_turns <= rope.slow_turns:
        inner.fail("beta_fast", inner.get("beta_fast"), "more than beta_slow")
    if theta <= 1:
        inner.refuse(f"rope_theta: found {theta:g}, expected more than 1")
    return _longer(inner, rope.original_positions, rope.factor, positions)


def _longer(c, positions, factor, known):
    context = math.floor(positions * factor)
    if context > _max_sequence:
        c.refuse(f"{positions:.0f} positions, scaled by a factor of {factor:g}: expected at most {_max_sequence}")
    return max(known, context)


def _read_mistral_window(c, m):
    window = m.positions if "sliding_window" in c.all and c.get("sliding_window") is None else 4096
    window = c.whole("sliding_window", window, 1, _max_sequence)
    m.window = window if window < m.positions else 0
    every = "sliding_attention" if m.window > 0 else "full_attention"
    _check_layer_types(c, m, f'"{every}" only, as sliding_window says', every)


# By transformers no layer of Llama has a window, and Qwen's have one from layer max_window_layers on.
def _check_window(c, kind, m):
    used = c.flag("use_sliding_window", False)
    if kind == "llama":
        used = False
    else:
        first = c.whole("max_window_layers", 28, 0, _max_layers)
        used = used and c.get("layer_types") is None and first < m.layers
    window = m.positions if "sliding_window" in c.all or kind == "llama" else 4096
    window = c.whole("sliding_window", window, 0, _max_sequence)
    if used and window < m.positions:
        c.refuse(f"sliding_window: found {window}, expected null or at least the context ({m.positions}): attention within a "
                 "window is not supported")
    _check_layer_types(c, m, '"full_attention" only', "full_attention")


def _check_layer_types(c, m, expected, every):
    types = c.get("layer_types")
    if types is None:
        return
    if not isinstance(types, list) or len(types) != m.layers:
        c.fail("layer_types", types, f"a list of {m.layers} names")
    for found in types:
        if found != every:
            c.refuse(f"layer_types: found {dumped(found)}, expected {expected}")


def _check_sizes(c, m):
    if m.head_width == 0:
        if m.hidden % m.heads != 0:
            c.refuse(f"{m.heads} heads do not divide a hidden size of {m.hidden}")
        m.head_width = m.hidden // m.heads
    if m.heads % m.kv_heads != 0:
        c.refuse(f"num_key_value_heads: found {m.kv_heads}, expected a divisor of {m.heads} heads")
    if m.family != "gpt2" and m.head_width % 2 != 0:
        c.refuse(f"heads of {m.head_width} values cannot have rotary positions")
    if m.heads * m.head_width > 10_000_000:
        c.refuse(f"{m.heads} heads of {m.head_width} values: expected at most 10000000 values")


def _check_tokens(c, key):
    found = c.get(key)
    for token in () if found is None else found if isinstance(found, list) else [found]:
        if type(token) is not int:
            c.refuse(f"{key}: found {dumped(token)}, expected a token's number, or a list of them")


def _quantization(found):
    if not isinstance(found, dict):
        return "in a form that is not known"
    named = [found[key] for key in ("quant_method", "quant_algo", "format", "fmt", "bits", "w_bit") if key in found]
    text = "" if not named else named[0] if isinstance(named[0], str) else dumped(named[0])
    bits = found.get("bits")
    if type(bits) is int and bits >= 0:
        text = f"{bits} bits" if text in ("", str(bits)) else f"{text}, {bits} bits"
    return shown(text) if text else "in a form that is not known"
