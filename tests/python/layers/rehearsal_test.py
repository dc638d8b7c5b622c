"""The check of `describe` sees what a checkpoint would lack: ten omissions, each planted in the code that saves or loads."""

import unittest
from unittest import mock

from programs import Programs
from programs.optimizers import head
from support import has_torch, without_torch

if has_torch:
    import torch

    from troupe import safetensors
    from troupe.layers import optimizers, stage_state, state_places
    from troupe.describe import describe

    torch.set_num_threads(1)

program = head + """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(8, 8), 0
        self.register_buffer("mean", torch.zeros(8)); self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("queue", torch.zeros(0, 8)); self.register_buffer("wave", torch.ones(2, dtype=torch.cfloat))
    def get_extra_state(self): return {"calls": self.calls}
    def set_extra_state(self, state): self.calls = state["calls"]
    def forward(self, x):
        self.calls += 1
        self.mean.lerp_(x.detach().mean(0), 0.1); self.count += 1; self.wave = self.wave * 1j
        self.queue = torch.cat([self.queue, x.detach()[:1]])
        return torch.tanh(self.linear(x)) * (1 + 0.1 * self.calls) + self.mean
def optimizer(parameters): return Lookahead(torch.optim.Adam(parameters, lr=0.01, betas=(0.8, 0.9)))
def schedule(optimizer): return Warm(optimizer, L.MultiStepLR(optimizer, [1, 3]))"""


def without(owner, name, changed):
    """`name` of `owner`, whose result `changed` has changed."""
    kept = getattr(owner, name)
    return mock.patch.object(owner, name, lambda *args, **more: changed(kept(*args, **more)))


@unittest.skipUnless(has_torch, without_torch)
class Planted(Programs):
    def omissions(self):
        places = state_places.Places

        def few(kept):
            def made(self, *args):
                kept(self, *args)
                self.found = [p for p in self.found if not p.path.startswith("inner")]
            return made

        def saved(change):
            def made(found):
                change(found)
                return found
            return without(optimizers.Optimizer, "saved", made)

        return {
            "the state of an optimizer that another one wraps": mock.patch.object(places, "__init__", few(places.__init__)),
            "a key of the state": saved(lambda x: [v.pop("slow", None) for v in x.values.values()]),
            "the groups' options": saved(lambda x: x.options.clear()),
            "one option": saved(lambda x: [v.pop("counter") for v in x.options.values()]),
            "what is of no parameter": saved(lambda x: x.common.clear()),
            "the schedule's own attributes": saved(lambda x: [x.common.pop(k) for k in list(x.common) if k.startswith("schedule.after")]),
            "tensors of a schedule": saved(lambda x: [x.common.pop(k) for k in list(x.common) if k == "schedule.done"]),
            "buffers": mock.patch.object(stage_state, "_set_buffer", lambda *args: None),
            "buffers of whole numbers": without(stage_state.StageState, "_buffers", lambda found: (x for x in found if x[2] is None or x[2].dtype != torch.int64)),
            "buffers that have grown": mock.patch.object(stage_state, "_form", lambda t: None),
            "extra states": mock.patch.object(stage_state, "extra_states", lambda *args: ()),
            "a type of the format": without(safetensors.SafeTensors, "tensor", lambda t: t.conj().resolve_conj() if t.is_complex() else t),
            "the last byte of a tensor": without(safetensors.SafeTensors, "tensor", cut),
            "digits of numbers": without(optimizers, "encoded", lambda x: round(x, 2) if isinstance(x, float) else x),
            "tuples": without(optimizers, "decoded", lambda x: list(x) if isinstance(x, tuple) else x),
            "parameters": mock.patch.object(stage_state.StageState, "_copy", lambda *args: None),
        }

    def test_describe_finds_each_omission_and_names_what_is_missing(self):
        path = self.program("nn.Tanh()", "Layer()", program + "").path
        self.assertEqual(describe(path)["refusals"], [])
        found = {}
        for name, plant in self.omissions().items():
            with self.subTest(name), plant:
                found[name], = describe(path)["refusals"]
                self.assertRegex(found[name], r"^layer [01] \((Linear|Layer)\): ")
        self.assertGreaterEqual(len(found), 10)
        self.assertIn("inner.state.0.weight", found["the state of an optimizer that another one wraps"])
        self.assertIn("counter", found["one option"])
        self.assertIn("after", found["the schedule's own attributes"])
        self.assertIn("_extra_state", found["extra states"])


def cut(t):
    if t.numel() < 8 or not t.is_floating_point():
        return t
    t = t.clone()
    t.view(-1)[-1:].view(torch.uint8)[-1] ^= 1
    return t


if __name__ == "__main__":
    unittest.main()
