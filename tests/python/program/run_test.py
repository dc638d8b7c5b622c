import os
import signal
import time

from support import Scratch, lines_of, until

# It says that it is there, and counts the signals that it gets.
COUNTS = """
import os, signal, sys, time
count = 0
def note(number, frame):
    global count
    count += 1
    with open(name, "a") as file: print(count, file=file)
name = sys.argv[1] + os.environ["RANK"]
signal.signal(signal.SIGTERM, note)
signal.signal(signal.SIGINT, note)
open(name, "w").close()
while not os.path.exists(sys.argv[1] + "end"): time.sleep(0.01)
"""
SLEEPS = """
import os, signal, sys, time
if "deaf" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), file=open(sys.argv[1] + os.environ["RANK"], "w"))
others = [sys.argv[1] + str(i) for i in range(int(os.environ["WORLD_SIZE"]))]
while not all(os.path.exists(f) and os.path.getsize(f) for f in others): time.sleep(0.01)
if os.environ["RANK"] == "1":
    exec(sys.argv[2])
time.sleep(60)
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Launcher(Scratch):
    def environments(self, nproc, **more):
        program = self.write("says.py", "import os, sys\nos.write(1, (' '.join(os.environ[v] for v in sys.argv[1:]) + '\\n').encode())")
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
        out, err = self.launch(*nproc, program, *names, **more).communicate(timeout=60)
        self.assertEqual(err, "")
        return sorted(line.split() for line in out.splitlines())

    def test_outside_troupe_a_node_is_alone(self):
        first, second = self.environments(["--nproc", 2])
        self.assertEqual(first[:6], ["0", "0", "2", "2", "0", "127.0.0.1"])
        self.assertEqual(second[:6], ["1", "1", "2", "2", "0", "127.0.0.1"])
        self.assertEqual(first[6], second[6])
        self.assertEqual(len(self.environments([])), 1)

    def test_a_node_s_ranks_begin_at_its_first(self):
        found = self.environments([], RANK=3, WORLD_SIZE=5, LOCAL_WORLD_SIZE=2, NODE_RANK=1, MASTER_ADDR="east", MASTER_PORT=7)
        self.assertEqual(found, [["3", "0", "5", "2", "1", "east", "7"], ["4", "1", "5", "2", "1", "east", "7"]])

    def test_another_number_of_processes_than_the_node_s_is_refused(self):
        process = self.launch("--nproc", 3, "x.py", RANK=0, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2)
        self.assertIn("found 3, expected LOCAL_WORLD_SIZE, 2", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 2)

    def test_modules_and_arguments_are_passed_on(self):
        out, _ = self.launch("-m", "json.tool", "--help").communicate(timeout=60)
        self.assertIn("usage", out)

    def status(self, of_rank_1, *arguments, nproc=2, **more):
        program = self.write("sleeps.py", SLEEPS)
        process = self.launch("--grace", 0.5, "--nproc", nproc, program, self.path("pid"), of_rank_1, *arguments, **more)
        process.communicate(timeout=60)
        pids = [int(lines_of(self.path(f"pid{i}"))[0]) for i in range(nproc)]
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        return process.returncode

    def test_a_failure_ends_the_others_and_is_the_status(self):
        self.assertEqual(self.status("sys.exit(7)", nproc=3), 7)

    def test_a_process_that_ignores_sigterm_is_killed(self):
        self.assertEqual(self.status("sys.exit(7)", "deaf"), 7)

    def test_a_signal_is_128_and_its_number(self):
        self.assertEqual(self.status("os.kill(os.getpid(), 11)"), 128 + 11)

    def test_out_of_memory_counts_before_its_consequences(self):
        from troupe import run

        os.environ["TROUPE_OOM_EXIT"] = "78"
        self.addCleanup(os.environ.pop, "TROUPE_OOM_EXIT")
        self.assertEqual(run.worst([1, 78, 139]), 78)
        self.assertEqual(run.worst([1, 139]), 139)
        self.assertEqual(run.worst([]), 0)

    def test_each_process_gets_a_signal_once(self):
        program = self.write("counts.py", COUNTS)
        # A node signals its program's group; outside Troupe kill(1) signals the launcher, a terminal its group.
        for i, (number, send, more) in enumerate([(signal.SIGTERM, os.killpg, {"TROUPE_LEASE": 1}),
                                                  (signal.SIGTERM, os.kill, {}), (signal.SIGINT, os.killpg, {}),
                                                  (signal.SIGTERM, os.killpg, {})]):
            process = self.launch("--nproc", 2, program, self.path(f"count{i}-"), **more)
            files = [self.path(f"count{i}-{rank}") for rank in (0, 1)]
            until(lambda: all(map(os.path.exists, files)))
            # Two signals that are pending together are one: the launcher acts when the processes have had the group's.
            os.kill(process.pid, signal.SIGSTOP)
            send(process.pid, number)
            if more:
                until(lambda: all(map(lines_of, files)))
            os.kill(process.pid, signal.SIGCONT)
            until(lambda: all(map(lines_of, files)))
            time.sleep(0.2)
            self.write(f"count{i}-end", "")
            process.communicate(timeout=60)
            self.assertEqual(([lines_of(f) for f in files], process.returncode), ([["1"], ["1"]], 0), (i, number))

    # One that dies of SIGTERM must not cost another its time to save.
    def test_one_that_saves_is_not_ended_by_one_that_does_not(self):
        program = self.write("saves.py", """
