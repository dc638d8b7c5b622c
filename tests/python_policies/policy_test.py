"""troupe.policy without Troupe: decide() of the example on objects of a test."""

import importlib.util
import sys
import unittest
from types import SimpleNamespace

import troupe

spec = importlib.util.spec_from_file_location("shortest_first", sys.argv.pop())
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def job(name, samples_left, never=""):
    return SimpleNamespace(
        name=name, samples_left=samples_left, plans=[SimpleNamespace(samples_per_s=2)], never=never
    )


class Snapshot:
    def __init__(self, waiting, room):
        self.waiting = waiting
        self.room = room

    def place(self, job):
        if self.room == 0:
            return None
        self.room -= 1
        return SimpleNamespace(plan=job.plans[0], where=[(0, 1)])


class Decisions(unittest.TestCase):
    def test_the_shortest_job_starts_first(self):
        long, short = job("long", 100), job("short", 10)
        made = list(example.ShortestFirst().decide(Snapshot([long, short], 1), None))
        self.assertEqual(made, [troupe.start(short, short.plans[0], [(0, 1)])])

    def test_a_job_that_can_never_run_is_given_up(self):
        large = job("large", 1, "no plan fits it")
        made = list(example.ShortestFirst().decide(Snapshot([large], 1), None))
        self.assertEqual(made, [troupe.give_up(large, "no plan fits it")])

    def test_decisions_differ_by_what_they_are(self):
        one = job("one", 1)
        self.assertNotEqual(troupe.stop(one), troupe.give_up(one, ""))
        self.assertNotEqual(troupe.start(one, None, []), troupe.move(one, None, []))

    def test_a_policy_without_decide_says_so(self):
        with self.assertRaisesRegex(NotImplementedError, "decide"):
            troupe.Policy().decide(None, None)


unittest.main()
