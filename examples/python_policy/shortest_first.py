"""Shortest job first, as in examples/my_policy: the same decisions, in Python."""

import troupe


def remaining_s(job):
    """Seconds that the job still takes on its best plan."""
    return job.samples_left / job.plans[0].samples_per_s


class ShortestFirst(troupe.Policy):
    name = "shortest_first_py"

    def decide(self, s, random):
        able = []
        for job in s.waiting:
            if job.never:
                yield troupe.give_up(job, job.never)
            else:
                able.append(job)
        for job in sorted(able, key=remaining_s):
            if at := s.place(job):  # on what earlier decisions of this call leave idle
                yield troupe.start(job, at.plan, at.where)

    def why_waiting(self, s, job):
        return "shorter jobs come first" if s.place(job) else "its GPUs are in use"
