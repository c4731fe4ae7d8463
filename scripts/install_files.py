#!/usr/bin/python3
"""Writes the manual pages, completions, settings file and units of an installation. Pages, completions and settings
come from the binary's own tables, as `--help` and `config --docs` print them. cmake --install runs this script.

    scripts/install_files.py BINARY PREFIX SYSCONFDIR      (below $DESTDIR, if it is set)
"""
import os
import re
import subprocess
import sys
from pathlib import Path

UNITS = Path(__file__).resolve().parents[1] / "deploy/systemd"
SHELL_WORD = re.compile(r"^[a-z][a-z-]*$")


def run(binary, *arguments):
    return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout


class Command:
    """One command, read from its --help."""

    def __init__(self, binary, name):
        self.name, text = name, run(binary, name, "--help")
        head, *sections = re.split(r"\n\n(?=usage:|options:|examples:|`)", text)
        self.summary = head.removeprefix(f"rollgate {name}: ").strip()
        self.usage, self.options, self.examples = "", [], []
        self.settings = "`rollgate config --docs` lists all settings." in text
        for section in sections:
            title, _, body = section.partition("\n")
            if title.startswith("usage: "):
                self.usage = title.removeprefix("usage: ")
            elif title == "options:":
                self.options = [split_option(line) for line in body.rstrip().split("\n")]
            elif title == "examples:":
                self.examples = [line.strip() for line in body.rstrip().split("\n")]

    def flags(self):
        """(flag, whether it has a value, help)"""
        return [(word, " " in form.strip(), text) for form, text in self.options for word in re.findall(r"--[a-z-]+", form)]

    def words(self):
        """(word that the command needs first, such as `verify`, help)"""
        found = {}
        texts = {form.split()[0]: text for form, text in self.options}
        for form in self.usage.removeprefix(f"rollgate {self.name} ").split("|"):
            word = form.split()[0]
            if SHELL_WORD.match(word):
                found[word] = texts.get(word, form.strip())
        return list(found.items())


def split_option(line):
    """The form of an option and its text. Two columns: the second begins after the 27th letter, or after the form."""
    form, text = line[2:26].rstrip(), line[27:]
    if len(line) > 26 and line[26] != " ":
        form, text = re.match(r"  (\S+(?: [A-Z]\S*)*) (.*)", line).groups()
    return form, text.strip()


def read_settings(docs):
    """(name, help) of each setting, from `config --docs`."""
    found, text = [], []
    for line in docs.split("\n"):
        if match := re.match(r"#([a-z0-9-]+): ", line):
            found.append((match[1], " ".join(text)))
            text = []
        elif line.startswith("# ") and not line.startswith("# ---"):
            text += [line[2:]] if not line.startswith("# (") else []
        else:
            text = []
    return found


def first_sentence(text):
    return re.split(r"(?<=\.)\s|: ", text)[0].rstrip(".")


# --- manual pages ---

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("[", "\\:[")
    return "\\&" + text if text[:1] in (".", "'") else text


def manual_head(title, section, version, name, summary, usage):
    return (f'.TH {title} {section} "" "rollgate {version}"\n.ad l\n.nh\n.SH NAME\n{roff(name)} \\- {roff(summary)}\n'
            f".SH SYNOPSIS\n.B {roff(usage)}\n")


def command_manual(command, version):
    title = f"ROLLGATE\\-{command.name.upper()}"
    page = manual_head(title, 1, version, f"rollgate-{command.name}", command.summary, command.usage)
    if command.options:
        page += ".SH OPTIONS\n" + "".join(f".TP\n.B {roff(form)}\n{roff(text)}.\n" for form, text in command.options)
    if command.settings:
        page += ".PP\nAll settings of\n.BR rollgate.yaml (5)\nare options, too.\n"
    page += ".SH EXAMPLES\n.nf\n" + "".join(roff(line) + "\n" for line in command.examples) + ".fi\n"
    return page + ".SH SEE ALSO\n.BR rollgate (1),\n.BR rollgate.yaml (5)\n"


def main_manual(commands, version):
    page = manual_head("ROLLGATE", 1, version, "rollgate", "session gateway for agentic reinforcement learning",
                       "rollgate COMMAND [settings]")
    page += ".SH COMMANDS\n" + "".join(f".TP\n.BR rollgate\\-{roff(c.name)} (1)\n{roff(c.summary)}.\n" for c in commands)
    return page + ".SH SEE ALSO\n.BR rollgate.yaml (5)\n"


