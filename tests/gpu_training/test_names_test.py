"""The patterns of bench/gpu_training/test-names match tests of gpu_tests that run on a device.

usage: test_names_test.py GPU_TESTS TEST_NAMES FOLDER_OF_ITS_SOURCES
"""
import pathlib
import re
import subprocess
import sys

program, names, sources = sys.argv[1:]


def tests_of(pattern):
    # Catch2's exit status is the number of tests.
    listed = subprocess.run([program, "--list-test-names-only", pattern], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if line.strip()]


bodies = {}
for file in pathlib.Path(sources).rglob("*_test.cpp"):
    for case in file.read_text().split("\nTEST_CASE(")[1:]:
        title = re.match(r'\s*"((?:[^"\\]|\\.)*)"', case)
        bodies[title.group(1)] = case

patterns = dict(line.split(None, 1) for line in pathlib.Path(names).read_text().splitlines()
                if line.strip() and not line.startswith("#"))
assert set(patterns) == {"kernels", "sanitized", "quick"}, patterns.keys()
for name, pattern in patterns.items():
    for one in pattern.split(","):
        found = tests_of(one)
        assert found, f"{name}: no test is named '{one}'"
        for test in found:
            # Tests that run on every device or machine take them from one of these functions.
            body = next(b for title, b in bodies.items() if test.startswith(title))
            assert re.search(r"\b(devices|machines)\(\)", body), f"{name}: '{test}' runs on no device"
print("all patterns have tests that run on a device")
