"""Adapters that a cluster of processes serves: a decoder on each of two nodes, and a front over HTTP, beside `troupe infer` with
each adapter alone. $TROUPE_PROGRAM is the program."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from support import Scratch, environment, has_torch, root, until, without_torch

program = os.environ.get("TROUPE_PROGRAM")
scribe = os.path.join(root, "configs", "models", "scribe")
prompt, count = "The President", 12
settings = {"heartbeat_s": 0.2, "lease_s": 3, "restart_s": 0.2, "grace_s": 1}


def write_adapter(folder, seed, rank=4):
    """A folder of PEFT's with random values, on the attention of each of scribe's layers."""
    import torch
    from troupe import safetensors

    os.mkdir(folder)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(4):
        name = f"base_model.model.transformer.h.{layer}.attn.c_attn"
        tensors[f"{name}.lora_A.weight"] = torch.randn(rank, 128, generator=generator) / 8
        tensors[f"{name}.lora_B.weight"] = torch.randn(384, rank, generator=generator) / 8
    safetensors.write(os.path.join(folder, "adapter_model.safetensors"), tensors, {"format": "pt"})
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 8, "target_modules": ["c_attn"],
                   "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": True}, file)
    return folder


@unittest.skipUnless(has_torch, without_torch)
@unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
class Cluster(Scratch):
    def setUp(self):
        super().setUp()
        self.adapters = {name: write_adapter(self.path(name), seed) for name, seed in (("sql", 1), ("letters", 2))}
        node = [{"name": n, "gpu": "T4", "gpus": 1, "intra": "pcie3", "inter": "eth10"} for n in ("one", "two")]
        cluster = {"name": "adapters", "datacenters": [{"name": "here", "nodes": node}], "settings": settings,
                   "fronts": [{"name": "front-1", "datacenter": "here"}]}
        self.state = self.path("state")
        text = self.troupe("up", self.write("cluster.yaml", json.dumps(cluster)), "--detach")
        self.addCleanup(self.down)
        self.nodes = {name: int(pid) for name, pid in re.findall(r"^(one|two) +process (\d+)", text, re.M)}
        self.url = re.search(r"http://[0-9.:]+", text[text.index("front-1"):])[0]

    def troupe(self, *words):
        found = subprocess.run([program, *map(str, words), "--state", self.state], env=environment(), capture_output=True,
                               text=True, cwd=self.folder)
        self.assertEqual(found.returncode, 0, found.stderr + found.stdout)
        return found.stdout

    def down(self):
        subprocess.run([program, "down", "--state", self.state], env=environment(), capture_output=True)

    def serve(self, name, adapters):
        job = {"name": name, "serve": {"model": scribe, "kv_gb": 0.05, "context": 256, "prefill": "decoder",
                                       "adapters": adapters}}
        return json.loads(self.troupe("submit", self.write(f"{name}.yaml", json.dumps(job)), "--json"))["jobs"][0]["job"]

    def ask(self, path, body=None):
        """(status, document)"""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def complete(self, model):
        return self.ask("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": count, "temperature": 0,
                                            "return_token_ids": True})

    def tokens(self, model):
        status, found = self.complete(model)
        self.assertEqual(status, 200, found)
        return found["choices"][0]["token_ids"]

    def alone(self, *more):
        found = subprocess.run([program, "infer", prompt, "--alone", "--model", scribe, "--max-tokens", str(count),
                                "--temperature", "0", "--json", *more], env=environment(), capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)["tokens"]

    def listed(self):
        with contextlib.suppress(OSError):
            return {m["id"]: m for m in self.ask("/v1/models")[1]["data"]}
        return {}

    def test_requests_choose_adapters_of_a_cluster_and_go_on_elsewhere_when_a_decoder_is_lost(self):
        expected = {name: self.alone("--adapter", folder) for name, folder in self.adapters.items()}
        expected["scribe"] = self.alone()
        self.assertEqual(len({tuple(x) for x in expected.values()}), 3)
        both = [{"name": "sql", "folder": self.adapters["sql"]}, f"letters={self.adapters['letters']}"]
        self.serve("serve-1", both)
        self.serve("serve-2", both)
        until(lambda: {"scribe", "sql", "letters"} <= set(self.listed()), 60)
        self.assertEqual(self.listed()["sql"]["parent"], "scribe")
        self.assertEqual(self.listed()["sql"]["root"], "scribe")
        self.assertIsNone(self.listed()["scribe"]["parent"])
        for _ in range(2):  # the second time pages of the prompt are in the cache
            for name, tokens in expected.items():
                self.assertEqual(self.tokens(name), tokens, name)
        self.assertEqual(self.complete("poems")[0], 404)
        modules = os.environ.get("TROUPE_NODE_MODULES", "")
        if os.path.isdir(os.path.join(modules, "openai")):
            client = os.path.join(root, "tests", "web", "adapters_client.cjs")
            subprocess.run(["node", client, modules, self.url, "none", json.dumps(expected)], check=True)
        until(lambda: "running" in self.troupe("status", "2"), 60)
        os.kill(self.nodes["one"], signal.SIGKILL)
        end = time.monotonic() + 60
        while (found := self.complete("sql"))[0] == 503 and time.monotonic() < end:
            time.sleep(0.2)
        self.assertEqual(found[0], 200, found)
        self.assertEqual(found[1]["choices"][0]["token_ids"], expected["sql"])

    def test_an_adapter_whose_files_have_changed_or_that_does_not_fit_is_not_served(self):
        job = self.serve("serve-1", [{"name": "sql", "folder": self.adapters["sql"]}])
        until(lambda: "sql" in self.listed(), 60)
        self.troupe("cancel", job)
        until(lambda: not self.listed(), 30)
        with open(os.path.join(self.adapters["sql"], "adapter_config.json")) as file:
            config = json.load(file)
        with open(os.path.join(self.adapters["sql"], "adapter_config.json"), "w") as file:
            json.dump({**config, "r": 5}, file)
        broken = self.serve("serve-2", [{"name": "sql", "folder": self.adapters["sql"]}])

        def reason():
            return json.loads(self.troupe("status", broken, "--json"))["jobs"][0].get("detail", "")
        until(lambda: "adapter" in reason(), 60)
        # A front that does not know yet that the job has ended answers 503.
        found = []
        until(lambda: found.append(self.complete("sql")[0]) or found[-1] == 404, 30)
        self.assertLessEqual(set(found), {503, 404})
