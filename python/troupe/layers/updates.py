"""The updates of a stage's parameters: its optimizers and their schedules."""

from troupe.layers.optimizers import Optimizer, first_state
from troupe.layers.randomness import Watch, own_generators
from troupe.seeds import seed_of


class Updates:
    """One optimizer of all parameters, or, if `draws`, one of each: then the numbers that it draws depend neither on the cut
    nor on the other parameters. named: (name, parameter) pairs."""

    def __init__(self, program, named, seed, generators, draws=False):
        self._seed, self._program = seed, program
        parts = [[pair] for pair in named] if draws else [named]
        self._parts = [(part[0][0] if draws else "all", Optimizer(program, part)) for part in parts]
        self._own = [generators.with_own(_own(x)) for _, x in self._parts]

    @property
    def left_out(self):
        """Names of parameters that optimizer() does not take."""
        return [name for _, x in self._parts for name in x.left_out]

    @property
    def optimizers(self):
        return [x for _, x in self._parts]

    def step(self, iteration):
        rate = self._program.rate(iteration)
        for (part, optimizer), generators in zip(self._parts, self._own):
            optimizer.set_rate(rate)
            optimizer.step(lambda: generators.seed(seed_of(self._seed, iteration, "update", part)),
                           lambda: generators.seed(seed_of(self._seed, iteration, "schedule")))

    def state(self):
        return {name: values for _, x in self._parts for name, values in x.state().items()}

    def saved(self, put):
        """[(names of parameters, SavedState)] of each optimizer."""
        return [({*x.saved_names()}, x.saved(put)) for _, x in self._parts]

    def restore(self, found):
        """found(names): the SavedState of parameters of these names. Texts about options that the file gives otherwise now."""
        return [text for _, x in self._parts for text in x.restore(found(x.saved_names()))]


def probed(program, named):
    """(bytes of the state, whether a step draws random numbers) of an optimizer of such parameters, found with copies."""
    watch = Watch()
    stepped = first_state(program, named)
    if stepped is None:
        return 0, False
    return stepped.bytes(), bool(watch.drawn()) or bool(_own(stepped))


def _own(optimizer):
    return own_generators(optimizer.optimizer, optimizer.schedule)
