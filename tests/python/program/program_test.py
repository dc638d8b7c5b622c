import os
import subprocess
import sys
import threading
import time
import unittest

import troupe
from support import Scratch, environment, lines_of
from troupe.program import Run


class Program(Scratch):
    def run_of(self, **more):
        return Run({"TROUPE_REPORT": self.path("report"), "TROUPE_CONTROL": self.path("control"), "TROUPE_GLOBAL_BATCH": "8",
                    "TROUPE_ITERATIONS": "10", **{k: str(v) for k, v in more.items()}})

    def reported(self):
        return dict(line.split(": ") for line in lines_of(self.path("report")))

    def request_stop(self):
        self.write("new", "stop: 1\nwithin_s: 60\n")
        os.replace(self.path("new"), self.path("control"))

    def test_outside_troupe_it_is_rank_0_of_1(self):
        run = Run({}, global_batch=4, iterations=3)
        self.assertEqual((run.rank, run.world_size, run.local_rank, run.node_rank), (0, 1, 0, 0))
        self.assertEqual((run.lease, run.attempt, run.resume_from, run.grace_s), (0, 1, 0, None))
        self.assertEqual(list(run.steps()), [0, 1, 2])
        run.report(3, loss=1.0)
        run.saved(3)
        run.finish()
        self.assertFalse(run.should_stop())

    def test_the_environment_says_who_it_is(self):
        run = self.run_of(RANK=3, WORLD_SIZE=4, LOCAL_RANK=1, NODE_RANK=1, TROUPE_LEASE=17, TROUPE_ATTEMPT=2,
                          TROUPE_ITERATION=6, TROUPE_GRACE_S="2.5")
        self.assertEqual((run.rank, run.world_size, run.local_rank, run.node_rank), (3, 4, 1, 1))
        self.assertEqual((run.global_batch, run.iterations, run.lease, run.attempt), (8, 10, 17, 2))
        self.assertEqual((run.resume_from, run.grace_s), (6, 2.5))
        self.assertEqual(list(run.steps()), [6, 7, 8, 9])

    def test_the_jobs_numbers_count_before_the_programs(self):
        self.assertEqual(Run({"TROUPE_ITERATIONS": "10"}, iterations=3).iterations, 10)

    def test_without_the_jobs_number_the_node_is_told_the_programs(self):
        def said(rank, iterations, **more):
            files = {"TROUPE_REPORT": self.path(f"report{rank}"), "RANK": str(rank), "WORLD_SIZE": "2"}
            run = Run({**files, **more}, iterations=iterations)
            return run.iterations, dict(line.split(": ") for line in lines_of(self.path(f"report{rank}")))

        self.assertEqual(said(0, 30), (30, {"last": "30", "control": "1"}))
        self.assertEqual(said(0, 30, TROUPE_ITERATIONS="10"), (10, {"control": "1"}))
        self.assertEqual(said(0, None), (None, {"control": "1"}))
        self.assertEqual(said(1, 30), (30, {"control": "1"}))  # one rank's report is enough

    def test_without_any_number_of_iterations_steps_says_what_is_missing(self):
        run = Run({"TROUPE_REPORT": self.path("report"), "TROUPE_JOB": "1"})
        with self.assertRaisesRegex(troupe.Missing, r"found no TROUPE_ITERATIONS, expected it or init\(iterations=N\)"):
            list(run.steps())
        with self.assertRaisesRegex(troupe.Missing, r"found no TROUPE_GLOBAL_BATCH, expected it or init\(global_batch=N\)"):
            run.share()

    def test_a_number_of_iterations_that_is_none_is_refused(self):
        for wrong in (2.5, -1, "30", True):
            with self.assertRaisesRegex(troupe.BadReport, "iterations: found"):
                Run({}, iterations=wrong)

    def test_a_variable_that_is_no_number_is_named(self):
        with self.assertRaisesRegex(troupe.Missing, "WORLD_SIZE: found 'two'"):
            self.run_of(WORLD_SIZE="two")

    def test_the_first_report_says_that_the_control_file_is_read(self):
        self.run_of()
        self.assertEqual(self.reported(), {"control": "1"})

    # Each node reads the report of its own processes before it decides whether to send SIGTERM.
    def test_the_first_process_of_each_node_says_it_and_no_other(self):
        self.run_of(RANK=3, WORLD_SIZE=4, LOCAL_RANK=1)
        self.assertEqual(self.reported(), {})
        run = self.run_of(RANK=2, WORLD_SIZE=4, LOCAL_RANK=0)
        run.report(1, loss=2.0)
        run.saved(1)
        run.finish()
        self.assertEqual(self.reported(), {"control": "1", "finished": "1"})

    def test_a_save_is_written_at_once_with_all_that_is_known(self):
        run = self.run_of(TROUPE_ITERATION=4)
        run.report(5, loss=0.5)
        run.report(6, loss=0.25)
        run.saved(6)
        found = self.reported()
        self.assertGreaterEqual(float(found.pop("step_s")), 0)
        self.assertEqual(found, {"control": "1", "resumed": "4", "iteration": "6", "loss": "0.25", "saved": "6"})
        run.finish()
        self.assertEqual(self.reported()["finished"], "1")

    def test_reports_between_are_written_every_half_second(self):
        run = self.run_of()
        run.report(1)
        self.assertNotIn("iteration", self.reported())
        run._report._written_at -= 0.5
        run.report(2)
        self.assertEqual(self.reported()["iteration"], "2")
        run.report(3)
        self.assertEqual(self.reported()["iteration"], "2")

    def test_what_was_not_written_is_written_at_exit(self):
        program = "import troupe; run = troupe.init(); run.report(1); run.report(2)"
        subprocess.run([sys.executable, "-c", program], env=environment(TROUPE_REPORT=self.path("report")), check=True)
        self.assertEqual(self.reported()["iteration"], "2")

    def test_a_forked_child_does_not_write_its_parents_report(self):
        program = ("import os, troupe; run = troupe.init(); run.report(1)\n"
                   "if os.fork() == 0: raise SystemExit\n"
                   "os.wait(); assert 'iteration' not in open(os.environ['TROUPE_REPORT']).read()")
        subprocess.run([sys.executable, "-c", program], env=environment(TROUPE_REPORT=self.path("report")), check=True)

    def test_a_reader_never_sees_half_a_report(self):
        run = self.run_of()
        run.report(1)
        run.saved(1)
        done, wrong = threading.Event(), []

        def read():
            while not done.is_set():
                found = self.reported()
                if found.get("iteration") is None or int(found["saved"]) > int(found["iteration"]):
                    wrong.append(found)

        reader = threading.Thread(target=read)
        reader.start()
        for i in range(2, 500):
            run.report(i)
            run.saved(i)
        done.set()
        reader.join()
        self.assertEqual(wrong, [])

    def test_a_full_disk_does_not_end_the_program(self):
        program = "import troupe; run = troupe.init(); run.report(1); run.saved(1); run.finish()"
        ended = subprocess.run([sys.executable, "-c", program], env=environment(TROUPE_REPORT=self.path("no/such/folder")),
                               check=True, capture_output=True, text=True)
        self.assertEqual(ended.stderr.count("the report cannot be written"), 1)

    def test_a_step_is_the_median_of_the_last_32(self):
        run = self.run_of()
        now = [0.0]
        real, time.monotonic = time.monotonic, lambda: now[0]
        try:
            for i, seconds in enumerate([100] + [9] * 20 + [2] * 17 + [50] * 15):
                now[0] += seconds
                run.report(i + 1)
            run.saved(1)
        finally:
            time.monotonic = real
        self.assertEqual(float(self.reported()["step_s"]), 2)

    def test_one_report_has_no_time_of_a_step(self):
        run = self.run_of()
        run.report(1)
        run.saved(1)
        self.assertNotIn("step_s", self.reported())

    def test_a_loss_that_is_not_finite_is_not_reported(self):
        run = self.run_of()
        run.report(1, loss=float("nan"))
        run.saved(1)
        self.assertNotIn("loss", self.reported())

    def test_reports_that_cannot_be_true_are_errors(self):
        def error(text, call):
            with self.assertRaisesRegex(troupe.BadReport, text):
                call()

        run = self.run_of(TROUPE_ITERATION=4)
        error("found iteration 3 after 4", lambda: run.report(3))
        run.report(6)
        error("found iteration 5 after 6", lambda: run.report(5))
        error("found saved 7 after iteration 6", lambda: run.saved(7))
        run.saved(6)
        error("found saved 5 after saved 6", lambda: run.saved(5))
        error("found resumed 2 after", lambda: run.resumed(2))
        for value in (1.5, "7", None, True, -1, 10**16):
            error("expected a number of 0", lambda: run.report(value))
        error("loss: found 'low'", lambda: run.report(7, loss="low"))

    def test_a_stop_is_seen_when_the_file_appears_and_from_then_on(self):
        run = self.run_of()
        self.assertFalse(run.should_stop())
        self.request_stop()
        self.assertTrue(run.should_stop())
        os.remove(self.path("control"))
        self.assertTrue(run.should_stop())

    def test_a_file_without_a_request_does_not_stop(self):
        for text in ("", "within_s: 60\n", "stop: 0\n", "stop: soon\n", "stop\n"):
            self.write("control", text)
            self.assertFalse(self.run_of().should_stop(), text)

    def test_steps_end_at_a_stop_with_the_last_report_written(self):
        run = self.run_of()
        for i in run.steps():
            run.report(i + 1)
            if i == 4:
                self.request_stop()
        self.assertEqual(self.reported()["iteration"], "5")

    def test_steps_may_begin_where_the_program_has_resumed(self):
        run = self.run_of(TROUPE_ITERATION=4)
        self.assertEqual(next(run.steps(7)), 7)
        run.report(8)
        run.saved(8)
        self.assertEqual(self.reported()["resumed"], "7")

    def test_numbers_that_nobody_has_said_are_missing(self):
        for call in (lambda r: r.share(), lambda r: r.indices(0, 10), lambda r: next(r.steps())):
            with self.assertRaisesRegex(troupe.Missing, "expected it or init"):
                call(Run({}))


