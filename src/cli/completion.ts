import { Argument, type Command } from 'commander'
import { type Context, withExamples } from './command.ts'

interface Word {
  /** The commands before the word, such as `token create`; empty for the first word. */
  readonly path: string
  readonly words: readonly string[]
}

export function addCompletion(program: Command, context: Context): void {
  const command = program
    .command('completion')
    .addArgument(new Argument('<shell>', 'your shell').choices(['bash', 'zsh', 'fish']))
    .description('print a script that completes commands and options in your shell')
    .action(async (shell: 'bash' | 'zsh' | 'fish') => {
      await context.terminal.raw(SCRIPTS[shell](wordsOf(program)))
    })
  withExamples(command, [
    { type: 'completion bash > ~/.local/share/bash-completion/completions/annals', for: 'bash' },
    { type: 'completion zsh > ~/.zfunc/_annals', for: 'zsh' },
    { type: 'completion fish > ~/.config/fish/completions/annals.fish', for: 'fish' },
  ])
}

/** The words that can follow each command, read from the commands, so that none is missing. */
function wordsOf(program: Command): readonly Word[] {
  const found: Word[] = []
  const visit = (command: Command, path: string): void => {
    const names = visibleIn(command).map(child => child.name())
    const options = command.options.flatMap(({ short, long }) =>
      [short, long].filter(name => name !== undefined),
    )
    const choices = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? [])
    found.push({ path, words: [...names, ...choices, ...options, '--help'] })
    for (const child of visibleIn(command)) visit(child, `${path} ${child.name()}`.trim())
  }
  visit(program, '')
  return found
}

/** The subcommands that the help lists. */
function visibleIn(command: Command): readonly Command[] {
  return command
    .createHelp()
    .visibleCommands(command)
    .filter(child => child.name() !== 'help')
}

const SCRIPTS: Readonly<Record<'bash' | 'zsh' | 'fish', (words: readonly Word[]) => string>> = {
  bash: words => `# annals: completion for bash
_annals() {
  local current="\${COMP_WORDS[COMP_CWORD]}" path="" word words=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in -*) ;; *) path="\${path:+$path }$word" ;; esac
  done
  while :; do
    case "$path" in
${words.map(({ path, words: list }) => `      "${path}") words="${list.join(' ')}"; break ;;`).join('\n')}
    esac
    case "$path" in *" "*) path="\${path% *}" ;; *) path="" ;; esac
  done
  case "$current" in
    -*) ;;
    *) compopt -o default 2>/dev/null ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _annals annals
`,
  zsh: words => `#compdef annals
# annals: completion for zsh
_annals() {
  local word route=""
  local -A known
${words.map(({ path, words: list }) => `  known[${path === '' ? '-' : path.replaceAll(' ', '/')}]="${list.join(' ')}"`).join('\n')}
  for word in "\${(@)words[2,CURRENT-1]}"; do
    [[ "$word" == -* ]] || { [[ -n "\${known[\${route:+$route/}$word]}" ]] && route="\${route:+$route/}$word"; }
  done
  compadd -- \${=known[\${route:--}]}
  _files
}
compdef _annals annals
`,
  fish: words => `# annals: completion for fish
${words
  .flatMap(({ path, words: list }) => {
    const condition =
      path === ''
        ? '__fish_use_subcommand'
        : path
            .split(' ')
            .map(name => `__fish_seen_subcommand_from ${name}`)
            .join('; and ')
    return list.map(word => `complete -c annals -n '${condition}' ${wordForFish(word)}`)
  })
  .join('\n')}
`,
}

function wordForFish(word: string): string {
  if (word.startsWith('--')) return `-l ${word.slice(2)}`
  return word.startsWith('-') ? `-s ${word.slice(1)}` : `-a ${word}`
}
