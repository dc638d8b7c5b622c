"""Policies in Python: a class that derives from Policy, and the decisions that it makes.

    class ShortestFirst(troupe.Policy):
        name = "shortest_first"

        def decide(self, s, random):
            for job in sorted(s.waiting, key=lambda j: j.samples_left / j.plans[0].samples_per_s):
                if at := s.place(job):
                    yield troupe.start(job, at.plan, at.where)

docs/python_policies.md describes what `s` has. This module works without Troupe: a test can give `decide` any objects.
"""

__all__ = ["Decision", "Policy", "give_up", "move", "start", "stop"]


class Decision:
    """One decision of a policy: made by start(), stop(), move() and give_up()."""

    __slots__ = ("kind", "job", "plan", "where", "why")

    def __init__(self, kind, job, plan=None, where=(), why=""):
        self.kind = kind
        self.job = job
        self.plan = plan
        self.where = where
        self.why = why

    def __repr__(self):
        return f"Decision({self.kind!r}, {self.job!r}, {self.plan!r}, {self.where!r}, {self.why!r})"

    def __eq__(self, other):
        if not isinstance(other, Decision):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None


class Policy:
    """Decides what runs where.

    The same snapshot and random numbers must give the same decisions: a policy keeps nothing between calls and
    reads no clock and no file.
    """

    #: 1 to 64 characters of a-z, 0-9, _ and -: results are called by it.
    name = ""
    #: Seconds between two decisions; 0: one at every arrival and departure.
    round_s = 0
    #: Numbers that --policy-option sets: the names of attributes, each with its least and its greatest value. An
    #: attribute that is an int gets whole numbers alone.
    parameters = {}
    #: Seconds within which decide() and why_waiting() must answer.
    limit_s = 60

    def decide(self, s, random):
        """Decisions, in order: a generator or a list. `s` and its objects are valid during the call."""
        raise NotImplementedError("a policy has decide(self, s, random)")

    def why_waiting(self, s, job):
        """Why a job waits, as a sentence for people."""
        return "the policy has not started it yet"


def start(job, plan, where, why=""):
    """Start a waiting job; `where` is s.place()'s, or a list of pairs of a node and a number of GPUs."""
    return Decision("start", job, plan, where, why)


def stop(job):
    """Stop a running job. It returns to the queue with its progress."""
    return Decision("stop", job)


def move(job, plan, where, why=""):
    """Stop a running job and start it elsewhere; its new GPUs are kept for it."""
    return Decision("move", job, plan, where, why)


def give_up(job, why):
    """End a job that no plan can ever run; `why` is a sentence for its user."""
    return Decision("give_up", job, None, (), why)