class Fences(Scratch):
    def fence(self, lease):
        return Run({"TROUPE_LEASE": str(lease)}).fence(self.path("saved"))

    def newest(self):
        return lines_of(self.path("saved/fence"))

    def test_an_older_lease_may_not_write(self):
        for lease in (7, 9, 9):
            with self.fence(lease):
                self.assertEqual(self.newest(), [str(lease)])
        with self.assertRaisesRegex(troupe.StaleLease, "lease 9 has it now, lease 8"):
            with self.fence(8):
                self.fail("the body ran")
        self.assertEqual(self.newest(), ["9"])

    def test_an_error_of_the_body_releases_the_lock(self):
        with self.assertRaises(KeyError):
            with self.fence(1):
                raise KeyError
        with self.fence(2):
            pass

    def test_outside_troupe_the_number_stays(self):
        with self.fence(5):
            pass
        with Run({}).fence(self.path("saved")):
            self.assertEqual(self.newest(), ["5"])

    def test_the_number_of_a_built_in_training_is_read(self):
        os.mkdir(self.path("saved"))
        self.write("saved/fence", f"{12:020}\n")
        with self.assertRaises(troupe.StaleLease):
            with self.fence(11):
                pass

    def test_a_file_that_is_no_number_is_an_error(self):
        os.mkdir(self.path("saved"))
        self.write("saved/fence", "twelve\n")
        with self.assertRaisesRegex(troupe.Error, "found 'twelve'"):
            with self.fence(11):
                pass

    # The lines of docs/operating.md, "Fencing".
    SHELL = """exec 9>>"$CHECKPOINTS/fence.lock" && flock 9
newest=$(cat "$CHECKPOINTS/fence" 2>/dev/null || echo 0)
[ "$TROUPE_LEASE" -ge "$newest" ] || exit 1
echo "$TROUPE_LEASE" > "$CHECKPOINTS/fence.new" && mv "$CHECKPOINTS/fence.new" "$CHECKPOINTS/fence"
"""

    def shell(self, lease):
        return subprocess.Popen(["sh", "-c", self.SHELL], env=environment(TROUPE_LEASE=lease, CHECKPOINTS=self.path("saved")))

    def test_a_shell_script_by_the_documented_rule_waits_and_agrees(self):
        with self.fence(7):
            script = self.shell(8)
            with self.assertRaises(subprocess.TimeoutExpired):
                script.wait(0.3)
        self.assertEqual(script.wait(30), 0)
        self.assertEqual(self.newest(), ["8"])
        with self.assertRaises(troupe.StaleLease):
            with self.fence(7):
                pass
        with self.fence(10):
            pass
        self.assertEqual(self.shell(9).wait(30), 1)


class Import(unittest.TestCase):
    def test_it_imports_neither_torch_nor_numpy(self):
        program = ("import sys, troupe; assert len([m for m in sys.modules if m.startswith('troupe')]) == 1\n"
                   "troupe.init().report(1); assert not {'torch', 'numpy'} & set(sys.modules)\n"
                   "assert all(getattr(troupe, name) for name in troupe.__all__)")
        subprocess.run([sys.executable, "-c", program], env=environment(), check=True)

    def test_an_unknown_name_is_an_attribute_error(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            troupe.nothing
