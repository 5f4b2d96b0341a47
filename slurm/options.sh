# shellcheck shell=bash
# Functions of pipeline.sh and of all jobs; site.sh was sourced before.

# option NAME WORDS…: prints the value of the option NAME among WORDS; fails if it is absent.
option() {
    local name=$1
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            "$name") [ $# -gt 1 ] && printf '%s\n' "$2" && return ;;
            "$name="*) printf '%s\n' "${1#*=}" && return ;;
        esac
        shift
    done
    return 1
}

# use_caches: the caches that jobs read, and whether they have a connection to the hub.
use_caches() {
    if [ -n "$SCRATCH" ]; then export HF_HOME="$SCRATCH/huggingface"; fi
    if [ "$OFFLINE" = 1 ]; then export HF_HUB_OFFLINE=1; fi
}
