#compdef lessor
# zsh completion for lessor. Keep it as _lessor in a folder of $fpath, or load it with:
#   source <(lessor completion zsh)

__lessor_resources() {
  local -a names url
  (( ${+opt_args[--url]} )) && url=(--url "${opt_args[--url]}")
  names=("${(@f)$(command lessor $url ls --names 2>/dev/null)}")
  compadd -- ${names:#}
}

_lessor() {
  local curcontext="$curcontext" state line
  local -A opt_args
  _arguments -C \
    @FLAGS@ \
    '1:subcommand:->noun' \
    '*::argument:->rest'
  case $state in
    noun)
      local -a nouns
      nouns=(
@NOUNS@
      )
      _describe subcommand nouns
      ;;
    rest)
      case $line[1] in
@CASES@
      esac
      ;;
  esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _lessor "$@"
else
  compdef _lessor lessor
fi
