"""A rank of torch_test.py: DDP steps in rounds, each with a request to stop at a random moment. Writes the step of each."""

import json
import os
import random
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from troupe.program import Run

folder, rounds = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
mine = random.Random(rank)
stops = []
for number in range(rounds):
    control = os.path.join(folder, f"control{number}")
    run = Run(dict(os.environ, TROUPE_CONTROL=control), global_batch=4, iterations=100000)

    def request():
        with open(control + ".new", "w") as file:
            file.write("stop: 1\nwithin_s: 60\n")
        os.replace(control + ".new", control)

    dist.barrier()
    if rank == 0 and number % 5 == 0:
        request()  # before the first step
    elif rank == 0:
        threading.Timer(random.Random(number).uniform(0, 0.05), request).start()
    done = 0
    for i in run.steps():
        time.sleep(mine.uniform(0, 0.001))
        model(torch.ones(2, 4)).sum().backward()
        time.sleep(mine.uniform(0, 0.001))
        done = i + 1
        run.report(done)
    stops.append(done)

# Steps that end by themselves leave nothing under way.
run = Run(dict(os.environ), global_batch=4, iterations=3)
stops.append(len(list(run.steps())))
with open(os.path.join(folder, f"stops{rank}"), "w") as file:
    json.dump(stops, file)
dist.destroy_process_group()
