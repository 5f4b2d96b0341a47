#!/usr/bin/env bash
# Submits convert, train and evaluate, each when the one before has ended well, and prints the numbers of the jobs.
#
#   slurm/pipeline.sh [--dry-run] [--nodes N] \
#       convert --input AITW --splits FILE --output SHARDS \
#       then train --config recipes/X.yaml --output RUN \
#       then evaluate --benchmark eval/X.yaml
#
# Every stage takes the arguments of `vlm-agent STAGE`; what a stage before has made need not be said again: training
# reads SHARDS, evaluation scores RUN on SHARDS into RUN/evaluation. Any one or two of the stages alone will do as well.
#
#   --dry-run  print what would be submitted
#   --nodes N  of training (otherwise NODES of slurm/site.sh)
#
# When a job fails, those that wait for it are cancelled, and slurm/logs/failed-ID.out says which it was and why. The
# same command again, without the stages that are finished, goes on from there.
set -euo pipefail
cd "$(dirname "$0")/.."
source slurm/site.sh
source slurm/options.sh

fail() {
    echo "slurm/pipeline.sh: $*" >&2
    exit 1
}

# default NAME VALUE ARRAY: adds the option to the array of words, unless it is there.
default() {
    local -n words=$3
    if [ -n "$2" ] && ! option "$1" "${words[@]}" >/dev/null; then words+=("$1" "$2"); fi
}

read_command() {
    local stage=""
    dry_run="" convert=() train=() evaluate=() stages=()
    while [ $# -gt 0 ]; do
        case $1 in
            --dry-run) dry_run=1 ;;
            --nodes) NODES=${2:?--nodes needs a number} && shift ;;
            --help | -h) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' slurm/pipeline.sh && exit ;;
            *) break ;;
        esac
        shift
    done
    [[ $NODES =~ ^[1-9][0-9]*$ ]] || fail "--nodes is a number from 1 up, not $NODES"
    while [ $# -gt 0 ]; do
        case ${stages[*]},$1 in
            ,convert | ,train | ,evaluate | convert,train | *train,evaluate | convert,evaluate) ;;
            *) fail "${1@Q} is no stage that can stand here; they are convert, train and evaluate, with \`then\` between" ;;
        esac
        stage=$1
        stages+=("$stage")
        shift
        local -n given=$stage
        while [ $# -gt 0 ] && [ "$1" != "then" ]; do
            given+=("$1")
            shift
        done
        if [ $# -eq 1 ]; then fail "a stage has to follow \`then\`"; fi
        [ $# -eq 0 ] || shift
    done
    [ "${#stages[@]}" -gt 0 ] || fail "name a stage: convert, train or evaluate (--help tells more)"
}

# What can be seen to be wrong now is not to wait in a queue.
check_command() {
    local config
    case " ${stages[*]} " in *" convert "*)
        shards=$(option --output "${convert[@]}") || fail "convert needs --output, the folder of the shards"
        default --data.shards "$shards" train
        if ! option --benchmark "${evaluate[@]}" >/dev/null; then default --shards "$shards" evaluate; fi
        ;;
    esac
    case " ${stages[*]} " in *" train "*)
        run=$(option --output "${train[@]}") || fail "train needs --output, the run folder"
        config=$(option --config "${train[@]}") || fail "train needs --config, a recipe"
        [ -f "$config" ] || fail "there is no recipe $config"
        [ ! -e "$run/run.json" ] || fail "$run holds a finished run: leave train out, or give another --output"
        default --checkpoint "$run" evaluate
        default --output "$run/evaluation" evaluate
        ;;
    esac
    case " ${stages[*]} " in *" evaluate "*)
        results=$(option --output "${evaluate[@]}") || fail "evaluate needs --output, the folder of the results"
        ;;
    esac
    if [ -n "$VENV" ] && [ ! -x "$VENV/bin/vlm-agent" ]; then
        fail "VENV of slurm/site.sh is $VENV, where there is no bin/vlm-agent: slurm/README.md says how to install it"
    fi
}

