"""The trainers' own sources, at the commits that docs/trainers names: which there are, where they were looked for, and what is missing.

    python3 tests/trainers/sources.py INTO       lays them under INTO, a folder each, and says what could not be reached

Each is looked for in $RG_TRAINER_SOURCES (a folder of git repositories: OWNER+NAME/repo, OWNER/NAME or NAME), else cloned from GitHub.
Text files alone are laid: nothing is built or installed. Nothing of it is ever committed.
"""
import os
import subprocess
import sys
from pathlib import Path

# name -> (repository, commit, folders on sys.path)
TRAINERS = {
    "verl": ("verl-project/verl", "1dda039b9", [""]),
    "uni-agent": ("verl-project/uni-agent", "6f4a7c9", [""]),
    "slime": ("THUDM/slime", "624b824a8", [""]),
    "miles": ("radixark/miles", "31f1ca961", [""]),
    "skyrl": ("NovaSky-AI/SkyRL", "a9564572e", [""]),
    "areal": ("inclusionAI/AReaL", "4aef98d8d", [""]),
    "prime-rl": ("PrimeIntellect-ai/prime-rl", "559b44772", ["src", "packages/prime-rl-configs/src"]),
    "verifiers": ("PrimeIntellect-ai/verifiers", "a60a606ec", [""]),
    "rllm": ("rllm-org/rllm", "9beb6e0f", ["", "rllm-model-gateway/src"]),
    "trl": ("huggingface/trl", "f2cd57710", [""]),
    "openrlhf": ("OpenRLHF/OpenRLHF", "3c3be623", [""]),
    "nemo-gym": ("NVIDIA-NeMo/Gym", "07d6b0d07", [""]),
    "tinker": ("thinking-machines-lab/tinker", "d595dc2", ["src"]),
    "tinker-cookbook": ("thinking-machines-lab/tinker-cookbook", "9dfcc3a2", [""]),
    "agent-lightning": ("microsoft/agent-lightning", "c632d8dd", [""]),
}
KINDS = (".py", ".json", ".toml", ".yaml", ".yml", ".jinja", ".txt", "/version")


def git(folder, *arguments, **more):
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=600, **more)


def repositories(repository, into, given):
    """Where it may be: the folder `given`, else a clone."""
    owner, name = repository.split("/")
    if given:
        yield from (p for p in (Path(given) / f"{owner}+{name}/repo", Path(given) / owner / name, Path(given) / name) if p.is_dir())
        return
    clone = into / ".git" / f"{owner}+{name}"
    if not clone.is_dir():
        subprocess.run(["git", "clone", "--quiet", "--bare", f"https://github.com/{repository}", str(clone)], capture_output=True, timeout=600)
    if clone.is_dir():
        yield clone


def lay(repository, commit, into, given):
    """Writes the commit's text files under `into`; returns how many could not be read. None: no repository with that commit."""
    for folder in repositories(repository, into.parent, given):
        tree = git(folder, "ls-tree", "-r", commit)
        if tree.returncode:
            continue
        files = [line.split("\t") for line in tree.stdout.decode().splitlines()]
        files = [(head.split()[2], path) for head, path in files if head.split()[1] == "blob" and path.endswith(KINDS) and '"' not in path]
        blobs = git(folder, "cat-file", "--batch", input="".join(f"{sha}\n" for sha, _ in files).encode()).stdout
        at = missing = 0
        for _, path in files:
            end = blobs.index(b"\n", at)
            told = blobs[at:end].split()
            at = end + 1
            if told[1] == b"missing":
                missing += 1
                continue
            target, size = into / path, int(told[2])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(blobs[at:at + size])
            at += size + 1
        return missing
    return None


def reach(repository, commit, into, given):
    """Lays the commit under `into` unless it is there. Returns (whether it is there now, what to print)."""
    done = into / ".commit"
    if done.is_file() and done.read_text() == commit:
        return True, f"have {into.name}: {repository} {commit}"
    missing = lay(repository, commit, into, given)
    if missing is None:
        return False, f"CANNOT REACH {into.name}: {repository} {commit} " + (f"is not in {given}" if given else "could not be cloned from GitHub")
    done.write_text(commit)
    return True, f"laid {into.name}: {repository} {commit}" + (f", but {missing} of its files are not in the repository" if missing else "")


def main(into):
    for name, (repository, commit, _) in TRAINERS.items():
        print(reach(repository, commit, into / name, os.environ.get("RG_TRAINER_SOURCES"))[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
