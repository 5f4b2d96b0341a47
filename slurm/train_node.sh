#!/usr/bin/env bash
# Training on one node, started by train.sbatch: torchrun with one process per GPU.
#
# USR1 must reach the training processes but not torchrun, which it would kill. So torchrun ignores it, and every training
# process writes its process id to a folder.
source slurm/common.sh

processes=1
if [ "$GPUS_PER_NODE" -gt 0 ]; then
    processes=${SLURM_GPUS_ON_NODE:?the job has no GPUs: submit it with --gres=gpu:$GPUS_PER_NODE}
    found=$("${CONTAINER[@]}" python -c 'import torch; print(torch.cuda.device_count())')
    if [ "$found" != "$processes" ]; then
        echo "$SLURMD_NODENAME: PyTorch sees $found GPU(s) of $processes. Possible causes: a broken driver, a" \
            "container without --nv, a PyTorch build for CPUs" >&2
        exit 1
    fi
fi
export OMP_NUM_THREADS=$((${SLURM_CPUS_PER_TASK:-1} / processes > 0 ? ${SLURM_CPUS_PER_TASK:-1} / processes : 1))

RANKS=$(mktemp -d)
export RANKS
trap 'rm -rf "$RANKS"' EXIT

(
    trap '' USR1
    exec "${CONTAINER[@]}" torchrun \
        --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --nproc-per-node "$processes" \
        --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
        --no-python slurm/train_rank.sh "$@"
) &
torchrun=$!

trap 'cat "$RANKS"/* 2>/dev/null | xargs --no-run-if-empty kill -s USR1 2>/dev/null || true' USR1
trap 'kill -s TERM "$torchrun" 2>/dev/null || true' TERM

# A signal interrupts `wait`, not torchrun.
while kill -0 "$torchrun" 2>/dev/null; do wait "$torchrun" || true; done
wait "$torchrun"
