"""An elastic PyTorch program: DistributedDataParallel, any number of ranks, the same training.

    python3 -m troupe.run --nproc 2 examples/pytorch/train.py --iterations 20

Under Troupe: `troupe submit examples/pytorch/train.yaml`. The checkpoint's directory must be shared by the nodes.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import troupe


class Points(torch.utils.data.Dataset):
    """Points of a plane and the class of each, computed from the number of the sample."""

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        x = torch.tensor([i % 40 / 20 - 1, i // 40 / 12.5 - 1])
        return x, int((x * x).sum() < 0.5)


class Checkpoint:
    """One file, which is complete or absent."""

    def __init__(self, run, directory):
        self.run, self.directory, self.path = run, directory, os.path.join(directory, "state.pt")

    def load(self, model, optimizer):
        """How many iterations it has. The fence first: an older attempt writes nothing after it."""
        if self.run.rank == 0:
            with self.run.fence(self.directory):
                pass
        dist.barrier()
        if not os.path.exists(self.path):
            return 0
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state["optimizer"], "param_groups": groups})
        return state["iteration"]

    def save(self, iteration, model, optimizer):
        if self.run.rank == 0:
            state = {"iteration": iteration, "model": model.state_dict(),
                     "optimizer": optimizer.state_dict()["state"]}  # learning rates are this file's
            with open(self.path + ".part", "wb") as file:
                torch.save(state, file)
                os.fsync(file.fileno())
            with self.run.fence(self.directory):
                os.replace(self.path + ".part", self.path)
            self.run.saved(iteration)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=200, help="outside Troupe; the job says it otherwise")
    parser.add_argument("--batch", type=int, default=64, help="likewise: samples of an iteration over all ranks")
    parser.add_argument("--checkpoint", default="checkpoint", metavar="DIR")
    parser.add_argument("--every", type=int, default=50, metavar="N", help="iterations between checkpoints")
    parser.add_argument("--samples", metavar="FILE", help="append the samples that are read: FILE.RANK")
    parser.add_argument("--pause", type=float, default=0, metavar="S", help="after each iteration: a larger model's time")
    parser.add_argument("--pause-a-sample", type=float, default=0, metavar="S", help="likewise, for each of a rank's samples")
    o = parser.parse_args()

    run = troupe.init(seed=1, global_batch=o.batch, iterations=o.iterations)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", run.local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group("nccl" if gpu else "gloo", rank=run.rank, world_size=run.world_size)

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpoint = Checkpoint(run, o.checkpoint)
    done = start = checkpoint.load(model, optimizer)
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[run.local_rank] if gpu else None)
    dataset = Points()

    loss = None
    for i in run.steps(start):
        indices = run.indices(i, len(dataset))
        if o.samples:
            with open(f"{o.samples}.{run.rank}", "a") as file:
                file.write(f"{i} {' '.join(map(str, indices))}\n")
        rows = [dataset[k] for k in indices]
        x = torch.stack([row[0] for row in rows]).to(device)
        y = torch.tensor([row[1] for row in rows], device=device)
        # DDP takes the mean over ranks, whose shares may differ by a sample: this makes it the mean over the global batch.
        loss = torch.nn.functional.cross_entropy(parallel(x), y, reduction="sum") * run.world_size / run.global_batch
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done = i + 1
        time.sleep(o.pause + o.pause_a_sample * len(indices))
        run.report(done, loss)
        if done % o.every == 0:
            checkpoint.save(done, model, optimizer)

    if done > start and done % o.every:
        checkpoint.save(done, model, optimizer)
    if done >= run.iterations:
        run.finish()
    if loss is not None:
        dist.all_reduce(loss := loss.detach() / run.world_size)
    if run.rank == 0:
        print(f"iterations {start} to {done} of {run.iterations} on {run.world_size} ranks" +
              (f", loss {float(loss):.6f}" if loss is not None else ""))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
