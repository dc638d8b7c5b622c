"""Small model folders with random weights, and what the inference engine computes of them."""

import json
import os
import subprocess
import tempfile

from support import environment

program = os.environ.get("TROUPE_PROGRAM")
_gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 160, "vocab_size": 96}
_llama = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
          "max_position_embeddings": 160, "rms_norm_eps": 1e-6, "vocab_size": 96}


def _of(kind, **more):
    return {"model_type": kind, **_llama, **more}


_linear = {"type": "linear", "factor": 2.5}
_llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64}
_yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
configs = {
    "gpt2": _gpt2,
    "gpt2-untied": {**_gpt2, "tie_word_embeddings": False, "n_inner": 80},
    "llama": _of("llama", num_key_value_heads=1),
    "llama-two-heads": _of("llama", num_key_value_heads=2, tie_word_embeddings=True),
    "llama-all-heads": _of("llama"),
    "llama-linear": _of("llama", num_key_value_heads=2, rope_scaling=_linear, attention_bias=True, mlp_bias=True),
    "llama3": _of("llama", num_key_value_heads=2, rope_scaling=_llama3, rope_theta=500.0),
    "llama-head-width": _of("llama", num_key_value_heads=2, head_dim=10),
    "llama-parameters": _of("llama", rope_parameters={"rope_theta": 500.0, **_llama3}),
    "llama-yarn": _of("llama", head_dim=16, rope_theta=1000, rope_scaling=_yarn),
    "llama-dynamic": _of("llama", rope_scaling={"type": "dynamic", "factor": 2.0}),
    "mistral": _of("mistral", num_key_value_heads=2, sliding_window=None),
    "mistral-window": _of("mistral", num_key_value_heads=2, sliding_window=20, head_dim=12),
    "qwen2": _of("qwen2", num_key_value_heads=2, tie_word_embeddings=True),
    "qwen2-yarn": _of("qwen2", num_key_value_heads=2, rope_scaling={**_yarn, "beta_fast": 8, "beta_slow": 2, "truncate": False,
                                                                  "mscale": 1.3, "mscale_all_dim": 0.6}),
    "qwen3": _of("qwen3", num_key_value_heads=2, head_dim=24, tie_word_embeddings=True, rope_theta=1_000_000),
    "qwen3-untied": _of("qwen3", num_key_value_heads=1, head_dim=16),
    "qwen3-biased": _of("qwen3", num_key_value_heads=4, head_dim=6, attention_bias=True),
}
prefixed, halved = {"gpt2-untied"}, {"llama-two-heads", "qwen3-untied"}  # names as GPT2LMHeadModel has them; bf16 files


def write_folder(folder, name):
    """A folder of that name's config.json; its weights are random, and wide enough that tokens differ."""
    import torch
    from troupe import safetensors
    from troupe.models.blocks import layers
    from troupe.models.config import read_model

    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(configs[name], file)
    generator = torch.Generator().manual_seed(len(name) + sum(name.encode()))
    made = {}

    class Random:
        @staticmethod
        def tensor(tensor_name, shape):
            if tensor_name not in made:
                values = torch.rand(*shape, generator=generator) - 0.5
                norm = "norm" in tensor_name or "ln_" in tensor_name
                scale = 0.6 if len(shape) == 2 else 0.4
                made[tensor_name] = scale * values + (1.0 if norm and tensor_name.endswith("weight") else 0.0)
            return made[tensor_name]

        @staticmethod
        def parameter(tensor_name, shape):
            return torch.nn.Parameter(Random.tensor(tensor_name, shape))

        @staticmethod
        def adapter(tensor_name, wide, out):
            return None

    layers(read_model(folder), Random)
    prefix = "transformer." if name in prefixed else ""
    kind = torch.bfloat16 if name in halved else torch.float32
    path = os.path.join(folder, "model.safetensors")
    safetensors.write(path, {prefix + k: t.to(kind) for k, t in made.items()}, {"format": "pt"})
    return folder


def engine_logits(folder, tokens, *more):
    """[tokens, vocabulary]: what `troupe infer --alone` computes, with further options."""
    from troupe.safetensors import SafeTensors

    with tempfile.TemporaryDirectory() as where:
        out = os.path.join(where, "logits.safetensors")
        words = [program, "infer", "--alone", "--model", folder, "--prompt-tokens", ",".join(map(str, tokens)), "--max-tokens",
                 "1", "--dump-logits", out, *more]
        found = subprocess.run(words, env=environment(), capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return SafeTensors(out).tensor("logits").clone()
