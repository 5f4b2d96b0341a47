# shellcheck shell=bash
# Functions of all jobs; each job sources this file in the folder it was submitted from.
#
# A job that Slurm stops early (time limit, preemption) is requeued and resumes. To detect a job that makes no progress,
# every start and end is a line of a ledger, with the progress at that time:
#   time  event  job  restarts  done  note        (tab-separated; events are start, done, again, stopped, failed)

set -eEuo pipefail

if [ ! -f slurm/site.sh ]; then
    echo "slurm/site.sh is missing in $PWD: submit from the folder that holds slurm/" >&2
    exit 1
fi
source slurm/site.sh
source slurm/options.sh

# The id for scontrol: a task of an array has its own job number, but `scontrol requeue` of it may requeue all tasks.
JOB="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"

# say WORDS…: prints to the job's log and to Slurm's output file (descriptor 3, see `open_log`).
say() {
    local line
    printf -v line '%(%FT%T)T  %s' -1 "$*"
    echo "$line"
    echo "$line" >&3
}

# open_log FILE: redirects the job's output to FILE.
open_log() {
    mkdir -p "$(dirname "$1")"
    exec 3>&1 >>"$1" 2>&1
    LOG=$1
    trap 'say "this script failed: line $LINENO, $BASH_COMMAND"' ERR
    say "job $JOB, start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST; its log is $LOG"
}

enter_environment() {
    set +u  # modules and activate scripts often use unset variables
    if [ "${#MODULES[@]}" -gt 0 ]; then module load "${MODULES[@]}"; fi
    # shellcheck source=/dev/null
    if [ -n "$VENV" ]; then source "$VENV/bin/activate"; fi
    set -u
    use_caches
    if [ "$GPUS_PER_NODE" = 0 ]; then export CUDA_VISIBLE_DEVICES=""; fi  # the CPUs of a node with GPUs are used by choice
    if [ -n "$NETWORK_INTERFACE" ]; then
        export NCCL_SOCKET_IFNAME="$NETWORK_INTERFACE" GLOO_SOCKET_IFNAME="$NETWORK_INTERFACE"
    fi
    # Since Slurm 22.05, srun does not inherit --cpus-per-task from sbatch.
    export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
}

# record EVENT DONE NOTE
record() {
    printf '%(%FT%T%z)T\t%s\t%s\t%s\t%s\t%s\n' -1 "$1" "$JOB" "${SLURM_RESTART_COUNT:-0}" "$2" "$3" >>"$LEDGER"
}

# is_stuck DONE: whether the progress was DONE at the last two starts of this job. Turns that Slurm ended early say
# nothing about the job, so only ten of them in a row count.
is_stuck() {
    [ -f "$LEDGER" ] || return 1
    awk -F '\t' -v job="$JOB" -v done="$1" '
        $3 != job { next }
        $2 == "start" && $5 != done { turns = own = 0; next }
        $2 == "start" { turns++; own++ }
        $2 == "stopped" && $6 == "'"$BY_SLURM"'" && own > 0 { own-- }
        END { exit !(own >= 2 || turns >= 10) }' "$LEDGER"
}
BY_SLURM="Slurm ended the job"

# begin LEDGER: records this start, and a failure of the script before `conclude`; stops a job that made no progress in its
# last two turns.
begin() {
    LEDGER=$1
    stop_if_stuck
    record start "$(progress)" "$SLURM_JOB_NODELIST"
    trap 'fail "status $? before its step"' EXIT
    trap 'trap - EXIT; end_early; exit 143' TERM  # until the step exists and `run` forwards TERM to it
}

# begin_task: `begin`, with log and ledger of a task of an array, and its environment.
begin_task() {
    local task=slurm/logs/$SLURM_JOB_NAME-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}/task-${SLURM_ARRAY_TASK_ID:-0}
    open_log "$task.log"
    begin "$task.tsv"
    enter_environment
}

stop_if_stuck() {
    local now
    now=$(progress)
    if is_stuck "$now"; then
        record stopped "$now" "no progress twice in a row"
        say "stopped: no progress beyond $now $UNIT in two turns in a row, or in ten that Slurm ended. The turns are too" \
            "short to save a checkpoint, or the job fails earlier: see the logs beside $LOG. Fix the cause and submit it" \
            "again"
        exit 1
    fi
}

# USR1 may arrive before the child process exists.
noticed="" ended="" preempted=""
trap 'noticed=1' USR1

# run SIGNAL COMMAND…: runs COMMAND; forwards Slurm's notice (USR1) as SIGNAL, and Slurm's TERM as TERM. Sets `status`,
# `noticed` and `ended`, and +e: only `conclude` ends the script after it.
run() {
    local signal=$1 child reminded=""
    shift
    "$@" &
    child=$!
    trap 'kill -s TERM "$child" 2>/dev/null || true; end_early' TERM
    # A signal interrupts `wait`, not the child.
    while kill -0 "$child" 2>/dev/null; do
        if [ -n "$noticed" ] && [ -z "$reminded" ]; then
            reminded=1
            remind "$signal" "$child" &
        fi
        wait "$child" || true
    done
    status=0
    wait "$child" || status=$?
    if [ "$status" != 0 ]; then ask_slurm; fi
    # Nothing after this point may skip `conclude`, which requeues the job: no signal, and no message that cannot be read
    # or written.
    trap '' USR1 TERM
    set +e
}

