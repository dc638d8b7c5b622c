"""troupe.simulate against the program's own --json. $TROUPE_PROGRAM is the program; without it nothing is tested."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

here = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(here.parents[1] / "python"))

from troupe.errors import CommandError, Error, Missing  # noqa: E402
from troupe import estimate, plan, simulate  # noqa: E402

program = os.environ.get("TROUPE_PROGRAM")
cluster = here / "cluster.yaml"
policies = ["troupe", "fcfs"]
jobs = [
    {"submit_s": 0, "duration_s": 100, "gpus": 1},
    {"submit_s": 10, "duration_s": 200, "gpus": 2},
    {"submit_s": 20, "duration_s": 50, "gpus": 1, "dataset_card": ["text", "code"]},
]
job = {"name": "a", "model": "gpt2-350m", "global_batch": 8, "gpus": 2, "memory_gb": 10, "command": ["true"]}
measured = ("decision_us", "wall_s", "solve_ms")


def setUpModule():
    if not program:
        raise unittest.SkipTest("TROUPE_PROGRAM is not set: no program to test")


def own(*words, text=""):
    ended = subprocess.run([program, *map(str, words), "--json"], input=text, capture_output=True, text=True)
    return json.loads(ended.stdout)


def without_times(records):
    return [{k: v for k, v in record.items() if k not in measured} for record in records]


class Simulations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe-simulate-")
        self.addCleanup(folder.cleanup)
        self.trace = Path(folder.name, "trace.csv")
        rows = ["1,0,100,1,", "2,10,200,2,", "3,20,50,1,text;code"]
        self.trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus,dataset_card", *rows]) + "\n")

    def test_two_policies_have_the_records_of_the_program(self):
        expected = own("simulate", "--cluster", cluster, "--trace", self.trace, "--policy", ",".join(policies))
        for given in ({"trace": self.trace}, {"trace": str(self.trace)}, {"jobs": jobs}):
            with self.subTest(given=given):
                results = simulate(cluster=cluster, policies=policies, **given)
                self.assertEqual([r["policy"] for r in results.records], policies)
                self.assertEqual(without_times(results.records), without_times(expected["policies"]))

    def test_seed_faults_and_other_options_reach_the_program(self):
        faults = self.trace.with_name("faults.yaml")
        faults.write_text("name: crash\ncrashes: [{host: n-0, at_s: 30, down_s: 60}]\n")
        words = ["--cluster", cluster, "--trace", self.trace, "--policy", "fcfs", "--seed", "7", "--workload", "as-is"]
        expected = own("simulate", *words, "--faults", faults)
        results = simulate(cluster=cluster, jobs=jobs, policies=["fcfs"], seed=7, faults=faults, workload="as-is")
        self.assertEqual((results.document["seed"], results.document["workload"]), (7, "as-is"))
        self.assertEqual(without_times(results.records), without_times(expected["policies"]))
        calm = simulate(cluster=cluster, jobs=jobs, policies=["fcfs"], seed=7, workload="as-is")
        self.assertNotEqual(results.records[0]["fingerprint"], calm.records[0]["fingerprint"])

    def test_each_policy_has_a_row_a_job(self):
        results = simulate(cluster=cluster, jobs=jobs, policies=policies)
        for policy, record in zip(policies, results.records):
            rows = results.jobs(policy)
            self.assertEqual([row["job"] for row in rows], [1, 2, 3])
            self.assertEqual({row["state"] for row in rows}, {"finished"})
            mean = sum(row["end_s"] - row["submit_s"] for row in rows) / len(rows)
            self.assertAlmostEqual(mean, record["average_jct_s"], delta=0.002)
        with self.assertRaisesRegex(Error, "'sia'.*troupe, fcfs"):
            results.jobs("sia")

    def test_job_files_are_submitted_at_their_times(self):
        file = self.trace.with_name("job.yaml")
        file.write_text(json.dumps({**job, "iterations": 100}))
        rows = simulate(cluster=cluster, files=[str(file), f"{file}@40"]).jobs("troupe")
        self.assertEqual([(row["name"], row["submit_s"]) for row in rows], [("a", 0), ("a", 40)])

    def test_a_frame_needs_pandas(self):
        results = simulate(cluster=cluster, jobs=jobs, policies=policies)
        with mock.patch.dict(sys.modules, {"pandas": None}):
            with self.assertRaisesRegex(Missing, "pandas"):
                results.frame()
        with mock.patch.dict(sys.modules, {"pandas": mock.Mock(DataFrame=tuple)}):
            self.assertEqual(results.frame(), tuple(results.records))

    def test_bad_simulations_are_refused(self):
        with self.assertRaises(TypeError):
            simulate(cluster=cluster)
        with self.assertRaises(TypeError):
            simulate(cluster=cluster, trace=self.trace, jobs=jobs)
        with self.assertRaisesRegex(CommandError, "did you mean 'troupe'"):
            simulate(cluster=cluster, jobs=jobs, policies=["troup"])
        with self.assertRaisesRegex(Error, "expected no comma"):
            simulate(cluster=cluster, jobs=[{**jobs[0], "model": "a,b"}])
        self.trace.write_text("job_id,submit_s,duration_s,gpus\n1,0,100,none\n")
        with self.assertRaises(CommandError) as raised:
            simulate(cluster=cluster, trace=self.trace)
        self.assertEqual((raised.exception.file, raised.exception.line), (str(self.trace), 2))


class Plans(unittest.TestCase):
    def test_a_plan_is_that_of_the_program(self):
        expected = own("plan", "-", "--cluster", cluster, "--policy", "fcfs", text=json.dumps(job))
        self.assertTrue(expected["feasible"])
        self.assertEqual(plan(job, cluster, "fcfs"), expected)
        self.assertEqual(plan(json.dumps(job), cluster.read_text(), policy="fcfs"), expected)

    def test_a_job_that_does_not_fit_has_a_reason_and_no_error(self):
        answer = plan({**job, "gpus": 64}, cluster)
        self.assertFalse(answer["feasible"])
        self.assertIn("64 GPUs", answer["reason"])

    def test_an_estimate_is_that_of_the_program(self):
        stages = ["A100-40GB:12", "A100-40GB:12"]
        words = ["--cluster", cluster, "--stages", ",".join(stages), "--data-parallel", "2"]
        expected = own("estimate", "-", *words, text=json.dumps(job))
        self.assertEqual(len(expected["stages"]), 2)
        self.assertEqual(estimate(job, cluster, stages, data_parallel=2), expected)


if __name__ == "__main__":
    unittest.main()
