"""Faults that bench_tuning.py plants into the package, for tests that see them found."""

from troupe.layers import loss as losses
from troupe.models import adapter as adapters, blocks, rows as row_files


def plant_mean_of_means():
    """Micro-batches count equally, whatever is in them."""
    def total(self, key, indices):
        return float(self._weight_here)

    parsed = losses.Loss.root

    def root(self, output, target, global_batch, scale):
        self._weight_here = int((target != -100).sum()) * self._microbatches
        return parsed(self, output, target, global_batch, scale)

    losses.Loss._total_weight, losses.Loss.root = total, root


def plant_prompt_tokens():
    """All tokens are targets."""
    def get(self, index):
        self._trained[:] = 1
        return found(self, index)

    found = row_files.Rows.__getitem__
    row_files.Rows.__getitem__ = get


def plant_attention_across():
    """Examples of a row see each other."""
    from troupe.models import attention

    blocks.attend = lambda q, k, v, positions, window=0: attention._attend(q, k, v, window)


def plant_rate_off_by_one():
    """A training that is resumed begins with the rate of the update before."""
    from troupe.layers import stage, updates

    load = stage.Stage.load

    def loaded(self, *arguments):
        self._program.late = True
        return load(self, *arguments)

    step = updates.Updates.step

    def stepped(self, iteration):
        return step(self, iteration - 1 if getattr(self._program, "late", False) else iteration)

    stage.Stage.load, updates.Updates.step = loaded, stepped


def plant_scale_missing():
    """The adapter's product counts once, whatever alpha is."""
    of = adapters.Adapters.of

    def unscaled(self, name, wide, out):
        found = of(self, name, wide, out)
        return found and (found[0], found[1], 1.0)

    adapters.Adapters.of = unscaled


in_process = {name[len("plant_"):]: f for name, f in list(globals().items()) if name.startswith("plant_")}