# submit NAME PARTITION OPTIONS… -- SCRIPT WORDS…: when `after` is met.
submit() {
    local name=$1 job options=(--parsable "--job-name=$1" --kill-on-invalid-dep=yes)
    if [ -n "$ACCOUNT" ]; then options+=("--account=$ACCOUNT"); fi
    if [ -n "$2" ]; then options+=("--partition=$2"); fi
    if [ -n "$after" ]; then options+=("--dependency=$after"); fi
    options+=("${SBATCH_OPTIONS[@]}")
    shift 2
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    if [ -n "$dry_run" ]; then
        job=ID_OF_${name^^}
        printf '%q ' sbatch "${options[@]}" "$@"
        echo
    else
        job=$(sbatch "${options[@]}" "$@") || give_up "$name"
        job=${job%%;*}  # a federation adds the cluster's name
        printf '%-10s %s\n' "$name" "$job"
    fi
    jobs+=("$name:$job")
    after=afterok:$job
}

# Half a pipeline is not left in the queue.
give_up() {
    if [ "${#jobs[@]}" -gt 0 ]; then scancel "${jobs[@]#*:}"; fi
    fail "Slurm refused $1, as it says above; the jobs submitted before it are cancelled"
}

# gpus N: --gres for so many of a node, nothing where the site has none.
gpus() {
    if [ "$GPUS_PER_NODE" -gt 0 ]; then echo "--gres=gpu:${GPU_TYPE:+$GPU_TYPE:}$1"; fi
}

submit_convert() {
    local array="--array=0-$((CONVERT_TASKS - 1))%$CONVERT_AT_ONCE"
    local size=("--cpus-per-task=$CONVERT_CPUS" "--mem=$CONVERT_MEMORY" "--time=$CONVERT_TIME")
    submit convert "$CPU_PARTITION" "$array" "${size[@]}" -- slurm/convert.sbatch "${convert[@]}" \
        --shard-count "$CONVERT_TASKS"
    submit finish "$CPU_PARTITION" "${size[@]}" -- slurm/convert.sbatch --finish --output "$shards"
}

submit_train() {
    local processes=$((GPUS_PER_NODE > 0 ? GPUS_PER_NODE : 1)) size
    size=("--nodes=$NODES" "--cpus-per-task=$((processes * CPUS_PER_GPU))" "--mem=$TRAIN_MEMORY" "--time=$TRAIN_TIME")
    mapfile -t -O "${#size[@]}" size < <(gpus "$GPUS_PER_NODE")
    submit train "$GPU_PARTITION" "${size[@]}" "--signal=B:USR1@$NOTICE_SECONDS" -- slurm/train.sbatch "${train[@]}"
}

submit_evaluate() {
    local array="--array=0-$((EVALUATE_TASKS - 1))%$EVALUATE_AT_ONCE" gpu
    local size=("--cpus-per-task=$CPUS_PER_GPU" "--mem=$EVALUATE_MEMORY" "--time=$EVALUATE_TIME")
    mapfile -t gpu < <(gpus 1)
    submit evaluate "$GPU_PARTITION" "$array" "${size[@]}" "${gpu[@]}" -- slurm/evaluate.sbatch "${evaluate[@]}" \
        --shard-count "$EVALUATE_TASKS"
    submit report "$CPU_PARTITION" "${size[@]}" -- slurm/evaluate.sbatch --finish --output "$results"
}

# Its condition can never be met when all went well, and Slurm then drops it.
submit_failed() {
    local names=("${jobs[@]}") condition
    condition=$(printf '?afternotok:%s' "${jobs[@]#*:}")
    after=${condition#?}
    submit failed "$CPU_PARTITION" -- slurm/failed.sbatch "${names[@]}"
}

read_command "$@"
check_command
after="" jobs=()
for stage in "${stages[@]}"; do "submit_$stage"; done
submit_failed
if [ -z "$dry_run" ]; then
    echo "What they say: slurm/logs/NAME-ID.out. How far they are: squeue --me; vlm-agent status RUN"
fi
