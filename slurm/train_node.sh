#!/usr/bin/env bash
# Training on one node, started by train.sbatch: torchrun with one process per GPU.
#
# USR1 must reach the training processes but not torchrun, which it would kill. So torchrun ignores it, and every training
# process writes its process id to a folder of the logs, which containers see too. They must share the process ids.
source slurm/common.sh

processes=1
if [ "$GPUS_PER_NODE" -gt 0 ]; then
    processes=${SLURM_GPUS_ON_NODE:?the job has no GPUs: submit it with --gres=gpu:$GPUS_PER_NODE}
    read -r found cuda < <("${CONTAINER[@]}" python -c \
        'import torch; print(torch.cuda.device_count(), torch.version.cuda)') || true
    if [ "$found" != "$processes" ]; then
        driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || true
        echo "$SLURMD_NODENAME: PyTorch sees $found GPU(s) of $processes. Its build is for CUDA ${cuda:-?} (None: for" \
            "CPUs), the driver is ${driver:-unknown}. Possible causes: a driver older than the build needs (580 for" \
            "CUDA 13, 525 for CUDA 12; see slurm/README.md), a build for CPUs, a container without --nv, a broken" \
            "driver" >&2
        exit 1
    fi
else
    export CUDA_VISIBLE_DEVICES=""  # again here, because srun removes it from steps without GPUs
fi
export OMP_NUM_THREADS=$((${SLURM_CPUS_PER_TASK:-1} / processes > 0 ? ${SLURM_CPUS_PER_TASK:-1} / processes : 1))

RANKS=$LOGS/processes-node-$SLURM_NODEID
rm -rf "$RANKS"
mkdir -p "$RANKS"
export RANKS
trap 'rm -rf "$RANKS"' EXIT

(
    trap '' USR1
    exec "${CONTAINER[@]}" torchrun \
        --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --nproc-per-node "$processes" \
        --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" --shutdown-timeout "${TERM_SECONDS:-180}" \
        --no-python slurm/train_rank.sh "$@"
) &
torchrun=$!

trap 'cat "$RANKS"/* 2>/dev/null | xargs --no-run-if-empty kill -s USR1 2>/dev/null || true' USR1
trap 'kill -s TERM "$torchrun" 2>/dev/null || true' TERM

# A signal interrupts `wait`, not torchrun.
while kill -0 "$torchrun" 2>/dev/null; do wait "$torchrun" || true; done
wait "$torchrun"
