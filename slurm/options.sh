# shellcheck shell=bash
# Looking into the arguments of vlm-agent.

# option NAME WORDS…: what follows the option NAME among the words; fails where it is not there.
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
