import unittest

from troupe import order
from troupe.program import Run


def runs(world_size, batch, seed=0):
    return [Run({"RANK": str(r), "WORLD_SIZE": str(world_size)}, seed, batch) for r in range(world_size)]


class Order(unittest.TestCase):
    def test_every_epoch_has_every_sample_once(self):
        for length in (1, 2, 3, 5, 16, 17, 97, 1000, 4097):
            for epoch in (0, 1, 7):
                found = order.samples(epoch * length, length, length, seed=3)
                self.assertEqual(sorted(found), list(range(length)), (length, epoch))

    def test_epochs_and_seeds_have_different_orders(self):
        first = order.samples(0, 1000, 1000, seed=1)
        self.assertNotEqual(first, order.samples(1000, 1000, 1000, seed=1))
        self.assertNotEqual(first, order.samples(0, 1000, 1000, seed=2))
        self.assertNotEqual(first, sorted(first))

    def test_no_sample_prefers_a_place(self):
        places = [0] * 10
        for seed in range(5000):
            places[order.permuted(3, 10, seed)] += 1
        self.assertGreater(min(places), 400)
        self.assertLess(max(places), 600)

    def test_neighbours_are_far_from_each_other(self):
        found = order.samples(0, 10000, 10000, seed=1)
        adjacent = sum(abs(a - b) == 1 for a, b in zip(found, found[1:]))
        self.assertLess(adjacent, 10)  # 2 are expected

    # Another implementation has to give these: they are the order of data of every job there is.
    def test_the_order_is_that_of_every_version(self):
        self.assertEqual(order.samples(0, 8, 10, seed=0), RECORDED_10)
        self.assertEqual(order.samples(3 * 1281167, 4, 1281167, seed=42), RECORDED_LONG)

    def test_shares_add_up_and_differ_by_at_most_one(self):
        for batch in (1, 2, 7, 64, 65):
            for world_size in (1, 2, 3, 5, 8, 70):
                shares = [run.share() for run in runs(world_size, batch)]
                self.assertEqual(sum(shares), batch)
                self.assertLessEqual(max(shares) - min(shares), 1)

    def test_any_number_of_ranks_reads_the_same_global_batch(self):
        for iteration in (0, 5, 14, 15):  # 15 begins in one epoch and ends in the next
            whole = runs(1, 65, seed=9)[0].indices(iteration, 1000)
            self.assertEqual(len(whole), 65)
            for world_size in (2, 3, 8, 70):
                parts = [run.indices(iteration, 1000) for run in runs(world_size, 65, seed=9)]
                self.assertEqual(sum(parts, []), whole)

    def test_a_resized_job_reads_each_sample_once_an_epoch(self):
        read = []
        for iteration in range(10):
            world_size = (1, 2, 3)[iteration % 3]
            for run in runs(world_size, 50):
                read += run.indices(iteration, 500)
        self.assertEqual(sorted(read), list(range(500)))

    def test_a_batch_may_be_larger_than_the_dataset(self):
        found = runs(1, 10)[0].indices(0, 4)
        self.assertEqual(sorted(found[:4]), [0, 1, 2, 3])
        self.assertEqual(sorted(found[4:8]), [0, 1, 2, 3])


RECORDED_10 = [2, 9, 7, 4, 6, 1, 3, 8]
RECORDED_LONG = [64115, 58303, 975576, 324388]
