# shellcheck shell=bash
# What the jobs share; sourced by each in the folder that it was submitted from.
#
# A job that Slurm stops early (its time is up, somebody needs the node) is queued again and goes on where it was. To
# tell that from a job that gets nowhere, each start and each end is a line of a ledger, with how much was done then:
#   time  event  job  restarts  done  note        (tab-separated; events are start, done, again, stopped, failed)

set -eEuo pipefail

if [ ! -f slurm/site.sh ]; then
    echo "there is no slurm/site.sh in $PWD: submit from the folder that holds slurm/" >&2
    exit 1
fi
source slurm/site.sh
source slurm/options.sh

# The id that scontrol takes: a task of an array is a job of its own, but `scontrol requeue` of its number may mean all.
JOB="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"

# say WORDS…: in the job's own log, and in the file that Slurm keeps (3, see `open_log`).
say() {
    local line
    printf -v line '%(%FT%T)T  %s' -1 "$*"
    echo "$line"
    echo "$line" >&3
}

# open_log FILE: from here on, what the job says goes there.
open_log() {
    mkdir -p "$(dirname "$1")"
    exec 3>&1 >>"$1" 2>&1
    LOG=$1
    trap 'say "this script failed: line $LINENO, $BASH_COMMAND"' ERR
    say "job $JOB, start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST; its log is $LOG"
}

enter_environment() {
    set +u  # what sites and environments bring is not always written for it
    if [ "${#MODULES[@]}" -gt 0 ]; then module load "${MODULES[@]}"; fi
    # shellcheck source=/dev/null
    if [ -n "$VENV" ]; then source "$VENV/bin/activate"; fi
    set -u
    if [ -n "$SCRATCH" ]; then export HF_HOME="$SCRATCH/huggingface"; fi
    if [ "$OFFLINE" = 1 ]; then export HF_HUB_OFFLINE=1; fi
    if [ -n "$NETWORK_INTERFACE" ]; then
        export NCCL_SOCKET_IFNAME="$NETWORK_INTERFACE" GLOO_SOCKET_IFNAME="$NETWORK_INTERFACE"
    fi
    # From Slurm 22.05 on srun does not take it over from sbatch by itself.
    export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
}

# record EVENT DONE NOTE
record() {
    printf '%(%FT%T%z)T\t%s\t%s\t%s\t%s\t%s\n' -1 "$1" "$JOB" "${SLURM_RESTART_COUNT:-0}" "$2" "$3" >>"$LEDGER"
}

# got_nowhere DONE: whether the last two starts of this job found as much done as there is now.
got_nowhere() {
    local found
    [ -f "$LEDGER" ] || return 1
    found=$(awk -F '\t' -v job="$JOB" '$2 == "start" && $3 == job { print $5 }' "$LEDGER" | tail -n 2)
    [ "$found" = "$1"$'\n'"$1" ]
}

# begin LEDGER: the line of this start; ends the job that got nowhere twice, however it was stopped.
begin() {
    LEDGER=$1
    stop_if_stuck
    record start "$(progress)" "$SLURM_JOB_NODELIST"
}

stop_if_stuck() {
    local now
    now=$(progress)
    if got_nowhere "$now"; then
        record stopped "$now" "no progress twice in a row"
        say "stopped: it ended twice in a row without getting further than $now $UNIT. Its turns are too short to save" \
            "anything, or something ends it before: see beside $LOG. When that is mended, submit it again"
        exit 1
    fi
}

# A notice may come before there is anything to pass it on to.
noticed="" ended=""
trap 'noticed=1' USR1

# run SIGNAL COMMAND…: runs it; Slurm's notice (USR1) reaches it as SIGNAL, Slurm's end (TERM) as TERM. Sets `status`,
# `noticed` and `ended`.
run() {
    local signal=$1 child reminded=""
    shift
    "$@" &
    child=$!
    trap 'ended=1; kill -s TERM "$child" 2>/dev/null || true' TERM
    # A signal ends the waiting, not the child.
    while kill -0 "$child" 2>/dev/null; do
        if [ -n "$noticed" ] && [ -z "$reminded" ]; then
            reminded=1
            remind "$signal" "$child" &
        fi
        wait "$child" || true
    done
    status=0
    wait "$child" || status=$?
    # What comes now comes too late, and is not to end what is left to do.
    trap '' USR1 TERM
}

# remind SIGNAL PROCESS: again and again, because what is still starting does not listen; and in time, without it.
remind() {
    local last=$((SECONDS + NOTICE_SECONDS - 60))
    while kill -s "$1" "$2" 2>/dev/null; do
        sleep 5
        if [ "$SECONDS" -gt "$last" ]; then kill -s KILL "$2"; fi
    done
}

# conclude: what the end of `run` means for the job. Status 75 is that of a program that was told to stop and has saved.
conclude() {
    local now words
    now=$(progress)
    if [ "$status" = 0 ]; then
        record "done" "$now" ""
        say "done"
        exit 0
    elif [ -n "$ended" ]; then
        # Cancelled, or put aside by Slurm, which queues it again by itself if that is how the site wants it.
        record stopped "$now" "Slurm ended the job"
        say "ended by Slurm with $now $UNIT"
        exit "$status"
    elif [ -n "$noticed" ] || [ "$status" = 75 ]; then
        stop_if_stuck
        record again "$now" "status $status"
        say "stopped with $now $UNIT; queued again"
        scontrol requeue "$JOB" || say "Slurm does not take it back; submit it again, and it goes on"
        exit 75
    fi
    record failed "$now" "status $status"
    words=$(tail -n 5 "$LOG")
    say "failed with status $status; the last words of $LOG:"
    echo "$words" >&3
    exit "$status"
}

# count_files FOLDER TESTS…: as `find` takes them; none where there is no folder yet.
count_files() { if [ -d "$1" ]; then find "$@" | wc -l; else echo 0; fi; }

# share_of_array WORDS…: fills SHARE with this task's --shard-index, and --shard-count where the words have none.
share_of_array() {
    SHARE=()
    if [ -z "${SLURM_ARRAY_TASK_ID:-}" ]; then return; fi
    SHARE=(--shard-index "$SLURM_ARRAY_TASK_ID")
    if option --shard-count "$@" >/dev/null; then return; fi
    # shellcheck disable=SC2153
    if [ "$SLURM_ARRAY_TASK_MIN" != 0 ] || [ "$((SLURM_ARRAY_TASK_MAX + 1))" != "$SLURM_ARRAY_TASK_COUNT" ]; then
        echo "an array that is not 0 to N-1 has to say of how many it is a part: give --shard-count N" >&2
        exit 1
    fi
    SHARE+=(--shard-count "$SLURM_ARRAY_TASK_COUNT")
}
