"""An elastic program without the package: it reads $TROUPE_ITERATION, and SIGTERM makes it save and exit with 0.

Its "training" is a sum in a file; PyTorch is not needed.
"""

import json
import os
import signal
import sys
import time

directory = sys.argv[1] if len(sys.argv) > 1 else "plain-checkpoint"
step_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
path = os.path.join(directory, "state.json")
iterations = int(os.environ.get("TROUPE_ITERATIONS", 100))
known = int(os.environ.get("TROUPE_ITERATION", 0))
rank = int(os.environ.get("RANK", 0))
report = os.environ.get("TROUPE_REPORT")
stopping = False


# A handler that only sets a flag cannot interrupt a save.
def stop(signal_number, frame):
    global stopping
    stopping = True


def load():
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return {"iteration": 0, "sum": 0}


def save(state):
    if rank != 0:
        return
    with open(path + ".part", "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)
    tell(saved=state["iteration"])


def tell(**lines):
    if report:
        with open(report, "a") as file:
            file.writelines(f"{key}: {value}\n" for key, value in lines.items())


signal.signal(signal.SIGTERM, stop)
os.makedirs(directory, exist_ok=True)
state = load()
if state["iteration"] < known:
    sys.exit(f"{path}: found iteration {state['iteration']}, expected at least {known}: is the directory shared?")
tell(resumed=state["iteration"])
while state["iteration"] < iterations and not stopping:
    time.sleep(step_s)
    state["sum"] += state["iteration"]
    state["iteration"] += 1
    tell(iteration=state["iteration"])
save(state)
if state["iteration"] == iterations:
    tell(finished=1)
print(f"{state['iteration']} of {iterations} iterations, sum {state['sum']}")
