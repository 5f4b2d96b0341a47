#!/usr/bin/env bash
# Submits convert, features, train and evaluate as a chain, each after the success of the one before, or the stages of a
# comparison, and prints the job numbers.
#
#   slurm/pipeline.sh [--dry-run] [--nodes N] \
#       convert --input AITW --splits FILE --output SHARDS \
#       then train --config recipes/X.yaml --output RUN \
#       then evaluate --benchmark eval/X.yaml
#
# Every stage takes the arguments of `vlm-agent STAGE`. Outputs of earlier stages are defaults: training reads SHARDS,
# evaluation scores RUN on SHARDS into RUN/evaluation. Some of the stages can be submitted alone; without convert,
# evaluation reads the shards that training reads.
#
# A recipe whose sentences are chain_of_actions reads screen features: before train, `then features --output FEATURES`
# extracts those that the recipe's model.features names, of SHARDS.
#
#   slurm/pipeline.sh [--dry-run] compare eval/comparisons/X.yaml --output OUT
#
# takes the arguments of `vlm-agent compare`, and submits a job for each of its stages that is not done, after the success
# of those that it needs; agents and seeds are independent. With `--gpus N` a training has N GPUs of a node, and so has a
# job that serves a model by `--serve COMMAND` beside its prompts. The last job, `report`, runs when all others have ended.
#
#   --dry-run  print the submissions; of a comparison with the hours that each is estimated to take
#   --gpu NAME  the GPUs of that estimate, as in `vlm-agent train --dry-run` (default H100)
#   --nodes N  training nodes (default: NODES of slurm/site.sh); not with compare, whose stages have one node each
#
# When a job fails, the jobs that wait for it are cancelled, and slurm/logs/failed-ID.out shows which job failed and why.
# Run the same command again without the finished stages to resume, with the folders that they gave to the others
# (--data.shards of train, --shards and --checkpoint of evaluate).
set -euo pipefail
cd "$(dirname "$0")/.."
source slurm/site.sh
source slurm/options.sh

fail() {
    echo "slurm/pipeline.sh: $*" >&2
    exit 1
}

# default NAME VALUE ARRAY: appends the option to the array of words unless the array has it.
default() {
    local -n words=$3
    if [ -n "$2" ] && ! option "$1" "${words[@]}" >/dev/null; then words+=("$1" "$2"); fi
}

read_command() {
    local stage="" nodes=""
    dry_run="" gpu="" convert=() features=() train=() evaluate=() compare=() stages=()
    while [ $# -gt 0 ]; do
        case $1 in
            --dry-run) dry_run=1 ;;
            --gpu) gpu=${2:?--gpu needs a name} && shift ;;
            --nodes) NODES=${2:?--nodes needs a number} nodes=$2 && shift ;;
            --help | -h) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' slurm/pipeline.sh && exit ;;
            *) break ;;
        esac
        shift
    done
    [[ $NODES =~ ^[1-9][0-9]*$ ]] || fail "--nodes must be 1 or greater, not $NODES"
    while [ $# -gt 0 ]; do
        case ${stages[*]},$1 in
            ,convert | ,features | ,train | ,evaluate | ,compare) ;;
            convert,features | convert,train | *features,train | *train,evaluate | convert,evaluate) ;;
            *) fail "unexpected stage ${1@Q}; the order is convert, features, train, evaluate, separated by \`then\`" ;;
        esac
        stage=$1
        stages+=("$stage")
        shift
        local -n arguments=$stage
        while [ $# -gt 0 ] && [ "$1" != "then" ]; do
            arguments+=("$1")
            shift
        done
        if [ $# -eq 1 ]; then fail "a stage must follow \`then\`"; fi
        [ $# -eq 0 ] || shift
    done
    if [ "${#compare[@]}" -gt 0 ] && [ -n "$nodes" ]; then
        fail "each stage of compare has one node, so --nodes has no effect; train a model that needs more by" \
            "\`slurm/pipeline.sh --nodes $nodes train\` and name it as \`run:\` in the comparison file"
    fi
    [ "${#stages[@]}" -gt 0 ] || fail "name a stage: convert, features, train, evaluate or compare (see --help)"
    if [ -n "$nodes" ] && [[ " ${stages[*]} " != *" train "* ]]; then fail "--nodes is for train; remove it"; fi
    if [ -n "$gpu" ] && [[ -z $dry_run || ${stages[0]} != compare ]]; then
        fail "--gpu is for the hours that \`--dry-run compare\` prints; remove it"
    fi
    local word
    for word in "${convert[@]}" "${features[@]}" "${train[@]}" "${evaluate[@]}" "${compare[@]}"; do
        case $word in
            --dry-run | --nodes | --help | -h) fail "write $word before the first stage, ${stages[0]}" ;;
            --finish | --stage | --report) fail "all jobs are submitted, also that of $word; remove it" ;;
            --online)
                fail "evaluate --online is no job array; submit it alone, after training:" \
                    "sbatch --gres=gpu:1 --wrap 'vlm-agent evaluate --online …'"
                ;;
        esac
    done
}

