"""troupe.client against a cluster of `troupe up`. $TROUPE_PROGRAM is the program; without it nothing is tested."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

here = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(here.parents[1] / "python"))

from troupe import client
from troupe.client import command  # noqa: E402
from troupe.errors import CommandError, Missing, NotInTroupe  # noqa: E402

program = os.environ.get("TROUPE_PROGRAM")
limit_s = 60


def setUpModule():
    if not program:
        raise unittest.SkipTest("TROUPE_PROGRAM is not set: no program to test")


class ACluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-client-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.state = os.path.join(cls.folder.name, "state")
        # The caller's cluster must not be touched.
        variables = {k: v for k, v in os.environ.items() if k not in ("TROUPE_CONTROLLER", "TROUPE_KEYS")}
        patch = mock.patch.dict(os.environ, {**variables, "TROUPE_STATE": cls.state}, clear=True)
        patch.start()
        cls.addClassCleanup(patch.stop)
        command.run("up", here / "cluster.yaml", detach=True, state=cls.state)
        cls.addClassCleanup(cls.stop)

    @classmethod
    def stop(cls):
        ended = subprocess.run([program, "down", "--state", cls.state], capture_output=True, text=True)
        left = until(lambda: not commands_with(cls.folder.name) or None) is None
        if ended.returncode != 0 or left:
            raise AssertionError(f"down: {ended.stderr}; left: {commands_with(cls.folder.name)}")

    def job(self, script, **more):
        """A job of one GPU, whose command line has this test's folder."""
        words = ["sh", "-c", script, os.path.join(self.folder.name, "job")]
        needs = {"gpus": 1, "memory_gb": 10, **more}
        return {"name": "a", "model": "gpt2-350m", "global_batch": 8, "command": words, **needs}

    def running(self, job):
        self.assertTrue(until(lambda: job.status()["state"] == "running" or None), job.status())

    def file(self, name, text):
        path = Path(self.folder.name, name)
        path.write_text(text)
        return path


class Submissions(ACluster):
    def test_a_dict_a_text_a_name_and_a_path_are_jobs(self):
        description = self.job("echo hello")
        path = self.file("job.yaml", json.dumps(description))
        text = "\n".join(f"{key}: {json.dumps(value)}" for key, value in description.items())
        for given in (description, json.dumps(description), text, str(path), path):
            with self.subTest(given=given):
                job = client.submit(given)
                ended = job.wait(timeout_s=limit_s)
                self.assertEqual((ended["job"], ended["state"], ended["exit_code"]), (job.number, "finished", 0))
                self.assertEqual(job.logs(), "hello\n")

    def test_submit_waits_if_asked_also_for_a_job_that_fails(self):
        job = client.submit(self.job("exit 3"), wait=True)
        status = job.status()
        self.assertEqual((status["state"], status["exit_code"]), ("failed", 3))

    def test_a_bad_job_raises_file_and_line(self):
        bad = self.file("bad.yaml", "name: a\nmodel: gpt2-350m\nglobal_bach: 8\n")
        for given, file in ((bad, str(bad)), (bad.read_text(), "-")):
            with self.assertRaises(CommandError) as raised:
                client.submit(given)
            e = raised.exception
            self.assertEqual((e.code, e.file, e.line), ("invalid", file, 3))
            self.assertIn("missing key 'global_batch'", str(e))

    def test_the_name_of_no_file_is_not_taken_for_a_text(self):
        with self.assertRaises(CommandError) as raised:
            client.submit("none.yaml")
        self.assertEqual((raised.exception.file, raised.exception.line), ("none.yaml", None))
        self.assertIn("no such file", raised.exception.text)

    def test_a_job_that_never_fits_raises_its_need(self):
        with self.assertRaises(CommandError) as raised:
            client.submit(self.job("true", gpus=64))
        self.assertEqual(raised.exception.code, "infeasible")
        self.assertIn("64 GPUs", raised.exception.text)


