#!/usr/bin/env bash
# One training process, started by torchrun: writes its process id (see train_node.sh) and its own log.
set -euo pipefail
echo $$ >"$RANKS/$LOCAL_RANK"
exec >>"$LOGS/rank-$RANK.log" 2>&1
printf '=== %(%FT%T)T  start %s on %s\n' -1 "$((${SLURM_RESTART_COUNT:-0} + 1))" "$SLURMD_NODENAME"
exec vlm-agent train "$@"
