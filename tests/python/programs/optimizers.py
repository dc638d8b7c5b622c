"""Optimizers and schedules as people write them: texts of functions of a program's file, by name."""

head = """
import collections, math
from torch.optim import lr_scheduler as L

class Lookahead(torch.optim.Optimizer):
    \"\"\"Another optimizer, and every second step half of the way back to slow weights.\"\"\"
    def __init__(self, inner):
        self.inner, self.defaults, self.param_groups, self.state = inner, inner.defaults, inner.param_groups, {}
        for g in self.param_groups: g.setdefault("counter", 0)
    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        for g in self.param_groups:
            g["counter"] += 1
            for p in g["params"]:
                s = self.state.setdefault(p, {})
                if "slow" not in s: s["slow"] = p.clone()
                if g["counter"] % 2 == 0: s["slow"].lerp_(p, 0.5); p.copy_(s["slow"])

class Averaging(torch.optim.Optimizer):
    \"\"\"Stochastic weight averaging: its own count, and averages in a list.\"\"\"
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner, self.taken, self.averages = inner, 0, None
        self.param_groups = inner.param_groups
    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        mine = [p for g in self.param_groups for p in g["params"]]
        self.taken += 1
        if self.averages is None: self.averages = [p.clone() for p in mine]
        for a, p in zip(self.averages, mine): a.lerp_(p, 1 / self.taken); p.lerp_(a, 0.1)

class Shadow:
    def __init__(self): self.of, self.rate = {}, 0.5
    def follow(self, p):
        self.of[p] = p.detach().clone() if p not in self.of else self.of[p].lerp_(p.detach(), self.rate)
        self.rate *= 0.9
        return self.of[p]

class Followed(torch.optim.SGD):
    \"\"\"An exponential average in a helper's dict, whose rate falls with each parameter of a step.\"\"\"
    def __init__(self, *args, **more): super().__init__(*args, **more); self.shadow = Shadow()
    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for g in self.param_groups:
            for p in g["params"]: p.lerp_(self.shadow.follow(p), 0.2)

class Both(torch.optim.Optimizer):
    \"\"\"Muon for matrices, AdamW for the rest: two optimizers with groups of their own.\"\"\"
    def __init__(self, parameters):
        parameters = list(parameters)
        matrices, rest = [p for p in parameters if p.dim() == 2], [p for p in parameters if p.dim() != 2]
        self.parts = {"muon": Muon(matrices)} if matrices else {}
        if rest: self.parts["adamw"] = torch.optim.AdamW(rest, lr=0.01)
        self.defaults, self.state = {}, {}
        self.param_groups = [g for x in self.parts.values() for g in x.param_groups]
    @torch.no_grad()
    def step(self, closure=None):
        for x in self.parts.values(): x.step()

class Muon(torch.optim.Optimizer):
    def __init__(self, parameters): super().__init__(parameters, dict(lr=0.02, momentum=0.9))
    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)).lerp_(p.grad, 1 - g["momentum"])
                x = m / (m.norm() + 1e-7)
                for _ in range(3): x = 1.5 * x - 0.5 * x @ x.T @ x
                p.add_(x, alpha=-g["lr"])

class ScheduleFree(torch.optim.Optimizer):
    def __init__(self, parameters): super().__init__(parameters, dict(lr=0.05, k=0, weight_sum=0.0, train_mode=True))
    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            g["k"] += 1
            g["weight_sum"] += g["lr"] ** 2 * g["k"]
            for p in g["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, g["lr"] ** 2 * g["k"] / g["weight_sum"]); p.add_(p.grad, alpha=-0.1 * g["lr"]); z.add_(p.grad, alpha=-g["lr"])

class Factored(torch.optim.Optimizer):
    \"\"\"As Adafactor: rows and columns of matrices, in a tuple; full squares of the rest; both only from the second step on.\"\"\"
    def __init__(self, parameters): super().__init__(parameters, dict(lr=0.02))
    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                s, sq = self.state[p], p.grad.square() + 1e-12
                s["step"] = s.get("step", 0) + 1
                if s["step"] == 1: s["kind"] = "matrix" if p.dim() == 2 else None; continue
                if p.dim() == 2:
                    row, column = s.get("factors", (sq.mean(1), sq.mean(0)))
                    s["factors"] = (row.lerp(sq.mean(1), 0.1), column.lerp(sq.mean(0), 0.1))
                    v = s["factors"][0][:, None] * s["factors"][1][None] / s["factors"][0].mean()
                else: v = s["square"] = s.get("square", sq).lerp(sq, 0.1)
                p.add_(p.grad / v.sqrt(), alpha=-g["lr"])

class Distance(torch.optim.Optimizer):
    \"\"\"A tensor in its group, as Prodigy.\"\"\"
    def __init__(self, parameters): super().__init__(parameters, dict(lr=0.02, d=None))
    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            if g["d"] is None: g["d"] = torch.tensor(1.0)
            for p in g["params"]:
                first = self.state[p].setdefault("first", p.clone())
                p.add_(p.grad, alpha=-g["lr"] * float(g["d"]))
                g["d"] = torch.maximum(g["d"], 1 + 10 * (p - first).norm())

class Late(torch.optim.SGD):
    \"\"\"An average from its third step on, which it forgets in the fifth.\"\"\"
    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]; s["n"] = s.get("n", 0) + 1
                if s["n"] == 3: s["average"] = p.clone()
                elif s["n"] == 4: s["average"].lerp_(p, 0.5); p.lerp_(s["average"], 0.1)
                elif s["n"] == 5: del s["average"]

class History(torch.optim.SGD):
    \"\"\"The last gradients in a deque, lists and dicts in the state, numpy's numbers, and a name.\"\"\"
    @torch.no_grad()
    def step(self, closure=None):
        import numpy
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                s.setdefault("last", collections.deque(maxlen=2)).append(p.grad.clone())
                s.setdefault("all", []).append(float(p.grad.norm()))
                s["about"] = {"name": "h", 3: numpy.float32(len(s["all"])), "best": min(s["all"]), "inf": math.inf}
                p.add_(sum(s["last"]), alpha=-g["lr"] / float(s["about"][3]))
        self.state["steps"] = self.state.get("steps", 0) + 1
        g["lr"] *= 1 + 0.1 / self.state["steps"]

class Noisy(torch.optim.SGD):
    \"\"\"Langevin dynamics: noise of each generator.\"\"\"
    @torch.no_grad()
    def step(self, closure=None):
        import random, numpy
        super().step()
        for g in self.param_groups:
            for p in g["params"]: p.add_(torch.randn_like(p), alpha=1e-3).mul_(1 + 1e-3 * random.random()).add_(1e-3 * numpy.random.rand())

class Warm(L._LRScheduler):
    \"\"\"Another schedule after its own.\"\"\"
    def __init__(self, optimizer, after): self.after, self.done = after, torch.zeros(()); super().__init__(optimizer)
    def get_lr(self): return [x * min(1, (self.last_epoch + 1) / 2) for x in self.base_lrs]
    def step(self, epoch=None):
        if self.last_epoch > 1: self.done += 1; return self.after.step()
        super().step(epoch)

class Plain:
    \"\"\"No torch scheduler: a step that depends on a tensor and a count.\"\"\"
    def __init__(self, optimizer): self.optimizer, self.n, self.decay = optimizer, 0, torch.ones(2)
    def step(self):
        self.n += 1; self.decay *= 0.9
        for g in self.optimizer.param_groups: g["lr"] = 0.1 * float(self.decay[0]) / self.n

class Slotted:
    __slots__ = ("optimizer", "n")
    def __init__(self, optimizer): self.optimizer, self.n = optimizer, 0
    def step(self):
        self.n += 1
        for g in self.optimizer.param_groups: g["lr"] = 0.1 / self.n

def by_name(parameters):
    rates = {"0": 0.1, "2": 0.05}
    return [{"params": [p], "lr": rates[n[0]], "name": n} for n, p in parameters.named()]
"""