# Sets the defaults, and reports errors at submission that would otherwise show only after waiting in the queue.
check_command() {
    local config
    case " ${stages[*]} " in *" convert "*)
        shards=$(option --output "${convert[@]}") || fail "convert needs --output, the folder of the shards"
        default --data.shards "$shards" train
        default --shards "$shards" evaluate
        ;;
    esac
    case " ${stages[*]} " in *" features "*) check_features ;; esac
    case " ${stages[*]} " in *" train "*)
        run=$(option --output "${train[@]}") || fail "train needs --output, the run folder"
        config=$(option --config "${train[@]}") || fail "train needs --config, a recipe"
        [ -f "$config" ] || fail "the recipe $config does not exist"
        [ ! -e "$run/run.json" ] || fail "$run holds a finished run: omit train, or choose another --output"
        default --checkpoint "$run" evaluate
        default --output "$run/evaluation" evaluate
        case " ${stages[*]} " in *" convert "*) ;; *) check_shards ;; esac
        ;;
    esac
    case " ${stages[*]} " in *" evaluate "*)
        results=$(option --output "${evaluate[@]}") || fail "evaluate needs --output, the folder of the results"
        ;;
    esac
    if [ -n "$VENV" ] && [ ! -x "$VENV/bin/vlm-agent" ]; then
        fail "VENV of slurm/site.sh is $VENV, which lacks bin/vlm-agent: see slurm/README.md for the installation"
    fi
    if [ "${stages[0]}" = compare ]; then
        option --output "${compare[@]}" >/dev/null || fail "compare needs --output, the folder of the comparison"
        local gpus
        gpus=$(option --gpus "${compare[@]}") || gpus=1
        if [ "$GPUS_PER_NODE" -gt 0 ] && [[ $gpus =~ ^[0-9]+$ ]] && [ "$gpus" -gt "$GPUS_PER_NODE" ]; then
            fail "--gpus is $gpus, and a node has $GPUS_PER_NODE (GPUS_PER_NODE of slurm/site.sh)"
        fi
    fi
    check_stages
}

# Every stage checks its own arguments, in one process, with the caches of the jobs.
check_stages() {
    local program=("${CONTAINER[@]}" "${VENV:+$VENV/bin/}vlm-agent") words=() stage
    for stage in "${stages[@]}"; do
        local -n own=$stage
        words+=("then" "$stage" "${own[@]}")
    done
    use_caches
    "${program[@]}" check "${words[@]:1}" >&2 || fail "nothing is submitted; see above"
    if [ "${stages[0]}" != compare ]; then return; fi
    listing=$("${program[@]}" compare "${compare[@]}" --list-stages ${dry_run:+--hours "${gpu:-H100}"}) ||
        fail "the stages cannot be listed, see above"
}

# The shards of the conversion, and the recipe of the training, are defaults.
check_features() {
    local config
    extracted=$(option --output "${features[@]}") || fail "features needs --output, the folder of the features"
    if [[ " ${stages[*]} " = *" convert "* && ${features[0]} = --* ]]; then features=("$shards" "${features[@]}"); fi
    if [[ ${features[0]} = --* ]]; then fail "features needs the folder of the shards as its first argument"; fi
    if ! option --extractor "${features[@]}" >/dev/null; then
        config=$(option --config "${train[@]}") || true
        default --config "$config" features
    fi
    default --data.features "$extracted" train
}

# Without convert: evaluation reads those of --data.shards of training by default.
check_shards() {
    local read
    if [ "${#features[@]}" -gt 0 ]; then default --data.shards "${features[0]}" train; fi
    if read=$(option --data.shards "${train[@]}"); then default --shards "$read" evaluate; fi
    case " ${stages[*]} " in *" evaluate "*)
        option --shards "${evaluate[@]}" >/dev/null || option --benchmark "${evaluate[@]}" >/dev/null ||
            fail "evaluate needs --shards SHARDS (those of --data.shards of train are the default), or --benchmark FILE"
        ;;
    esac
}

# submit NAME PARTITION OPTIONS… -- SCRIPT WORDS…: submits a job with the dependency `after`.
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
        echo "${hours:+# $hours hours}"
    else
        job=$(sbatch "${options[@]}" "$@") || give_up "$name"
        job=${job%%;*}  # a federation appends the cluster's name
        printf '%-10s %s\n' "$name" "$job"
    fi
    jobs+=("$name:$job")
    after=afterok:$job
}

