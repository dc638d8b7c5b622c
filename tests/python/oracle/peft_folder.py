"""A folder of an adapter as PEFT has it, read and written without Troupe: names, shapes and meaning as PEFT's own code has them.

usage: peft_folder.py read REFERENCE BASE ADAPTER TOKENS OUT
       peft_folder.py write REFERENCE BASE ADAPTER TOKENS OUT TARGETS
REFERENCE: reference.py of the inference engine's tests, whose models are used. BASE has 32-bit weights. write makes ADAPTER, of
rank 4 on the modules of TARGETS (with commas), trained for 20 updates of AdamW to say TOKENS (with commas). OUT is a file for
torch.save of the logits at TOKENS of the base with the adapter. Prints a line of JSON: {missing, unexpected, losses}: names of
factors that the adapter's configuration asks for and the file lacks, and the other way round.
"""
import importlib.util
import json
import math
import os
import re
import struct
import sys

import torch

torch.set_num_threads(1)
torch.manual_seed(5)
prefix, rank, alpha = "base_model.model.", 4, 12


def module_of(path):
    spec = importlib.util.spec_from_file_location("reference", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def modules_of(config, weights):
    """{name of a module with a matrix: its weight's name}; PEFT's names are those of the class with the language head."""
    gpt2 = config["model_type"] == "gpt2"
    return {("transformer." if gpt2 else "") + name[:-len(".weight")]: name for name, t in weights.items()
            if t.dim() == 2 and re.match(r"h\.\d+\.|model\.layers\.\d+\.", name)}


def is_target(name, targets):
    """A list has last parts of names; a text is a pattern of the whole name, or says that all matrices are meant."""
    if isinstance(targets, str):
        return targets == "all-linear" or re.fullmatch(targets, name) is not None
    return any(name == one or name.endswith("." + one) for one in targets)


def factors_of(module):
    return [f"{prefix}{module}.lora_{part}.weight" for part in "AB"]


def added(config, weights, modules, tensors, settings):
    """All weights of the base with the adapter."""
    scale = settings["lora_alpha"] / (math.sqrt(settings["r"]) if settings.get("use_rslora") else settings["r"])
    found = dict(weights)
    for module, weight in modules.items():
        a, b = (tensors.get(name) for name in factors_of(module))
        if a is None or b is None:
            continue
        product = scale * (b @ a)
        found[weight] = found[weight] + (product.T if settings.get("fan_in_fan_out") else product)
    return found


def write_safetensors(path, tensors):
    header, at, data = {"__metadata__": {"format": "pt"}}, 0, []
    for name, t in tensors.items():
        data.append(struct.pack(f"<{t.numel()}f", *t.flatten().tolist()))
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def trained(logits, config, weights, modules, tokens, settings):
    """The factors, and the loss before each update."""
    tensors = {}
    for module, weight in modules.items():
        wide, out = weights[weight].shape if settings["fan_in_fan_out"] else reversed(weights[weight].shape)
        a, b = factors_of(module)
        tensors[a] = ((2 * torch.rand(rank, wide) - 1) / math.sqrt(wide)).requires_grad_()
        tensors[b] = torch.zeros(out, rank).requires_grad_()
    optimizer, losses = torch.optim.AdamW(tensors.values(), lr=1e-2, weight_decay=0.0), []
    for _ in range(20):
        found = logits(config, added(config, weights, modules, tensors, settings), tokens)
        loss = torch.nn.functional.cross_entropy(found[:-1], tokens[1:])
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: t.detach() for name, t in tensors.items()}, losses


def main(verb, reference, base, folder, tokens, out, targets=""):
    reference = module_of(reference)
    with open(os.path.join(base, "config.json")) as file:
        config = json.load(file)
    weights = reference.read_safetensors(os.path.join(base, "model.safetensors"))
    modules = modules_of(config, weights)
    logits = reference.gpt2 if config["model_type"] == "gpt2" else reference.llama
    tokens, losses = torch.tensor([int(x) for x in tokens.split(",")]), []
    about, factors = (os.path.join(folder, name) for name in ("adapter_config.json", "adapter_model.safetensors"))
    if verb == "write":
        settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": rank, "lora_alpha": alpha,
                    "target_modules": targets.split(","), "lora_dropout": 0.05, "bias": "none", "use_rslora": False,
                    "fan_in_fan_out": config["model_type"] == "gpt2", "modules_to_save": None, "inference_mode": True}
        wanted = {name: weight for name, weight in modules.items() if is_target(name, settings["target_modules"])}
        tensors, losses = trained(logits, config, weights, wanted, tokens, settings)
        os.makedirs(folder)
        write_safetensors(factors, tensors)
        with open(about, "w") as file:
            json.dump(settings, file)
    with open(about) as file:
        settings = json.load(file)
    tensors = reference.read_safetensors(factors)
    asked = {x for name in modules if is_target(name, settings["target_modules"]) for x in factors_of(name)}
    print(json.dumps({"missing": sorted(asked - set(tensors)), "unexpected": sorted(set(tensors) - asked), "losses": losses}))
    with torch.no_grad():
        torch.save(logits(config, added(config, weights, modules, tensors, settings), tokens), out)


main(*sys.argv[1:])
