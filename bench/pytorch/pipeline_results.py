"""bench_pipelines equal, clip, move: results to the bit."""

import itertools

from pipeline_world import (Cluster, Folder, curve, differences, gpt, here, mixed, relative, schedules, small, state_of,
                            until)

recomputes = (False, True, "layers")
models = {  # PyTorch adds a tied parameter's two gradients in another order
    "mixed": {"program": mixed, "batch": 12},
    "tied": {"program": gpt, "arguments": small},
}
cuts = {"mixed": {2: [4, 2], 3: [2, 2, 2]}}  # the layers with buffers before the last stage, which never recomputes
short = {"mixed": ((2, "megatron", True), (3, "atlas", False)), "tied": ((2, "varuna", False), (3, "gpipe", True))}


class Comparison:
    """One stage without recomputation, which has been compared with the plain loop; others are compared with it."""

    def __init__(self, folder, name, model, out):
        self.folder, self.name, self.model, self.out = folder, name, model, out
        self.document, self.state = folder.trained(name=f"{name}-first", **model)
        self.loop, self.loop_state = folder.looped(name=f"{name}-loop", **model)
        losses = self.loop["losses"]
        if len(set(losses)) != len(losses):
            raise SystemExit(f"{name}: found losses {losses}, expected different ones")

    def count_plain(self):
        self._count("plain_unequal", f"{self.name}-loop", self.loop["losses"], self.loop_state)

    def count_relative(self):
        worst = max(relative(self.state, self.loop_state), of_numbers(self.document["losses"], self.loop["losses"]))
        self.out["relative"] = max(self.out["relative"], worst)

    def count(self, stages, schedule="gpipe", recompute=False):
        case = f"{self.name}-{stages}-{schedule}-{recompute}"
        document, state = self.folder.trained(stages, case, stages=stages, schedule=schedule, recompute=recompute,
                                              cut=cuts.get(self.name, {}).get(stages), **self.model)
        ran = document["stages_count"], document["schedule"]
        if ran != (stages, schedule):
            raise SystemExit(f"{case}: found {ran[0]} stages under {ran[1]}")
        self.out["cases"] += 1
        self._count("unequal", case, document["losses"], state)

    def _count(self, key, case, losses, state):
        differ = differences(state, self.state)
        if losses != self.document["losses"]:
            differ.insert(0, "losses")
        self.out[key] += bool(differ)
        self.out["differing"] += [f"{case}: {x}" for x in differ[:3]]


def of_numbers(one, other):
    return max(abs(a - b) / abs(b) for a, b in zip(one, other))


def equal(o):
    out = {"cases": 0, "unequal": 0, "plain_unequal": 0, "relative": 0.0, "differing": []}
    with Folder() as folder:
        for name, model in models.items():
            first = Comparison(folder, name, model, out)
            if name == "tied":
                first.count_relative()
            else:
                first.count_plain()
            for case in short[name] if o.short else itertools.product((1, 2, 3), schedules, recomputes):
                first.count(*case)
    return out


def clip(o):
    """Both models' gradients exceed their limits in every iteration."""
    out = {"cases": 0, "unequal": 0, "relative": 0.0, "norms": 0.0, "clipped": 0, "iterations": 0, "differing": []}
    clipped = {"clipped": ({"program": here / "clipped.py", "batch": 12}, 0.25), "tied": (models["tied"], 1)}
    with Folder() as folder:
        for name, (model, limit) in clipped.items():
            if o.short and name == "tied":
                continue
            first = Comparison(folder, name, model, out)
            first.count_relative()
            norms = first.loop["norms"]
            out["norms"] = max(out["norms"], of_numbers(first.document["gradient_norms"], norms))
            out["clipped"] += sum(norm > limit for norm in norms)
            out["iterations"] += len(norms)
            for stages in (2, 3):
                first.count(stages)
    return out


def move(_):
    """Two stages become one in a running training."""
    steps, job = 60, {"program": gpt, "arguments": {"layers": 4}, "stages": 2}
    with Folder() as folder:
        undisturbed, expected = folder.trained(2, "undisturbed", steps=steps, **job)
        saved = folder.path / "saved-moved"
        with Cluster(folder, 2) as c:
            number = c.submit(folder.job(name="moved", checkpoint=str(saved), steps=steps, **job))
            until("iterations", lambda: len(curve(saved)) > 5)
            moved = c.json("move", number, "--stages", 1)
            at, plan = len(curve(saved)), c.status(number)["plan"]
            until("the end", lambda: c.status(number)["state"] == "finished")
        losses = [loss for _, loss in sorted(curve(saved).items())]
        return {"iterations": steps, "moved_at": at, "stages": plan["pipeline_parallel"],
                "lost_iterations": moved["lost_iterations"],
                "losses": len(losses), "losses_unequal": sum(a != b for a, b in zip(losses, undisturbed["losses"])),
                "weights_unequal": len(differences(state_of(saved), expected)), "leftover_processes": len(c.left)}