# Cancels the jobs submitted so far, so that no incomplete pipeline stays in the queue.
give_up() {
    local before=("${jobs[@]#*:}")
    if [ "${#before[@]}" = 0 ]; then fail "Slurm refused $1 (its message is above)"; fi
    scancel "${before[@]}" || fail "Slurm refused $1, and to cancel the jobs before it: run \`scancel ${before[*]}\`"
    fail "Slurm refused $1 (its message is above); the jobs submitted before are cancelled"
}

# gpus N: --gres for N GPUs per node; nothing if GPUS_PER_NODE is 0.
gpus() {
    if [ "$GPUS_PER_NODE" -gt 0 ]; then echo "--gres=gpu:${GPU_TYPE:+$GPU_TYPE:}$1"; fi
}

submit_convert() {
    local array="--array=0-$((CONVERT_TASKS - 1))%$CONVERT_AT_ONCE" finish=(--finish --output "$shards")
    local size=("--cpus-per-task=$CONVERT_CPUS" "--mem=$CONVERT_MEMORY" "--time=$CONVERT_TIME")
    submit convert "$CPU_PARTITION" "$array" "${size[@]}" -- slurm/convert.sbatch "${convert[@]}" \
        --shard-count "$CONVERT_TASKS"
    default --max-bad-fraction "$(option --max-bad-fraction "${convert[@]}" || true)" finish
    submit finish "$CPU_PARTITION" "${size[@]}" -- slurm/convert.sbatch "${finish[@]}"
}

submit_features() {
    local array="--array=0-$((FEATURES_TASKS - 1))%$FEATURES_AT_ONCE" gpu
    local size=("--cpus-per-task=$CPUS_PER_GPU" "--mem=$FEATURES_MEMORY" "--time=$FEATURES_TIME")
    mapfile -t gpu < <(gpus 1)
    submit features "$GPU_PARTITION" "$array" "${size[@]}" "${gpu[@]}" -- slurm/features.sbatch "${features[@]}" \
        --shard-count "$FEATURES_TASKS"
    submit features_finish "$CPU_PARTITION" "${size[@]}" -- slurm/features.sbatch --finish --output "$extracted"
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

# A job for each stage that is not done. A stage that fails cancels those that need it; the report names it.
submit_compare() {
    local name gpus state needs needed writes
    local -A numbers=()
    while IFS=$'\t' read -r name gpus state needs writes hours; do
        if [ "$state" = "done" ]; then continue; fi
        after=""
        for needed in ${needs//,/ }; do after+=${numbers[$needed]:+:${numbers[$needed]}}; done
        after=${after:+afterok$after}
        submit_stage "$name" "$gpus" "$writes" "${compare[@]}" --stage "$name"
        numbers[$name]=${jobs[-1]#*:}
    done <<<"$listing"
    after=$(printf ':%s' "${jobs[@]#*:}")
    after=${jobs:+afterany$after} hours=""
    submit_stage report 0 "$(option --output "${compare[@]}")" "${compare[@]}" --report
}

# submit_stage NAME GPUS WORDS…: on GPUs of one node, training with the time of training jobs; on CPUs if GPUS is 0.
submit_stage() {
    local size=("--cpus-per-task=$CONVERT_CPUS" "--mem=$CONVERT_MEMORY" "--time=$CONVERT_TIME") partition=$CPU_PARTITION
    if [ "$2" -gt 0 ]; then
        partition=$GPU_PARTITION
        size=("--cpus-per-task=$(($2 * CPUS_PER_GPU))" "--mem=$EVALUATE_MEMORY")
        case $1 in train-*) size+=("--time=$TRAIN_TIME") ;; *) size+=("--time=$EVALUATE_TIME") ;; esac
        mapfile -t -O "${#size[@]}" size < <(gpus "$2")
    fi
    submit "$1" "$partition" "${size[@]}" "--signal=B:USR1@$NOTICE_SECONDS" -- slurm/compare.sbatch "${@:3}"
}

# If all jobs succeed, its dependency can never be satisfied, and Slurm removes it.
submit_failed() {
    local names=("${jobs[@]}") condition
    condition=$(printf '?afternotok:%s' "${jobs[@]#*:}")
    after=${condition#?}
    submit failed "$CPU_PARTITION" -- slurm/failed.sbatch "${names[@]}"
}

read_command "$@"
check_command
after="" hours="" jobs=()
for stage in "${stages[@]}"; do "submit_$stage"; done
if [ "${stages[0]}" != compare ]; then submit_failed; fi
if [ -z "$dry_run" ]; then
    echo "Logs: slurm/logs/NAME-ID.out. Progress: squeue --me; vlm-agent status RUN"
fi