torchs = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop", "RMSprop"]
sgd = "torch.optim.SGD(parameters, lr=0.1, momentum=0.9)"

optimizers = {
    **{name: f"torch.optim.{name}(parameters, lr=0.01)" for name in torchs},
    "SGD": sgd, "SGD without momentum": "torch.optim.SGD(parameters, lr=0.1)",
    "AMSGrad": "torch.optim.Adam(parameters, lr=0.01, amsgrad=True)",
    "groups": "torch.optim.AdamW(troupe.no_decay(parameters, 0.1), lr=0.01)",
    "Lookahead": "Lookahead(torch.optim.Adam(parameters, lr=0.01))",
    "Lookahead of Lookahead": "Lookahead(Lookahead(torch.optim.RAdam(parameters, lr=0.01)))",
    "Averaging": "Averaging(torch.optim.Adam(parameters, lr=0.01))",
    "Followed": "Followed(parameters, lr=0.1)", "Both": "Both(parameters)", "Schedule-free": "ScheduleFree(parameters)",
    "Factored": "Factored(parameters)", "Distance": "Distance(parameters)", "Late": "Late(parameters, lr=0.1)",
    "History": "History(parameters, lr=0.1)", "Noisy": "Noisy(parameters, lr=0.1)",
}

schedules = {
    "LambdaLR": "L.LambdaLR(optimizer, lambda n: 1 / (1 + n))", "MultiplicativeLR": "L.MultiplicativeLR(optimizer, lambda n: 0.9)",
    "StepLR": "L.StepLR(optimizer, 2)", "MultiStepLR": "L.MultiStepLR(optimizer, [2, 4])",
    "ExponentialLR": "L.ExponentialLR(optimizer, 0.8)", "ConstantLR": "L.ConstantLR(optimizer, total_iters=4)",
    "LinearLR": "L.LinearLR(optimizer, total_iters=4)", "CosineAnnealingLR": "L.CosineAnnealingLR(optimizer, 5)",
    "CosineAnnealingWarmRestarts": "L.CosineAnnealingWarmRestarts(optimizer, 2)",
    "CyclicLR": "L.CyclicLR(optimizer, 0.01, 0.1, 2)", "OneCycleLR": "L.OneCycleLR(optimizer, 0.1, total_steps=8)",
    "ChainedScheduler": "L.ChainedScheduler([L.StepLR(optimizer, 2), L.ExponentialLR(optimizer, 0.9)])",
    "SequentialLR": "L.SequentialLR(optimizer, [L.LinearLR(optimizer, total_iters=2), L.StepLR(optimizer, 1)], [4])",
    "PolynomialLR": "L.PolynomialLR(optimizer, 8) if hasattr(L, 'PolynomialLR') else None",
    "Warm": "Warm(optimizer, L.StepLR(optimizer, 1))", "Plain": "Plain(optimizer)", "Slotted": "Slotted(optimizer)",
}