# --- completions ---

def bash_completion(commands, settings):
    cases = []
    for c in commands:
        flags = [flag for flag, _, _ in c.flags()] + [f"--{name}" for name, _ in settings if c.settings]
        words, unique = " ".join(word for word, _ in c.words()), " ".join(dict.fromkeys(flags))
        cases.append(f"    {c.name}) words='{words}' flags='{unique}' ;;\n")
    return f"""# bash completion of rollgate
_rollgate() {{
    local words= flags= current=${{COMP_WORDS[COMP_CWORD]}}
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '{' '.join(c.name for c in commands)} --help --version' -- "$current")
        return
    fi
    case ${{COMP_WORDS[1]}} in
{''.join(cases)}    esac
    if [[ $current = -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$flags --help" -- "$current")
    elif [ "$COMP_CWORD" = 2 ] && [ -n "$words" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}}
complete -o filenames -F _rollgate rollgate
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_text(text):
    return re.sub(r"([\[\]:])", r"\\\1", text)


def zsh_completion(commands, settings):
    cases = []
    for c in commands:
        flags = [(flag, text, value) for flag, value, text in c.flags()]
        own = {flag for flag, _, _ in flags}
        flags += [(f"--{name}", first_sentence(text), True) for name, text in settings if c.settings and f"--{name}" not in own]
        lines = [quoted(f"*{flag}[{zsh_text(text)}]" + (":value:_files" if value else "")) for flag, text, value in flags]
        first = [quoted("1:word:(" + " ".join(word for word, _ in c.words()) + ")")] if c.words() else []
        cases.append(f"    {c.name})\n        _arguments {' '.join(lines + first + [quoted('*:file:_files')])} ;;\n")
    names = " ".join(quoted(f"{c.name}:{c.summary}") for c in commands)
    return f"""#compdef rollgate
# zsh completion of rollgate
_rollgate() {{
    local -a commands
    commands=({names})
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    shift words
    (( CURRENT-- ))
    case $words[1] in
{''.join(cases)}    esac
}}
_rollgate "$@"
"""


def fish_completion(commands, settings):
    lines = ["# fish completion of rollgate"]
    for c in commands:
        lines.append(f"complete -c rollgate -n __fish_use_subcommand -f -a {c.name} -d {fish_quoted(c.summary)}")
        seen = f"-n '__fish_seen_subcommand_from {c.name}'"
        lines += [f"complete -c rollgate {seen} -a {word} -d {fish_quoted(text)}" for word, text in c.words()]
        flags = {flag[2:]: (text, value) for flag, value, text in c.flags()}
        if c.settings:
            flags = {**{name: (first_sentence(text), True) for name, text in settings}, **flags}
        lines += [f"complete -c rollgate {seen} -l {name} {'-r ' if value else ''}-d {fish_quoted(text)}"
                  for name, (text, value) in flags.items()]
    return "\n".join(lines) + "\n"


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o644)


def main(binary, prefix, sysconfdir):
    root = os.environ.get("DESTDIR", "")
    share = f"{root}{prefix}/share"
    overview = run(binary, "--help")
    version = overview.split()[1]
    names = re.findall(r"^  ([a-z-]+) ", overview, re.M)
    commands = [Command(binary, name) for name in names]
    docs = run(binary, "config", "--docs")
    settings = read_settings(docs)
    write(f"{share}/man/man1/rollgate.1", main_manual(commands, version))
    for command in commands:
        write(f"{share}/man/man1/rollgate-{command.name}.1", command_manual(command, version))
    write(f"{share}/man/man5/rollgate.yaml.5", run(binary, "config", "--man"))
    write(f"{share}/bash-completion/completions/rollgate", bash_completion(commands, settings))
    write(f"{share}/zsh/vendor-completions/_rollgate", zsh_completion(commands, settings))
    write(f"{share}/fish/vendor_completions.d/rollgate.fish", fish_completion(commands, settings))
    write(f"{root}{sysconfdir}/rollgate/rollgate.yaml", docs)
    for unit in [*UNITS.glob("*.service"), *UNITS.glob("*.socket")]:
        text = unit.read_text(encoding="utf-8").replace("/usr/bin/rollgate", f"{prefix}/bin/rollgate")
        write(f"{root}{prefix}/lib/systemd/system/{unit.name}", text)


if __name__ == "__main__":
    main(*sys.argv[1:])
