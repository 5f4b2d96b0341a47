# shellcheck shell=bash
# Reads options from the arguments of vlm-agent.

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
