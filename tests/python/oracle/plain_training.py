"""A fine-tuning in plain PyTorch, which imports nothing of Troupe: each example by itself, AdamW and clipping written out.

usage: plain_training.py REFERENCE FOLDER JOB
REFERENCE: reference.py of the inference engine's tests, whose models are used. JOB: a JSON file {updates: [[row, ...], ...],
rows: [[{tokens, trained}, ...], ...], rates: [of each update], clip}; by choice frozen: [names of weights], adapter: {scale,
modules: {name: {a, b}}}, by whose factors alone it learns then, and out, a file for torch.save of what is trained. Prints a line
of JSON for each update: its loss, before it, and the norm of all gradients.
"""
import importlib.util
import json
import sys

import torch

torch.set_num_threads(1)


def module_of(path):
    spec = importlib.util.spec_from_file_location("reference", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def losses(logits, example):
    """The sum over the example's targets, and how many they are."""
    wanted = [i for i, trained in enumerate(example["trained"]) if trained and i > 0]
    chosen = torch.log_softmax(logits, dim=-1)[[i - 1 for i in wanted], [example["tokens"][i] for i in wanted]]
    return -chosen.sum(), len(wanted)


def main(reference, folder, job):
    reference = module_of(reference)
    with open(folder + "/config.json") as file:
        config = json.load(file)
    with open(job) as file:
        job = json.load(file)
    weights = {name: t.clone().requires_grad_() for name, t in
               reference.read_safetensors(folder + "/model.safetensors").items()}
    model = reference.gpt2 if config["model_type"] == "gpt2" else reference.llama
    gpt2, adapter = config["model_type"] == "gpt2", job.get("adapter")
    base = {}
    if adapter:
        base = {name: t.detach() for name, t in weights.items()}
        weights = {f"{name}.lora_{part.upper()}.weight": torch.tensor(one[part]).requires_grad_()
                   for name, one in adapter["modules"].items() for part in "ab"}
    for name in job.get("frozen", ()):
        base[name] = weights.pop(name).detach()

    def all_weights():
        if not adapter:
            return {**base, **weights}
        found = dict(base)
        for name in adapter["modules"]:
            product = weights[name + ".lora_B.weight"] @ weights[name + ".lora_A.weight"]
            found[name + ".weight"] = base[name + ".weight"] + adapter["scale"] * (product.T if gpt2 else product)
        return found

    means = {name: torch.zeros_like(t) for name, t in weights.items()}
    squares = {name: torch.zeros_like(t) for name, t in weights.items()}
    for step, rows in enumerate(job["updates"], 1):
        total, count = 0.0, 0
        for example in (x for row in rows for x in job["rows"][row]):
            found, targets = losses(model(config, all_weights(), torch.tensor(example["tokens"])), example)
            total, count = total + found, count + targets
        for t in weights.values():
            t.grad = None
        (total / count).backward()
        norm = sum(float(t.grad.double().pow(2).sum()) for t in weights.values()) ** 0.5
        factor = min(1.0, job["clip"] / (norm + 1e-6))
        print(json.dumps({"loss": float(total.detach()) / count, "norm": norm}))
        with torch.no_grad():
            for name, t in weights.items():
                gradient = t.grad * factor
                means[name].mul_(0.9).add_(0.1 * gradient)
                squares[name].mul_(0.999).add_(0.001 * gradient * gradient)
                root = (squares[name] / (1 - 0.999 ** step)).sqrt() + 1e-8
                t.sub_(job["rates"][step - 1] * (means[name] / (1 - 0.9 ** step)) / root)
    if "out" in job:
        torch.save({name: t.detach() for name, t in weights.items()}, job["out"])


main(*sys.argv[1:])