class Jobs(ACluster):
    def test_wait_gives_up_and_the_job_goes_on_until_cancelled(self):
        job = client.submit(self.job("sleep 600"))
        with self.assertRaises(TimeoutError):
            job.wait(timeout_s=0.5)
        self.running(job)
        self.assertTrue(job.cancel()["cancelled"])
        self.assertEqual(job.wait(timeout_s=limit_s)["state"], "cancelled")

    def test_a_suspended_job_waits_until_it_is_resumed(self):
        go = os.path.join(self.folder.name, "go")
        job = client.submit(self.job(f'until test -e "{go}"; do sleep 0.1; done'))
        self.running(job)
        self.assertTrue(job.suspend()["moved"])
        self.assertEqual(job.status()["state"], "waiting")
        Path(go).touch()
        self.assertEqual(job.status()["state"], "waiting")
        self.assertTrue(job.resume()["moved"])
        ended = job.wait(timeout_s=limit_s)
        self.assertEqual((ended["state"], ended["attempts"]), ("finished", 2))

    def test_what_the_controller_refuses_raises_its_reason(self):
        job = client.submit(self.job("true"))
        job.wait(timeout_s=limit_s)
        for change in (job.suspend, job.cancel, lambda: job.move(stages=2)):
            with self.assertRaises(CommandError) as raised:
                change()
            self.assertIn(f"job {job.number}", raised.exception.text)
        with self.assertRaises(CommandError) as raised:
            client.Job(9999).status()
        self.assertEqual((raised.exception.code, raised.exception.text), ("unknown", "no job 9999"))
        with self.assertRaises(CommandError):
            job.logs(rank=7)

    def training(self, name, iterations):
        data = self.file("text.txt", "All the world is a stage, and all the men and women merely players. " * 50)
        model = {"name": "m", "family": "gpt", "hidden": 16, "layers": 2, "heads": 2, "sequence": 16, "vocabulary": 256}
        train = {"data": str(data), "seed": 1, "checkpoint": os.path.join(self.folder.name, name)}
        shape = {"global_batch": 4, "iterations": iterations, "pipeline": {"microbatches": 4}}
        return {"name": name, "model": model, "train": train, **shape}

    def test_a_training_has_a_curve_in_its_folder_of_checkpoints(self):
        description = self.training("short", 5)
        job = client.submit(description)
        self.assertEqual(job.wait(timeout_s=limit_s)["state"], "finished")
        curve = job.curve()
        self.assertEqual(curve["iteration"], [1, 2, 3, 4, 5])
        self.assertEqual([type(loss) for loss in curve["loss"]], [float] * 5)
        self.assertEqual(client.Job(job.number, description["train"]["checkpoint"]).curve(), curve)
        with self.assertRaisesRegex(Missing, "no folder"):
            client.Job(job.number).curve()
        with self.assertRaisesRegex(Missing, "none yet"):
            client.Job(job.number, self.folder.name).curve()

    def test_the_line_that_is_being_written_is_no_part_of_a_curve(self):
        self.file("curve.csv", "iteration,loss\n1,5.5\n2,5.25\n3,5.")
        self.assertEqual(client.Job(1, self.folder.name).curve(), {"iteration": [1, 2], "loss": [5.5, 5.25]})

    def test_a_training_moves_to_the_given_stages_and_nodes(self):
        job = client.submit(self.training("long", 1000000))
        # Whatever happens, it must not keep the other tests' GPUs.
        self.addCleanup(client.Job.cancel, job)
        self.assertTrue(until(lambda: job.status()["iteration"] or None), job.status())
        for stages, nodes in ((1, ["n-1"]), (2, ["n-0"])):
            answer = job.move(stages=stages, nodes=nodes, data_parallel=1)
            self.assertEqual((answer["moved"], answer["lost_iterations"]), (True, 0))
            status = job.status()
            self.assertEqual(status["plan"]["pipeline_parallel"], stages)
            self.assertEqual([place["node"] for place in status["allocation"]], nodes)
            self.assertTrue(until(lambda: job.status()["state"] == "running" or None), job.status())

    def test_all_jobs_and_nodes_are_listed(self):
        job = client.submit(self.job("true"))
        job.wait(timeout_s=limit_s)
        self.assertIn(job.number, [entry["job"] for entry in client.jobs()])
        self.assertEqual([(n["node"], n["gpus"]) for n in client.nodes(state=self.state)], [("n-0", 2), ("n-1", 2)])


class NoController(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe-client-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_without_an_address_nobody_is_in_troupe(self):
        with self.assertRaises(NotInTroupe) as raised:
            client.jobs(state=self.folder, patience=0.1)
        self.assertIn("no controller found", str(raised.exception))

    def test_an_address_without_a_controller_is_unavailable(self):
        with self.assertRaises(CommandError) as raised:
            client.Job(1, controller=f"ipc://{self.folder}/none", patience=0.1).status()
        self.assertEqual(raised.exception.code, "unavailable")


class TheProgram(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe-client-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def script(self, text):
        path = Path(self.folder, "troupe")
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(stat.S_IRWXU)
        return path

    def test_an_end_without_a_document_raises_the_last_line(self):
        for text, end in (("echo one >&2; echo two >&2; exit 4", "exit status 4"), ("kill -9 $$", "signal 9")):
            with mock.patch.dict(os.environ, {"TROUPE_PROGRAM": str(self.script(text))}):
                with self.assertRaises(CommandError) as raised:
                    command.run("status")
            self.assertIn(end, raised.exception.text)
            self.assertEqual(raised.exception.code, "malformed")

    def test_the_path_is_searched_and_a_missing_program_is_named(self):
        path = self.script("echo '{}'")
        with mock.patch.dict(os.environ, {"TROUPE_PROGRAM": "", "PATH": self.folder}):
            self.assertEqual(command.program(), str(path))
            path.unlink()
            with self.assertRaisesRegex(Missing, "TROUPE_PROGRAM"):
                command.program()
        with mock.patch.dict(os.environ, {"TROUPE_PROGRAM": str(path)}):
            with self.assertRaisesRegex(Missing, "cannot be run"):
                command.run("status")

    def test_the_program_installed_with_the_package_goes_before_the_path(self):
        prefix = Path(self.folder, "prefix")
        shutil.copytree(here.parents[1] / "python" / "troupe", prefix / "lib" / "troupe" / "python" / "troupe")
        (prefix / "bin").mkdir()
        installed = self.script("exit 1").rename(prefix / "bin" / "troupe")
        self.script("exit 2")
        variables = {"PATH": self.folder, "PYTHONPATH": str(prefix / "lib" / "troupe" / "python")}
        code = "from troupe.client import command; print(command.program())"
        printed = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
        self.assertEqual(printed.stdout, f"{installed.resolve()}\n", printed.stderr)

    def test_options_become_words(self):
        given = {"max_gpus": 4, "nodes": ["a", "b"], "wait": True, "json": False, "gpu": None}
        self.assertEqual(command.flags(given), ["--max-gpus=4", "--nodes=a", "--nodes=b", "--wait"])


def until(condition):
    """The condition's value once it is not None; None after the limit."""
    end = time.monotonic() + limit_s
    while (value := condition()) is None and time.monotonic() < end:
        time.sleep(0.05)
    return value


def commands_with(word):
    """Command lines of processes that have the word."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found


if __name__ == "__main__":
    unittest.main()
