"""gpu-day from end to end without a GPU: the build's own programs on the emulated GPU, and stubs of NVIDIA's tools
and of PyTorch.

usage: gpu_day_test.py CHECKOUT TROUPE GPU_TESTS BENCH_GPU_TRAINING
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

checkout, *programs = (pathlib.Path(a).resolve() for a in sys.argv[1:])
gpu_day = checkout / "bench" / "gpu_training" / "gpu-day"
top = pathlib.Path(tempfile.mkdtemp(prefix="gpu-day-test-"))

STUBS = {
    "nvidia-smi": """#!/bin/sh
case "$*" in
  *compute_cap*) echo 9.0 ;;
  *--query-gpu=name,*) echo "name, driver_version"; echo "NVIDIA H100 80GB HBM3, 580.1" ;;
  *--query-gpu=name*) echo "NVIDIA H100 80GB HBM3" ;;
  *--query-gpu=driver_version*) echo 580.1 ;;
  *) echo "NVIDIA-SMI 580.1" ;;
esac
""",
    # As a compiler: its source must be there, and its result is new.
    "nvcc": """#!/bin/sh
[ "$1" != --version ] || { echo "Cuda compilation tools, release 13.0"; exit; }
for a; do case "$a" in *plugin.cu) source=$a ;; esac; done
while [ "$1" != -o ]; do shift; done
grep -q machine_version "$source" && echo "compiled $source" >"$2"
""",
    "compute-sanitizer": """#!/bin/sh
[ "$1 $3 $5" = "--tool --error-exitcode --print-limit" ] || exit 3
echo "========= $2"
shift 6
exec "$@"
""",
    "ncu": """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo report >"$2.ncu-rep"
shift 2
exec "$@"
""",
    # Python with a PyTorch that measures nothing; tests/python trains stages of programs. STUB_AT_CUDNN: who is signalled when it comes to cuDNN's attention.
    "python3": """#!%s
import json, os, signal, sys, time
if sys.argv[1:] and sys.argv[1].endswith("gpu_stages.py"):
    file, check = sys.argv[sys.argv.index("--json") + 1], sys.argv[-1]
    ready = os.access(os.environ["TROUPE_PROGRAM"], os.X_OK) and os.path.isfile(sys.argv[1])
    with open(file, "w") as f:
        json.dump({"check": check, "device": sys.argv[sys.argv.index("--device") + 1]}, f)
    sys.exit(f"{check}: found no program" if not ready else None)
if not sys.argv[1:] or not sys.argv[1].endswith("bench_gpu_training.py"):
    if sys.argv[1:2] == ["-c"]:
        sys.exit("no module named nvidia or torch")
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
words = sys.argv[2:]
if words[0] == "losses":
    losses = os.environ.get("STUB_LOSSES")
    print(json.dumps({"version": "stub", **({"losses": json.loads(losses)} if losses else {"why": "it learns nothing"})}))
    sys.exit()
backend = words[words.index("--backend") + 1] if "--backend" in words else "any"
wanted = os.environ.get("STUB_AT_CUDNN")
if backend == "cudnn" and wanted:
    with open(os.environ["STUB_PID"], "w") as f:
        f.write(str(os.getpid()))
    process = os.getppid()
    while process > 1:
        with open(f"/proc/{process}/cmdline", "rb") as f:
            command = f.read().decode().split("\\0")
        with open(f"/proc/{process}/stat") as f:
            parent = int(f.read().rsplit(")", 1)[1].split()[1])
        if wanted == "limit" and command[0] == "timeout" and any(w.endswith("bench_gpu_training") for w in command):
            os.kill(process, signal.SIGALRM)  # as its clock does at the step's limit
        if wanted == "end" and any(w.endswith("gpu-day") for w in command):
            os.kill(process, signal.SIGTERM)
        process = parent
    time.sleep(600)
print(json.dumps({"version": "stub", "attention": backend, "step_s": 0.5, "median_step_s": 0.6, "tokens_per_s": 128,
                  "median_tokens_per_s": 107, "worst_tokens_per_s": 100, "loss": 5.5, "without": [],
                  "peak_allocated_bytes": 10**9, "peak_reserved_bytes": 10**9, "driver_used_bytes": 2 * 10**9}))