# ask_slurm: whether Slurm ended the step before the signal reached this script. TERM goes to the step first; while the
# GraceTime of a preemption lasts, to the step alone. Then a job that exits is not requeued.
ask_slurm() {
    local state="" since tries
    for ((tries = 0; tries < 6; tries++)); do  # a busy controller, as at a wave of preemptions, does not answer at once
        read -r state since <<<"$(SLURM_TIME_FORMAT=standard timeout 10 squeue --noheader --jobs="$JOB" --Format=State,PreemptTime 2>/dev/null || true)"
        if [ -n "$state$ended" ]; then break; fi
        sleep 2
    done
    if [ "$state" = RUNNING ] && [[ $since = *-* ]]; then preempted=1; fi
    # The step of a job that is requeued may be gone before its batch script, which then reads PENDING or REQUEUED.
    if [[ $state =~ ^(COMPLETING|PENDING|REQUEUED)$ ]] || [ -n "$preempted" ]; then end_early; fi
}

# end_early: after Slurm's TERM, because the job is preempted or cancelled. Recorded at once: KILL may follow
# before the process has ended.
end_early() {
    if [ -z "$ended" ]; then
        ended=1
        record stopped "$(progress)" "$BY_SLURM"
    fi
}

# remind SIGNAL PROCESS: repeats the signal, because a process that is still starting ignores it; finally kills it.
remind() {
    local last=$((SECONDS + NOTICE_SECONDS - 60))
    while kill -s "$1" "$2" 2>/dev/null; do
        sleep 5
        if [ "$SECONDS" -gt "$last" ]; then kill -s KILL "$2"; fi
    done
}

# conclude: ends the job after `run`. Status 75 means that the program received a stop signal and saved.
conclude() {
    local now
    trap - EXIT
    now=$(progress)
    if [ "$status" = 0 ]; then
        record "done" "$now" ""
        say "done"
        exit 0
    elif [ -n "$ended" ]; then
        # Cancelled, or preempted: Slurm requeues it where the site is configured so.
        say "ended by Slurm with $now $UNIT"
        if [ -n "$preempted" ]; then requeue "$now"; fi
        exit "$status"
    elif [ -n "$noticed" ] || [ "$status" = 75 ]; then
        stop_if_stuck
        record again "$now" "status $status"
        say "stopped with $now $UNIT; requeued"
        requeue "$now"
        exit 75
    fi
    fail "status $status"
    exit "$status"
}

# requeue DONE: a busy controller, as at the time limit of many jobs, does not answer at once; a refusal is recorded, because
# `vlm-agent status` would otherwise show a job that waits.
requeue() {
    local tries
    for ((tries = 0; tries < 4; tries++)); do
        if scontrol requeue "$JOB"; then return; fi
        sleep 5
    done
    record stopped "$1" "Slurm refuses to requeue it; submit it again to resume"
    say "Slurm refuses to requeue the job; submit it again to resume"
}

# fail WHY: records the failure, and prints the end of the log to Slurm's output file.
fail() {
    local words
    record failed "$(progress)" "$1"
    words=$(tail -n 5 "$LOG")
    say "failed with $1; the end of $LOG:"
    echo "$words" >&3
}

# count_files FOLDER TESTS…: the number of files that `find` prints; 0 if FOLDER does not exist. Other tasks may remove
# files meanwhile.
count_files() { { find "$@" 2>/dev/null || true; } | wc -l; }

# show_end FILE…: the end of the first of these logs that this start has written to; nothing without one.
show_end() {
    local file
    for file in "$@"; do
        if [ "$file" -nt "$LEDGER" ]; then tail -n 20 "$file" && return; fi
    done
}

# newest_checkpoint RUN: the step of the newest complete checkpoint, whose whole.json is written last; 0 without one.
newest_checkpoint() {
    local record newest=0 step
    for record in "$1"/checkpoints/checkpoint-*/whole.json; do
        step=${record%/whole.json}
        step=${step##*/checkpoint-}
        if [ -f "$record" ] && [[ $step =~ ^[0-9]+$ ]] && [ "$step" -gt "$newest" ]; then newest=$step; fi
    done
    echo "$newest"
}

# array_options WORDS…: sets ARRAY_OPTIONS to --shard-index of this task, and --shard-count if WORDS lack it.
array_options() {
    ARRAY_OPTIONS=()
    if [ -z "${SLURM_ARRAY_TASK_ID:-}" ]; then return; fi
    ARRAY_OPTIONS=(--shard-index "$SLURM_ARRAY_TASK_ID")
    if option --shard-count "$@" >/dev/null; then return; fi
    # shellcheck disable=SC2153
    if [ "$SLURM_ARRAY_TASK_MIN" != 0 ] || [ "$((SLURM_ARRAY_TASK_MAX + 1))" != "$SLURM_ARRAY_TASK_COUNT" ]; then
        echo "the array is not 0 to N-1: set --shard-count N" >&2
        exit 1
    fi
    ARRAY_OPTIONS+=(--shard-count "$SLURM_ARRAY_TASK_COUNT")
}
