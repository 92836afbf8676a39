# fish completion for lessor. Load it with:  lessor completion fish | source
# or keep it as ~/.config/fish/completions/lessor.fish

function __lessor_no_noun
    not __fish_seen_subcommand_from @NOUNS@
end

function __lessor_after_dashes
    contains -- -- (commandline -opc)
end

function __lessor_resources
    set -l words (commandline -opc)
    set -l url
    if set -l at (contains -i -- --url $words)
        set url --url $words[(math $at + 1)]
    end
    command lessor $url ls --names 2>/dev/null
end

complete -c lessor -f
complete -c lessor -n '__fish_seen_subcommand_from run; and __lessor_after_dashes' -F -a '(__fish_complete_subcommand --commandline)'
@LINES@