""" % sys.executable,
}


def make_kit():
    kit = top / "kit"
    (kit / "bin").mkdir(parents=True)
    (kit / "lib").mkdir()
    for p in programs:
        (kit / "bin" / p.name).symlink_to(p)
    (kit / "lib" / "libtroupe_cuda.so").write_text("as it was packed\n")
    (kit / "commit.txt").write_text("0123456789abcdef\n")
    (top / "stubs").mkdir()
    for name, text in STUBS.items():
        file = top / "stubs" / name
        file.write_text(text)
        file.chmod(0o755)
    return kit


def run(words, out=None, **more):
    """The exit status and what was printed; files of `out` come back."""
    env = {**os.environ, "PATH": f"{top / 'stubs'}:{os.environ['PATH']}", "TROUPE_TEST_DEVICE": "emulated", "QUICK": "1",
           "STUB_PID": str(top / "stub-pid"), "KIT": str(top / "kit"), "PYTHON": str(top / "stubs" / "python3"), **more}
    env.pop("OUT", None)
    if out:
        env["OUT"] = str(out)
    r = subprocess.run([str(gpu_day), *words], env=env, cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    print(r.stdout)
    return r.returncode, r.stdout


def unpack(out, to):
    """day.tgz, unpacked; the record's steps by name."""
    files = sorted(f.name for f in out.iterdir())
    assert "day.tgz" in files and "summary.txt" in files and len(files) <= 8, files
    assert all(f.endswith(".txt") for f in files if f != "day.tgz"), files
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    with tarfile.open(out / "day.tgz") as day:
        day.extractall(to)
    record = json.loads((to / "record.json").read_text())
    return record, {s["step"]: s for s in record["steps"]}


def part_of(folder, name, part):
    return json.loads((folder / name).read_text())[part]


def all_parts(records):
    parts = ["tests", "losses", "memcheck", "speed", "memory", "profile", "pipeline", "pytorch", "speed350", "racecheck", "initcheck",
             "synccheck", "ncu"]
    out, day = top / "out", records / "2000-01-01-emulated-all"
    status, printed = run(["all"], out)
    assert re.search(r"at most \d+ s", printed), printed
    record, steps = unpack(out, day)
    assert record["device"] == record["card"] == "emulated" and record["quick"] and record["driver"] == "580.1", record
    assert record["commit"] == "0123456789abcdef"
    assert status == 0 and all(s["state"] == "ok" for s in steps.values()), steps
    assert {s["part"] for s in steps.values()} == {"begin", *parts}
    assert (top / "kit" / "lib" / "libtroupe_cuda.so").read_text().startswith("compiled ")
    texts = {f.name for f in out.iterdir()} - {"day.tgz"}
    assert texts == {"summary.txt", *(f"{p}.txt" for p in parts[:5])}, texts
    assert "== kernels" in (out / "tests.txt").read_text() and "All tests passed" in (out / "tests.txt").read_text()
    for name in ("losses", "memory", "kernels", "speed", "speed350"):
        found = part_of(day, f"{name}.json", name.removesuffix("350"))
        assert found["complete"], name
    assert part_of(day, "losses.json", "losses")["within"]
    ratios = part_of(day, "speed.json", "speed")["rows"][0]["ratios"]
    assert ratios["flash"]["attention"] == "flash" and ratios["cudnn"]["attention"] == "cudnn", ratios
    assert part_of(day, "speed.json", "speed")["catalogue"] is None  # an emulated GPU has no peak
    assert "equal bit for bit" in steps["pipeline"]["sentence"], steps["pipeline"]
    assert "by the profile" in steps["estimate"]["sentence"], steps["estimate"]
    for check in ("equal", "kill", "precision", "step"):
        assert json.loads((day / f"pytorch-{check}.json").read_text()) == {"check": check, "device": "cpu"}
    assert "H100" in (day / "speed-clocks-before.txt").read_text()
    assert (day / "attention.ncu-rep").is_file() and (day / "pipeline-timeline.json").is_file()


def no_pytorch_left():
    """PyTorch ends with its step, and leaves the GPU to the next one."""
    pid = top / "stub-pid"
    peer = pathlib.Path("/proc", pid.read_text())
    for _ in range(600):
        if not peer.exists():
            break
        time.sleep(0.1)
    assert not peer.exists(), peer
    pid.unlink()


def killed_at_its_limit():
    out, day = top / "limit", top / "limit-day"
    status, _ = run(["speed"], out, STUB_AT_CUDNN="limit")
    no_pytorch_left()
    record, steps = unpack(out, day)
    assert status == 1 and steps["speed"]["state"] == "killed", steps
    assert steps["speed-clocks-after"]["state"] == "ok"  # what comes after it still runs
    found = part_of(day, "speed.json", "speed")
    row, = found["rows"]
    assert not found["complete"] and row["troupe"]["step_s"] > 0 and row["pytorch_flash"]["step_s"] == 0.5, found
    assert "pytorch_cudnn" not in row
    assert "PyTorch, flash" in (out / "speed.txt").read_text()


