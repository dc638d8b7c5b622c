#!/usr/bin/env bash
# A data-parallel training that PyTorch's DDP resumes from a checkpoint has other bits than the one
# that went on, from three ranks on, although model, data, ranks and kernels are the same.
#
# Packages: Debian 12's python3-torch and libtorch1.13 1.13.1+dfsg-4, libgloo0
# 0.0~git20220518.5b14351-3.
# Seen: six linear layers of 400, plain SGD (no state besides the parameters), one thread a rank,
# deterministic algorithms. Four iterations twice in a row: the same bits after each. Two iterations
# and a checkpoint, then two more in new processes: the first two are equal, the third is not. With
# two ranks all are equal; so they are with three if the new processes do one iteration first and
# load the checkpoint into the wrapped model only then.
# Cause: the first iteration of a process sums gradients in buckets that were dealt by the order of
# parameters, all later ones in buckets that are dealt anew by the order in which gradients came. An
# element's place in its bucket says at which rank its ring sum begins, and a sum of three depends on
# that.
# Likely guess: deterministic kernels, the same ranks and a whole checkpoint give the same bits; the
# order of sums depends on the number of ranks alone.
# Why it matters: comparing a resumed training with the one that was not interrupted, bit for bit, is
# how lost state is found. Here nothing is lost, and the comparison fails; with two ranks, as in most
# tests, it does not show.
# Date: 2026-11-29
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The pinned packages, and of what they need only what this machine lacks.
pinned=(python3-torch=1.13.1+dfsg-4 libtorch1.13=1.13.1+dfsg-4 libgloo0=0.0~git20220518.5b14351-3)
lacking=$(apt-get -s install --no-install-recommends "${pinned[@]}" |
  awk '/^Inst/ {print $2}') || exit 2
for name in "${pinned[@]%%=*}"; do lacking=$(grep -vx "$name" <<<"$lacking" || true); done
# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" $lacking || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export PYTHONPATH=$work/root/usr/lib/python3/dist-packages GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu

cat >training.py <<'PYTHON'
import hashlib
import itertools
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH = 400, 6, 8
numbers = itertools.count()


def digest(model):
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().numpy().tobytes())
    return h.hexdigest()


def rank_main(rank, ranks, run, first, last, warm_up, load):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo", init_method="file://" + run, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def iterate(i):
        data = torch.Generator().manual_seed(100 * i + rank)
        optimizer.zero_grad()
        (wrapped(torch.randn(BATCH, WIDTH, generator=data)) ** 2).mean().backward()
        optimizer.step()

    if warm_up:
        iterate(0)
    if load:
        model.load_state_dict(torch.load(load))
    for i in range(first, last):
        iterate(i)
        if rank == 0:
            with open(run + ".bits", "a") as out:
                print(digest(model), file=out)
    if rank == 0:
        torch.save(model.state_dict(), run + ".pt")
    dist.destroy_process_group()


def train(ranks, first, last, load=None, warm_up=False):
    """The digest of the parameters after each iteration, and the checkpoint after the last one."""
    run = f"{sys.argv[1]}/run{next(numbers)}"
    processes.spawn(rank_main, (ranks, run, first, last, warm_up, load), ranks)
    return open(run + ".bits").read().split(), run + ".pt"


def compare(name, one, other, first):
    same = ["equal" if a == b else "differ" for a, b in zip(one, other)]
    print(name, *(f"{first + i}:{s}" for i, s in enumerate(same)), flush=True)


if __name__ == "__main__":
    for ranks in 2, 3:
        whole, _ = train(ranks, 0, 4)
        begun, checkpoint = train(ranks, 0, 2)
        resumed, _ = train(ranks, 2, 4, checkpoint)
        if ranks == 3:
            compare("3 ranks, again:", train(ranks, 0, 4)[0], whole, 0)
        compare(f"{ranks} ranks, resumed:", begun + resumed, whole, 0)
    warm, _ = train(3, 2, 4, checkpoint, warm_up=True)
    compare("3 ranks, resumed after an iteration:", warm, whole[2:], 2)
PYTHON

echo "${pinned[*]}"
/usr/bin/python3 -c 'import torch; print("torch", torch.__version__, torch.__file__)'
/usr/bin/python3 training.py "$work" | tee seen
cat >expected <<'TEXT'
2 ranks, resumed: 0:equal 1:equal 2:equal 3:equal
3 ranks, again: 0:equal 1:equal 2:equal 3:equal
3 ranks, resumed: 0:equal 1:equal 2:differ 3:differ
3 ranks, resumed after an iteration: 2:equal 3:equal
TEXT
diff expected seen || { echo "changed: a resumed training has other bits than described" >&2; exit 1; }
echo "as seen on 2026-11-29"
