# fish completion for leasehold. Load it with:  leasehold completion fish | source
# or keep it as ~/.config/fish/completions/leasehold.fish

function __leasehold_no_noun
    not __fish_seen_subcommand_from @NOUNS@
end

function __leasehold_after_dashes
    contains -- -- (commandline -opc)
end

function __leasehold_resources
    set -l words (commandline -opc)
    set -l url
    if set -l at (contains -i -- --url $words)
        set url --url $words[(math $at + 1)]
    end
    command leasehold $url ls --names 2>/dev/null
end

complete -c leasehold -f
complete -c leasehold -n '__fish_seen_subcommand_from run; and __leasehold_after_dashes' -F -a '(__fish_complete_subcommand --commandline)'
@LINES@
