# shellcheck shell=bash disable=SC2034
# The one file that a site edits. pipeline.sh reads it at submission, and every job when it runs.

# ---- Account and partitions -------------------------------------------------------------------------------------------
ACCOUNT=""         # --account; empty: your default account
CPU_PARTITION=""   # --partition of conversion, merging and scoring; empty: Slurm's default
GPU_PARTITION=""   # --partition of training and prediction; empty: Slurm's default
SBATCH_OPTIONS=()  # further options of every job: (--qos=long --constraint=a100 --mail-type=FAIL)

# ---- A node of GPU_PARTITION ------------------------------------------------------------------------------------------
GPUS_PER_NODE=8  # training uses all of them, a prediction task one; 0: no GPUs, one process per node on its CPUs
GPU_TYPE=""      # the GPU type if --gres needs one: a100
CPUS_PER_GPU=8   # the loader's workers run here (`data.workers` of a recipe); without GPUs: CPUs per process
TRAIN_MEMORY=0   # --mem; 0 is all memory of a node

# ---- Parallelism ------------------------------------------------------------------------------------------------------
NODES=1              # training nodes; overridden by pipeline.sh --nodes
CONVERT_TASKS=64     # tasks of the conversion array
CONVERT_AT_ONCE=16   # tasks that run at the same time: limited by the file system, not by Slurm
CONVERT_CPUS=8       # CPUs per task, one process each
CONVERT_MEMORY=16G
FEATURES_TASKS=8     # tasks of the array that extracts screen features, one GPU each
FEATURES_AT_ONCE=8
FEATURES_MEMORY=32G
EVALUATE_TASKS=8     # tasks of the evaluation array, one GPU each; a task predicts at least 16 episodes
EVALUATE_AT_ONCE=8
EVALUATE_MEMORY=64G

# ---- Time limits ------------------------------------------------------------------------------------------------------
CONVERT_TIME=04:00:00
FEATURES_TIME=04:00:00
TRAIN_TIME=24:00:00  # longer training is requeued and resumes, so choose a limit that is scheduled soon
EVALUATE_TIME=04:00:00
NOTICE_SECONDS=300   # notice before the time limit; longer than one step and one checkpoint, and more than 60

# Preemption and scancel send TERM. Training then has this long for its step and a checkpoint, if Slurm does not send KILL
# earlier: KillWait of `scontrol show config`, GraceTime of the partition or QOS.
TERM_SECONDS=180

# ---- Environment: a virtual environment or a container ------------------------------------------------------------------
# PyTorch brings its own CUDA libraries and needs only the driver (slurm/README.md).
MODULES=()    # modules to load first: (python/3.11)
VENV=.venv    # empty with a container
# The command that starts a container, which must see this folder and share the process ids of the node (no --containall,
# no --pid): (apptainer exec --nv --bind /scratch vlm-agent.sif), or (enroot start --mount "$PWD:$PWD" vlm-agent)
CONTAINER=()

# ---- Files ------------------------------------------------------------------------------------------------------------
SCRATCH=""  # a large folder on a shared file system, for the cache of Hugging Face; empty: your home
OFFLINE=1   # 1 if compute nodes have no internet access: download checkpoints on the login node first

# ---- The network between nodes ------------------------------------------------------------------------------------------
# NCCL finds InfiniBand by itself. The rendezvous over TCP fails when a node has several interfaces and chooses one that
# the others cannot reach: training hangs at its start. `ip -brief address` on a node lists its interfaces.
NETWORK_INTERFACE=""  # ib0, eno1, …; empty: NCCL and Gloo choose
export NCCL_DEBUG=WARN  # INFO logs the chosen interface and transport to logs/JOB/rank-0.log
# export NCCL_IB_HCA=mlx5_0,mlx5_1  # InfiniBand adapters to use, if some are reserved for storage
# export NCCL_IB_DISABLE=1          # to test whether InfiniBand is broken: slow, but must work

# ---- GPU memory -------------------------------------------------------------------------------------------------------
# Rows differ in length; without this, freed blocks of other sizes stay reserved, and memory runs out earlier.
export PYTORCH_ALLOC_CONF=expandable_segments:True
