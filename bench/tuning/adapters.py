"""bench_tuning.py adapters: PEFT's folders that Troupe makes and reads, against code that imports nothing of Troupe."""

import json
import os
import shutil
import subprocess
import sys

from runs import root

oracle = os.path.join(root, "tests", "python", "oracle", "peft_folder.py")
reference = os.path.join(root, "tests", "gpu", "inference", "reference.py")
targets = {"gpt2": "c_attn,c_proj,c_fc", "llama": "q_proj,v_proj", "qwen3": "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"}
faults = ("factors_left_out", "factor_doubled")


def adapters(bench, parts):
    """A4: both ways, for three families: an exported adapter has the logits of the layers that were trained, in the engine and
    by the oracle; one that the oracle has written has the oracle's logits in the engine. No factor is missing or left over."""
    served = read = written = 0.0
    missing = unexpected = 0
    for name in list(targets)[:1 if bench.until else 2 if bench.short else 3]:
        base, out = bench.base(name), bench.path(f"{name}-adapter")
        folder, tokens, expected = parts.trained_adapter(bench, name)
        parts.export(folder, out)
        served = max(served, apart(parts.logits(base, tokens, "--adapter", out), expected))
        bench.at_least(f"{name}_moved", apart(parts.logits(base, tokens), expected), 1e-2)
        if bench.fault == "factors_left_out":
            out = without_first_module(out, bench.path(f"{name}-spoiled"))
        about, found = asked(bench, parts, "read", base, out, tokens)
        missing, unexpected = missing + len(about["missing"]), unexpected + len(about["unexpected"])
        read = max(read, apart(found, expected))
        out = bench.path(f"{name}-foreign")
        about, found = asked(bench, parts, "write", base, out, tokens, targets[name])
        missing, unexpected = missing + len(about["missing"]), unexpected + len(about["unexpected"])
        bench.at_most(f"{name}_learned", about["losses"][-1] / about["losses"][0], 0.8)
        if bench.fault == "factor_doubled":
            double_first_factor(out)
        written = max(written, apart(parts.logits(base, tokens, "--adapter", out), found))
    bench.at_most("worst", served, 1e-4)
    bench.at_most("read_by_the_oracle", read, 1e-4)
    bench.at_most("written_by_the_oracle", written, 1e-4)
    bench.at_most("missing", missing, 0)
    bench.at_most("unexpected", unexpected, 0)


def apart(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


def asked(bench, parts, verb, base, folder, tokens, *more):
    """(the oracle's document, its logits)"""
    out = bench.path("oracle-logits.pt")
    found = subprocess.run([sys.executable, "-I", oracle, verb, reference, base, folder, ",".join(map(str, tokens)), out, *more],
                           capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(found.stderr)
    return json.loads(found.stdout), parts.torch.load(out)


# -- faults

def changed(folder, change):
    """Writes the factors again, after change(their tensors)."""
    from troupe.safetensors import SafeTensors, write

    path = os.path.join(folder, "adapter_model.safetensors")
    file = SafeTensors(path)
    tensors = {name: file.tensor(name).clone() for name in file.names}
    change(tensors)
    os.unlink(path)
    write(path, tensors, {"format": "pt"})


def without_first_module(folder, to):
    def change(tensors):
        del tensors[first], tensors[first.replace("lora_A", "lora_B")]

    with open(os.path.join(folder, "adapter_model.safetensors"), "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        first = min(name for name in json.loads(file.read(size)) if "lora_A" in name)
    shutil.copytree(folder, to)
    changed(to, change)
    return to


def double_first_factor(folder):
    def change(tensors):
        tensors[min(name for name in tensors if "lora_B" in name)] *= 2

    changed(folder, change)
