#!/usr/bin/env bash
# One process of training, started by torchrun: its number, for notices, and a log of its own.
set -euo pipefail
echo $$ >"$RANKS/$LOCAL_RANK"
exec >>"$LOGS/rank-$RANK.log" 2>&1
printf '=== %(%FT%T)T  start %s on %s\n' -1 "$((${SLURM_RESTART_COUNT:-0} + 1))" "$SLURMD_NODENAME"
exec vlm-agent train "$@"