import os, signal, sys, time
def note(text):
    with open(sys.argv[1] + "saved", "a") as file: print(text, file=file)
def save(number, frame):
    note("signal")
    time.sleep(0.5)
    note("saved")
    sys.exit(0)
if os.environ["RANK"] == "0": signal.signal(signal.SIGTERM, save)
open(sys.argv[1] + os.environ["RANK"], "w").close()
time.sleep(60)
""")
        process = self.launch("--grace", 20, "--nproc", 2, program, self.path("f"))
        until(lambda: os.path.exists(self.path("f0")) and os.path.exists(self.path("f1")))
        process.terminate()
        process.communicate(timeout=60)
        self.assertEqual(lines_of(self.path("fsaved")), ["signal", "saved"])
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def test_no_process_outlives_a_killed_launcher(self):
        program = self.write("sleeps.py", SLEEPS)
        process = self.launch("--nproc", 2, program, self.path("pid"), "pass")
        until(lambda: all(lines_of(self.path(f"pid{i}")) for i in (0, 1)))
        pids = [int(lines_of(self.path(f"pid{i}"))[0]) for i in (0, 1)]
        self.assertTrue(all(map(alive, pids)))
        process.kill()
        until(lambda: not any(map(alive, pids)), 10)

    def helper(self):
        """A rank that has started a process in a session of its own, and that process."""
        program = self.write("helps.py", """
import os, signal, subprocess, sys, time
helper = subprocess.Popen(["setsid", "sleep", "1000"])
time.sleep(0.2)
print(helper.pid, file=open(sys.argv[1] + ".new", "w"))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while not os.path.exists(sys.argv[1] + "end"): time.sleep(0.01)
""")
        process = self.launch(program, self.path("helper"))
        until(lambda: lines_of(self.path("helper")))
        return process, int(lines_of(self.path("helper"))[0])

    def test_nothing_that_a_rank_has_started_outlives_the_launcher(self):
        for end in (self.kill_launcher, self.kill_its_process, self.finish):
            process, helper = self.helper()
            self.assertTrue(alive(helper))
            end(process)
            until(lambda: not os.path.exists(f"/proc/{helper}"), 10)  # and no zombie is left either
            process.communicate(timeout=60)
            os.remove(self.path("helper"))

    def kill_launcher(self, process):
        process.kill()

    def kill_its_process(self, process):
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            os.kill(int(file.read().split()[0]), signal.SIGKILL)

    def finish(self, process):
        self.write("helperend", "")

    def test_who_failed_and_who_was_ended_is_said_and_reported(self):
        program = self.write("sleeps.py", SLEEPS)
        report = self.write("report", "iteration: 3")
        process = self.launch("--grace", 20, program, self.path("pid"), "sys.exit(7)", RANK=0, WORLD_SIZE=4, LOCAL_WORLD_SIZE=4,
                              TROUPE_REPORT=report, TROUPE_LEASE=1)
        err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 7)
        self.assertIn("troupe.run: rank 1 ended with exit status 7\n", err)
        self.assertIn("troupe.run: therefore ends ranks 0, 2, 3: SIGTERM, and SIGKILL after 20 s\n", err)
        self.assertEqual([line for line in lines_of(report) if line], ["iteration: 3", "failed_rank: 1"])

    def test_output_is_not_kept_back_unless_that_is_wanted(self):
        program = self.write("says.py", "import os; print(os.environ['PYTHONUNBUFFERED'])")
        self.assertEqual(self.launch(program).communicate(timeout=60)[0], "1\n")
        self.assertEqual(self.launch(program, PYTHONUNBUFFERED=0).communicate(timeout=60)[0], "0\n")
