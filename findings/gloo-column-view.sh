#!/usr/bin/env bash
# Half of gloo's collectives take a view of some columns for contiguous memory: they send the wrong
# elements and write into columns that are not of the view.
#
# Packages: Debian 12's python3-torch and libtorch1.13 1.13.1+dfsg-4, libgloo0
# 0.0~git20220518.5b14351-3.
# Seen: two ranks have a 3 x 4 matrix of -1 with 1 (rank 0) or 2 (rank 1) in its first two columns,
# which are handed over as the view m[:, :2]. all_reduce and broadcast treat the first six numbers
# in memory instead: the last row is not summed, and all_reduce doubles the two other columns of the
# first row. scatter into the view overwrites these columns with what belongs to the other rows.
# all_gather and gather of the same view are right. No call raises or warns. A transposed matrix,
# whose elements lie without gaps, is summed correctly.
# Likely guess: a tensor that is not contiguous is refused, or
# copied and treated correctly, by all collectives alike.
# Why it matters: such views are what tensor parallel code has: the shard of a weight or of a
# gradient, a part of a fused matrix. The step goes on with a partial sum in some rows and with
# neighbours changed that nobody named.
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

cat >ranks.py <<'PYTHON'
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

RANKS = 2


def all_gather(view, m):
    parts = [torch.zeros(3, 2) for _ in range(RANKS)]
    dist.all_gather(parts, view)
    m[:, :2], m[:, 2:] = parts[0], parts[1]


def scatter(view, m):
    parts = [torch.full((3, 2), 7.0 + i) for i in range(RANKS)]
    dist.scatter(view, parts if dist.get_rank() == 0 else None, 0)


CALLS = {
    "all_reduce": lambda view, m: dist.all_reduce(view),
    "broadcast from rank 1": lambda view, m: dist.broadcast(view, 1),
    "scatter of 7 to rank 0, of 8 to rank 1": scatter,
    "all_gather, as columns of rank 0 and rank 1": all_gather,
}


def rank_main(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)
    for name, call in CALLS.items():
        m = torch.full((3, 4), -1.0)
        m[:, :2] = rank + 1
        call(m[:, :2], m)
        show(name, m, rank)
    t = (torch.arange(6.0) * (rank + 1)).reshape(2, 3).t()
    dist.all_reduce(t)
    show("all_reduce of a transposed matrix", t, rank)


def show(name, m, rank):
    matrices = [torch.empty_like(m.contiguous()) for _ in range(RANKS)]
    dist.all_gather(matrices, m.contiguous())
    if rank == 0:
        print(name)
        for i, each in enumerate(matrices):
            print("  rank", i, *([int(x) for x in row] for row in each), flush=True)


if __name__ == "__main__":
    processes.spawn(rank_main, (sys.argv[1],), RANKS)
PYTHON

echo "${pinned[*]}"
/usr/bin/python3 -c 'import torch; print("torch", torch.__version__, torch.__file__)'
/usr/bin/python3 ranks.py "$work/store" | tee seen
cat >expected <<'TEXT'
all_reduce
  rank 0 [3, 3, -2, -2] [3, 3, -1, -1] [1, 1, -1, -1]
  rank 1 [3, 3, -2, -2] [3, 3, -1, -1] [2, 2, -1, -1]
broadcast from rank 1
  rank 0 [2, 2, -1, -1] [2, 2, -1, -1] [1, 1, -1, -1]
  rank 1 [2, 2, -1, -1] [2, 2, -1, -1] [2, 2, -1, -1]
scatter of 7 to rank 0, of 8 to rank 1
  rank 0 [7, 7, 7, 7] [7, 7, -1, -1] [1, 1, -1, -1]
  rank 1 [8, 8, 8, 8] [8, 8, -1, -1] [2, 2, -1, -1]
all_gather, as columns of rank 0 and rank 1
  rank 0 [1, 1, 2, 2] [1, 1, 2, 2] [1, 1, 2, 2]
  rank 1 [1, 1, 2, 2] [1, 1, 2, 2] [1, 1, 2, 2]
all_reduce of a transposed matrix
  rank 0 [0, 9] [3, 12] [6, 15]
  rank 1 [0, 9] [3, 12] [6, 15]
TEXT
diff expected seen || { echo "changed: other elements are sent or written" >&2; exit 1; }
echo "as seen on 2026-11-29"
