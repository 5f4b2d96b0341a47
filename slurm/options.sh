# shellcheck shell=bash
# Functions of pipeline.sh and of all jobs; site.sh was sourced before.

# option NAME WORDS…: prints the last value of the option NAME among WORDS, as vlm-agent reads it; fails if it is absent.
option() {
    local name=$1 value found=""
    while shift && [ $# -gt 0 ]; do
        case $1 in
            "$name") [ $# -gt 1 ] && found=1 value=$2 ;;
            "$name="*) found=1 value=${1#*=} ;;
        esac
    done
    [ -n "$found" ] && printf '%s\n' "$value"
}

# use_caches: the caches that jobs read, and whether they have a connection to the hub.
use_caches() {
    if [ -n "$SCRATCH" ]; then export HF_HOME="$SCRATCH/huggingface"; fi
    if [ "$OFFLINE" = 1 ]; then export HF_HUB_OFFLINE=1; fi
}
