# shellcheck shell=bash disable=SC2034
# The one file that a site edits. pipeline.sh reads it where jobs are submitted, and every job where it runs.

# ---- Whose hours, and which machines ----------------------------------------------------------------------------------
ACCOUNT=""         # --account; empty: the one Slurm gives you
CPU_PARTITION=""   # --partition of conversion, merging and scoring; empty: Slurm's default
GPU_PARTITION=""   # --partition of training and prediction; empty: Slurm's default
SBATCH_OPTIONS=()  # of every job, as your site wants them: (--qos=long --constraint=a100 --mail-type=FAIL)

# ---- A node of GPU_PARTITION ------------------------------------------------------------------------------------------
GPUS_PER_NODE=8  # training takes all of them, a task of prediction one; 0: no GPUs, one process a node on its CPUs
GPU_TYPE=""      # where --gres wants one: a100
CPUS_PER_GPU=8   # some prepare screens (`data.workers` of a recipe); without GPUs: CPUs of a process
TRAIN_MEMORY=0   # --mem; 0 is all that a node has

# ---- How much at once -------------------------------------------------------------------------------------------------
NODES=1              # of training; pipeline.sh --nodes wins
CONVERT_TASKS=64     # the input files are dealt out to so many tasks …
CONVERT_AT_ONCE=16   # … of which so many run at once: what the file system stands, not what Slurm has
CONVERT_CPUS=8       # of a task, one process each
CONVERT_MEMORY=16G
EVALUATE_TASKS=8     # of one GPU each; a task's least portion is 16 episodes
EVALUATE_AT_ONCE=8
EVALUATE_MEMORY=64G

# ---- Time limits ------------------------------------------------------------------------------------------------------
CONVERT_TIME=04:00:00
TRAIN_TIME=24:00:00  # longer training goes on in a second turn by itself, so take what the queue likes
EVALUATE_TIME=04:00:00
NOTICE_SECONDS=300   # before a time limit, a job is told to save and stop; more than a step and a checkpoint take, above 60

# ---- Where vlm-agent is: in a Python environment, or in a container -----------------------------------------------------
MODULES=()    # (python/3.11 cuda/12.4), loaded first
VENV=.venv    # empty where a container has everything
CONTAINER=()  # the words that enter one: (apptainer exec --nv --bind /scratch vlm-agent.sif)

# ---- Files ------------------------------------------------------------------------------------------------------------
SCRATCH=""  # a large folder that all nodes see; Hugging Face's cache goes there instead of into your home
OFFLINE=1   # 1 where compute nodes cannot reach the internet: download a recipe's checkpoints on the login node before

# ---- The network between nodes ------------------------------------------------------------------------------------------
# NCCL finds InfiniBand by itself. What goes wrong is the first meeting over TCP, when a node has several interfaces and
# takes one that the others cannot reach: training then hangs at its start. `ip -brief address` on a node tells them.
NETWORK_INTERFACE=""  # ib0, eno1, …; empty: NCCL and Gloo choose
export NCCL_DEBUG=WARN  # INFO: which interface and transport was chosen, in logs/JOB/rank-0.log
# export NCCL_IB_HCA=mlx5_0,mlx5_1  # which InfiniBand adapters, where some are for storage
# export NCCL_IB_DISABLE=1          # to find out whether InfiniBand is what is broken: slow, but it has to work
