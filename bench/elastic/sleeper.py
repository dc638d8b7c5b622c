"""An elastic program that sleeps in place of computing: a speed by GPU type, an optional failure, and how it ends.

    sleeper.py [--step SECONDS] [--rate TYPE=SAMPLES_PER_S] [--start SECONDS] [--save SECONDS] [--every N]
               [--ending finish|exit|ignore|fail-once] [--until FILE] [--log FILE]

Its checkpoint is a file `done` in the working directory. Each line of the log is an event with its time.
"""

import argparse
import os
import signal
import sys
import time

import troupe


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=float, default=0.1)
    parser.add_argument("--rate", action="append", default=[])
    parser.add_argument("--start", type=float, default=0)
    parser.add_argument("--save", type=float, default=0)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--ending", default="finish", choices=["finish", "exit", "ignore", "fail-once"])
    parser.add_argument("--until", metavar="FILE", help="it has finished when the file exists, too")
    parser.add_argument("--log", default="events")
    o = parser.parse_args()
    run = troupe.init()
    rates = dict(r.split("=") for r in o.rate)
    gpu = os.environ.get("TROUPE_GPU_TYPE", "")
    step_s = o.step
    if gpu in rates:
        step_s = run.global_batch / (float(rates[gpu]) * run.world_size)
    if o.ending == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def log(event, value=0):
        with open(f"{o.log}.{run.rank}", "a") as file:
            file.write(f"{time.time():.3f} {run.lease} {run.world_size} {gpu} {event} {value}\n")

    def save(done, why="saving"):
        log(why, done)
        time.sleep(o.save)
        if run.rank == 0:
            with open("done.part", "w") as file:
                file.write(str(done))
            os.replace("done.part", "done")
            run.saved(done)
            log("saved", done)

    log("begin")
    time.sleep(o.start)
    start = done = int(open("done").read()) if os.path.exists("done") else 0
    log("resumed", start)
    run.resumed(start)
    for i in range(start, run.iterations):
        if o.ending != "ignore" and run.should_stop():
            save(done, "stopping")
            log("stopped", done)
            return
        time.sleep(step_s)
        done = i + 1
        run.report(done)
        log("step", done)
        if o.until and os.path.exists(o.until):
            break
        if o.every and done % o.every == 0:
            save(done)
            if o.ending == "fail-once" and start == 0:
                sys.exit(3)
    save(done)
    if o.ending != "exit":
        run.finish()
    log("finished", done)


main()