def ended_early():
    status, printed = run(["memcheck", "speed"], None, STUB_AT_CUDNN="end")
    no_pytorch_left()
    out, = top.glob("gpu-day-2*")  # its own folder
    record, steps = unpack(out, top / "ended-day")
    assert status == 143 and "speed" not in steps and steps["memcheck"]["state"] == "ok", (status, steps)
    found = part_of(top / "ended-day", "speed.json", "speed")
    assert found["rows"][0]["pytorch_flash"]["step_s"] == 0.5 and not found["complete"], found


def without_tools():
    for tool in ("compute-sanitizer", "ncu"):
        (top / "stubs" / tool).unlink()
    path = f"{top / 'stubs'}:/usr/bin:/bin"
    status, _ = run(["racecheck", "memory"], top / "bare", PATH=path)
    record, steps = unpack(top / "bare", top / "bare-day")
    assert status == 0 and steps["racecheck"]["state"] == "skipped", steps
    assert steps["racecheck"]["sentence"] == "there is no compute-sanitizer here"
    assert steps["facts"]["state"] == steps["memory"]["state"] == "ok", steps


def checked_losses():
    """Status 1 where a loss is too far from the CPU engine's, 77 where there is none to compare with."""
    bench = programs[2]
    for losses, wanted in (("", 77), ("[9.9]", 1), ("[]", 1)):
        env = {**os.environ, "PYTHON": str(top / "stubs" / "python3"), "STUB_LOSSES": losses}
        r = subprocess.run([str(bench), "losses", "--check", "--losses", "1", "--json", str(top / "losses.json")], env=env,
                           capture_output=True, text=True)
        assert r.returncode == wanted, (losses, r)
        assert part_of(top, "losses.json", "losses")["complete"]


def tables_of(records):
    page = top / "page.md"
    source = (checkout / "docs" / "results" / "gpu-2026-11.md").read_text()
    page.write_text(source)
    command = [sys.executable, str(checkout / "bench" / "gpu_training" / "tables.py"), "--records", str(records), "--page",
               str(page)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode != 0 and "it measures nothing" in refused.stderr, refused
    command.append("--allow-emulated")
    assert subprocess.run([*command, "--check"]).returncode != 0
    subprocess.run(command, check=True)
    subprocess.run([*command, "--check"], check=True)
    made = page.read_text()
    for words in ("### emulated, 20", "Driver 580.1, commit 0123456789ab", "| tiny | 2 | PyTorch, cuDNN attention | 128 |",
                  "| engine, emulated, bf16 |", "**Memory.**", "| pipeline | pipeline | ok |"):
        assert words in made, words
    assert "No record yet" not in made
    page.write_text(made.replace("| tiny | 2 |", "| tiny | 3 |", 1))
    assert subprocess.run([*command, "--check"]).returncode != 0
    empty = top / "no-records"
    empty.mkdir()
    command[3] = str(empty)
    subprocess.run(command, check=True)
    assert "No record yet" in page.read_text()


def packed():
    bundle = top / "bundle"
    (bundle / "bin").mkdir(parents=True)
    program = bundle / "bin" / "bench_gpu_training"
    program.write_text("x")
    program.chmod(0o755)
    status, printed = run(["pack", str(bundle), str(top / "packed")])
    assert status == 0 and re.search(r"[\d.]+ MiB; the checkout .*: [\d.]+ MiB; together at most 64", printed), printed
    assert (top / "packed" / "troupe" / "commit.txt").is_file()
    with open(bundle / "large", "wb") as f:
        f.truncate(64 * 2**20)
    status, printed = run(["pack", str(bundle), str(top / "packed")])
    assert status != 0, printed
    status, printed = run(["pack", str(top / "nothing"), str(top / "packed")])
    assert status == 2 and "is no bundle" in printed, printed


make_kit()
try:
    all_parts(top / "records")
    tables_of(top / "records")
    killed_at_its_limit()
    ended_early()
    checked_losses()
    without_tools()
    packed()
    status, printed = run(["tests", "sped"])
    assert status == 2 and "there is no part 'sped'" in printed, printed
finally:
    shutil.rmtree(top)
print("gpu-day ended well in each case")
