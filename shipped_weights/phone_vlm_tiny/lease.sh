#!/usr/bin/env bash
# Trains the curriculum for MINUTES on a machine that is lent for a while, and evaluates the weights:
#
#   shipped_weights/phone_vlm_tiny/lease.sh MINUTES OUT [--training.steps 9375 …]
#
# OUT then has exam.txt and the run in parts of at most 15 MiB, in at most 8 files. With FROM=OUT the next machine continues
# the run; all machines then need the same recipe keys, given after OUT, and together train the weights of one run.
# On a GPU a step has one row of 64 lessons; every core but one draws lessons. The default is 600,000 lessons.
set -euo pipefail
minutes=$1 out=$2
shift 2
mkdir -p "$out"
out=$(realpath "$out")
from=$(realpath "${FROM:-$out}")
cd "$(dirname "$0")/../.."
python=${PYTHON:-python} run=${RUN:-runs/phone_vlm_tiny_lease} screens=${SCREENS:-300}
export OMP_NUM_THREADS=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$run"
if [ -n "${FROM:-}" ]; then
    cat "$from"/run.tar.* | tar x -C "$run"
fi

status=0
"$python" -m shipped_weights.phone_vlm_tiny --config "${CONFIG:-shipped_weights/phone_vlm_tiny/curriculum.yaml}" \
    --output "$run" --minutes "$minutes" --data.workers $(($(nproc) - 1)) --training.validation null \
    --training.batch_size 64 --training.accumulation 1 --training.steps 9375 "$@" || status=$?
case $status in 0 | 75) ;; *) exit "$status" ;; esac

newest=$(ls -d "$run"/checkpoints/checkpoint-* | sort -V | tail -n 1)
rm -f "$out"/run.tar.*
(cd "$run" && find . -type f ! -path './checkpoints/*' && find "checkpoints/$(basename "$newest")" -type f) |
    tar c -C "$run" -T - | split -b 15M -d - "$out/run.tar."

agent=$run
[ "$status" = 0 ] || agent=$newest
"$python" -m studies.shipped_base.phone_vlm --run "$agent" --screens "$screens" > "$out/exam.txt"
[ "$(ls "$out" | wc -l)" -le 8 ] || { echo "$out: more than 8 files" >&2; exit 1; }
echo "$out: $(basename "$newest"), status $status; $(tail -n 1 "$run/progress.jsonl")"
exit "$status"
