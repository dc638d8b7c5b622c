#!/usr/bin/env bash
# gloo's all_reduce with MAX or MIN keeps a NaN or loses it, by the rank that has it and by the
# element's place in the tensor.
#
# Packages: Debian 12's python3-torch and libtorch1.13 1.13.1+dfsg-4, libgloo0
# 0.0~git20220518.5b14351-3.
# Seen: three ranks with 0, 1 and 2 in every element, one of them with NaN instead. Of a tensor of
# one element only the NaN of rank 0 is in the result; those of ranks 1 and 2 become a plain number
# on all ranks. Of three elements each is another case: the NaN survives in two, one or none. MIN
# loses the same ones. All ranks agree on the result, so that comparing them shows nothing.
# Likely guess: NaN comes back in every element, as torch.max and torch.maximum have it; or else
# never.
# Why it matters: "does any rank have a NaN" is asked by a MAX of a loss, a gradient norm or a
# scaler's flag, mostly of one element. Here the answer depends on which rank is ill: a training
# goes on with a healthy number.
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

RANKS, NAN = 3, float("nan")


def rank_main(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)
    for elements in (1, 3):
        for name in ("MAX", "MIN"):
            for ill in range(RANKS):
                t = torch.full((elements,), NAN if rank == ill else float(rank))
                dist.all_reduce(t, op=getattr(dist.ReduceOp, name))
                all_ranks = [torch.empty(elements) for _ in range(RANKS)]
                dist.all_gather(all_ranks, t)
                assert len({str(r) for r in all_ranks}) == 1, "the ranks disagree"
                if rank == 0:
                    print(name, "NaN in rank", ill, "->", *t.tolist(), flush=True)


if __name__ == "__main__":
    processes.spawn(rank_main, (sys.argv[1],), RANKS)
PYTHON

echo "${pinned[*]}"
/usr/bin/python3 -c 'import torch; print("torch", torch.__version__, torch.__file__)'
/usr/bin/python3 ranks.py "$work/store" | tee seen
cat >expected <<'TEXT'
MAX NaN in rank 0 -> nan
MAX NaN in rank 1 -> 0.0
MAX NaN in rank 2 -> 1.0
MIN NaN in rank 0 -> nan
MIN NaN in rank 1 -> 0.0
MIN NaN in rank 2 -> 0.0
MAX NaN in rank 0 -> nan nan 2.0
MAX NaN in rank 1 -> 0.0 0.0 nan
MAX NaN in rank 2 -> 1.0 1.0 1.0
MIN NaN in rank 0 -> nan nan 1.0
MIN NaN in rank 1 -> 0.0 0.0 nan
MIN NaN in rank 2 -> 0.0 0.0 1.0
TEXT
diff expected seen || { echo "changed: other elements keep the NaN" >&2; exit 1; }
echo "as seen on 2026-11-29"
