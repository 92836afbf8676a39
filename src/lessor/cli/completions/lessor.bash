# bash completion for lessor. Load it with:  source <(lessor completion bash)
# or keep it as ~/.local/share/bash-completion/completions/lessor

__lessor_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

__lessor_resources() {
    local name colons=${cur%"${cur##*:}"}
    while IFS= read -r name; do
        # Readline takes what follows the last colon for the word.
        name=${name#"$colons"}
        COMPREPLY+=("$(printf '%q' "$name")")
    done < <(command lessor "${url[@]}" ls --names -- "$cur" 2>/dev/null)
}

_lessor() {
    # Split at blanks only: COMP_WORDS is cut at colons too, and URLs have some.
    local line=${COMP_LINE:0:COMP_POINT} words=() cur='' prev='' noun='' url=() flags operand i
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=('')
    cur=${words[-1]}
    COMPREPLY=()
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        prev=${words[i]}
        case $prev in
            --)
                [[ $noun == run ]] && mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
                return
                ;;
            --url) url=(--url "${words[i + 1]}") && ((i + 1 < ${#words[@]} - 1)) && ((i++)) ;;
            --url=*) url=("$prev") ;;
            -*) ;;
            *) [[ -z $noun ]] && noun=$prev ;;
        esac
    done
    prev=${words[${#words[@]} - 2]}
    case $prev in
@VALUES@
    esac
    case $noun in
        '') flags='@FLAGS@' operand="__lessor_words '@NOUNS@'" ;;
@CASES@
        *) return ;;
    esac
    if [[ $cur == -* ]]; then
        __lessor_words "$flags"
    else
        eval "$operand"
    fi
}

complete -F _lessor lessor
