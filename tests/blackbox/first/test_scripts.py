"""Scripts for users: their progress and final output, the files that a container build includes, the ids that the
batch script assigns."""
import fnmatch
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types

import pytest

import conftest
import gateway as g

def steps(*pairs):
    """A command that prints each line and goes on once what was told about it (a pattern) is there."""
    wait = "do kill -0 $PPID || exit; sleep 0.05; done"    # not longer than its reader lives
    return "\n".join(f"echo '{line}'; until grep -q '{text}' \"$TOLD\"; {wait}" for line, text in pairs)


NINJA = steps(("[1/4] Building x.o", "(1 of 4)"), ("[2/4] Building x.o", "build: 50 % (2 of 4)"))


def progress(tmp_path, command, terminal=False, **env):
    run = [g.ROOT / "scripts/progress", "build", tmp_path / "log", "bash", "-c", command]
    if terminal:  # script(1) gives it one
        run = ["script", "-qfec", shlex.join(str(part) for part in run), "/dev/null"]
    told = tmp_path / "told"
    with told.open("wb") as out:
        done = subprocess.run(run, env=dict(os.environ, TOLD=str(told), **env), stdout=out, stderr=subprocess.PIPE, timeout=60,
                              check=False, stdin=subprocess.DEVNULL)
    done.stdout, done.stderr = told.read_bytes().decode(), done.stderr.decode()
    return done


def test_progress_is_a_line_now_and_then(tmp_path):
    done = progress(tmp_path, NINJA, PROGRESS_EVERY="1")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0] == "build: begun" and lines[-1].startswith("build: done in ")
    assert any("25 % (1 of 4)" in line for line in lines[1:-1]), lines
    assert "Building" not in done.stdout


def test_progress_renews_one_line_on_a_terminal(tmp_path):
    done = progress(tmp_path, NINJA, terminal=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stdout
    assert "\r\x1b[Kbuild: 50 % (2 of 4)" in done.stdout


@pytest.mark.parametrize("lines", [
    (("Setting up a", "build: 1 of 2 [0-9]"), ("Setting up b", "build: 2 of 2 [0-9]")),
    (("Get:1 http://x a", "build: 1 of 2 fetched"), ("Unpacking a\nSetting up a", "build: 1 of 2 unpacked"),
     ("Unpacking b", "build: 1 of 2 [0-9]"))], ids=["set up", "fetched, unpacked, set up"])
def test_progress_counts_packages(tmp_path, lines):
    done = progress(tmp_path, steps(*lines), PROGRESS_EVERY="1", PROGRESS_TOTAL="2")
    assert done.returncode == 0, done.stdout


def test_progress_counts_tests_and_failures(tmp_path):
    lines = ("..F.                          [ 50%]", "build: 50 %, 1 failed"), ("..E.   [100%]", "build: 100 %, 2 failed")
    done = progress(tmp_path, steps(*lines), PROGRESS_EVERY="1")
    assert done.returncode == 0, done.stdout


def test_progress_follows_a_process_of_others(tmp_path):
    log = tmp_path / "log"
    log.write_text("[1/4] Building x.o\n", encoding="utf-8")
    with subprocess.Popen(["sleep", "60"]) as other:
        run = [g.ROOT / "scripts/progress", "--follow", "build", log, str(other.pid)]
        with subprocess.Popen(run, env=dict(os.environ, PROGRESS_EVERY="1"), stdout=subprocess.PIPE, text=True) as follower:
            assert "25 % (1 of 4)" in follower.stdout.readline()
            other.kill()
            other.wait()
            assert follower.wait(20) == 0


def test_progress_fails_as_its_command_and_shows_why(tmp_path):
    done = progress(tmp_path, "echo what is wrong; exit 3")
    assert done.returncode == 3 and "what is wrong" in done.stderr
    assert "build: failed with status 3" in done.stdout and str(tmp_path / "log") in done.stdout


@pytest.mark.parametrize("arguments,port", [([], 8600), (["serve"], 8600), (["serve", "--listen", "0.0.0.0:7001"], 7001),
                                            (["serve", "--listen=localhost:7002"], 7002)])
def test_what_to_try_next_names_the_gateway(arguments, port):
    said = subprocess.run([sys.executable, g.ROOT / "scripts/demo.py", "--next", *arguments], capture_output=True, text=True,
                          check=True).stdout
    assert all((g.ROOT / page).exists() for page in re.findall(r"[\w/]+\.md", said)), said
    assert said.count(f"http://127.0.0.1:{port}/") == 4 and ("scripts/run serve &" in said) == (not arguments)


def test_what_to_try_next_works(start, tmp_path):
    """The lines as they are printed, in a shell."""
    gateway = start(workers=1)
    listen = f"127.0.0.1:{gateway.port}"
    said = subprocess.run([sys.executable, g.ROOT / "scripts/demo.py", "--next", "serve", "--listen", listen],
                          capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if line.startswith("  ")]
    script = "\n".join(line + "; echo" for line in lines)
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=60, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == 3 and answers[0]["choices"][0]["message"]["role"] == "assistant"
    (trajectory,) = answers[2]["trajectories"]
    assert sum(trajectory["response_mask"]) > 0 and trajectory["reward_info"] == {"reward": 1.0}


# --- the container's context ---

def ignored(path):
    """The rules that our .dockerignore uses: a name from the top, or **/ a name anywhere."""
    parts = path.split("/")
    for rule in (g.ROOT / ".dockerignore").read_text().split("\n"):
        if not rule or rule.startswith("#"):
            continue
        if rule.startswith("**/"):
            if any(fnmatch.fnmatch(part, rule[3:]) for part in parts):
                return True
        elif fnmatch.fnmatch(parts[0], rule.lstrip("/")):
            return True
    return False


def test_a_container_build_starts_from_the_sources_alone():
    for path in ("build/release/CMakeCache.txt", "build-other/CMakeCache.txt", "tests/unit/CMakeLists.txt", "a.gcno",
                 "viewer/node_modules/x.js"):
        assert ignored(path), path
    for path in ("CMakeLists.txt", "CMakePresets.json", "scripts/setup", "scripts/progress", "supervisor/main.c",
                 "worker/plane/api/routes.def"):
        assert not ignored(path), path


# --- the batch script ---

def batch(folder, task, cpus, **more):
    """Runs it with a step that tells its arguments and ends; returns the range of worker ids."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in (("srun", 'echo "$@"'), ("scancel", ":"), ("curl", "exit 1")):
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    env = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}", SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_JOB_ID="7",
               SLURM_CPUS_ON_NODE=str(cpus), ROLLGATE_RUN=str(folder / "run"), **more)
    said = subprocess.run(["bash", g.ROOT / "deploy/slurm/rollgate.sbatch"], env=env, capture_output=True, text=True, timeout=30,
                          check=True).stdout.split()
    base = int(said[said.index("--worker-base") + 1])
    return range(base, base + int(said[said.index("--workers") + 1]))


def test_unequal_nodes_of_one_array_have_ids_of_their_own(tmp_path):
    ranges = [batch(tmp_path, task, cpus) for task, cpus in enumerate([4, 128, 2, 384, 64])]
    seen = [i for r in ranges for i in r]
    assert len(seen) == len(set(seen)), ranges
    assert [len(r) for r in ranges] == [4, 128, 2, 256, 64]


# --- beside the tests ---

def test_the_conversations_of_a_profile_run():
    """scripts/profile, with which packages are built, counts branches in them. One turn shows that none fails."""
    done = subprocess.run([sys.executable, g.ROOT / "tests/bench/branches.py", "1"], capture_output=True, text=True,
                          timeout=g.PATIENCE * 60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_runs_beside_others_stands_behind_them_and_ends_as_its_command():
    """Its own session, for the kernel may share the processor out by sessions."""
    done = subprocess.run([g.ROOT / "scripts/beside", "bash", "-c", "chrt -p $$; nice; ps -o sid= -p $$; echo $$; exit 7"],
                          capture_output=True, text=True, check=False)
    policy, _, niceness, session, pid = done.stdout.splitlines()
    assert done.returncode == 7 and policy.endswith("SCHED_IDLE") and niceness == "19" and session.strip() == pid, done.stdout


def test_what_runs_beside_others_ends_with_its_session(tmp_path):
    """As .ci/run and scripts/test end it: all that it has started, by the id that they know."""
    script = f"{g.ROOT}/scripts/beside bash -c 'sleep 600 & echo $! >{tmp_path}/pid; wait' & " \
        f"until [ -s {tmp_path}/pid ]; do sleep 0.02; done; kill -- -$!"
    subprocess.run(["bash", "-c", script], timeout=60, check=True)
    g.wait_until(lambda: not g.alive(int((tmp_path / "pid").read_text())), what="what it has started ends")


# --- what the tests of a run come to ---

LOG = """[SKIP] template::shared_units_equal_jinja2: ../shared/data/corpus/jinja_units.jsonl is not there
[====] Synthesis: Tested: 34 | Passing: 33 | Failing: 1 | Crashing: 0
SKIPPED [2] tests/blackbox/conftest.py:50: ../shared is absent
SKIPPED [1] tests/blackbox/deploy/test_deploy.py:124: nginx is not installed
=== 1 failed, 40 passed, 3 skipped, 1 error in 12.34s ===
7 passed, 0 failed
5 passed, 2 failed, 1 skipped
"""


@pytest.mark.parametrize("ci,counts,said", [("", "85 5 4", []), ("true", "85 6 4", ["nginx is not installed"])])
def test_skips_are_counted_and_in_ci_held_to_a_list(tmp_path, ci, counts, said):
    (tmp_path / "log").write_text(LOG)
    done = subprocess.run([g.ROOT / "scripts/count_tests.py", tmp_path / "log"], env=dict(os.environ, CI=ci), capture_output=True,
                          text=True, check=True)
    assert done.stdout.strip() == counts
    assert [line.split(": ")[-1] for line in done.stderr.splitlines()] == said


# --- a second try ---

FIRST_TIME = "from pathlib import Path\nHERE = Path(__file__).parent\ndef first(name):\n    mark = HERE / (name + '.mark')\n" \
    "    new = not mark.exists()\n    mark.touch()\n    return new\n"
LEAKY = "import pytest\n@pytest.fixture(autouse=True)\ndef tidy():\n    yield\n    assert not first('tidy'), 'a leak'\n"
ONCE = "def test_{0}():\n    assert not first('{0}'), {1!r}\n"


def run_of_tests(folder, ci, source, parts=("attack",)):
    """scripts/test with these parts, in a tree that has those tests and whose build does nothing: (status, what it printed)"""
    for name in ("scripts/test", "scripts/count_tests.py", "tests/skips.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(g.ROOT / name, folder / name)
    (folder / "build/dev").mkdir(parents=True)
    (folder / "build/dev/build.ninja").touch()
    (folder / "tests/attack").mkdir(parents=True)
    (folder / "tests/attack/test_it.py").write_text(FIRST_TIME + source)
    (folder / "cmake").write_text("#!/bin/sh\n")
    (folder / "cmake").chmod(0o755)
    done = subprocess.run([folder / "scripts/test", *parts], env=dict(os.environ, CI=ci, RG_TEST_JOBS="1", PATH=f"{folder}:{os.environ['PATH']}"),
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_what_fails_once_in_ci_is_told_and_counted_as_passed(tmp_path):
    status, said = run_of_tests(tmp_path, "true", ONCE.format("shaky", "the reason") + "def test_good():\n    pass\n")
    assert status == 0 and said.splitlines()[-1] == "2 passed, 0 failed, 0 skipped", said
    assert "FLAKY tests/attack/test_it.py::test_shaky: passed on its second try only" in said
    assert "AssertionError: the reason" in said


def test_a_first_try_that_fails_in_its_teardown_as_well_counts_once(tmp_path):
    """What a failed test holds open is an error of its teardown."""
    status, said = run_of_tests(tmp_path, "true", LEAKY + ONCE.format("shaky", "the reason"))
    assert status == 0 and said.splitlines()[-1] == "1 passed, 0 failed, 0 skipped", said
    assert "1 failed, 1 error" in said and said.count("FLAKY") == 1, said


OPTIONS = "def pytest_addoption(parser):\n    parser.addoption('--cases')\n    parser.addoption('--per-file')\n" \
    "def pytest_configure(config):\n    config.addinivalue_line('markers', 'alone: -')\n    config.addinivalue_line('markers', 'whole: -')\n"
ALONE = "import pytest\n@pytest.mark.alone\ndef test_alone():\n    pass\n"
WHOLE = "@pytest.mark.whole\ndef test_whole():\n    assert not 'in CI'\n"


def test_parts_that_run_beside_others_count(tmp_path):
    """All that CI runs, in a tree with a test or two for each part: a failure beside the attacks fails the whole, and is shown."""
    good, bad = "def test_good():\n    pass\n", "def test_bad():\n    assert not 'beside'\n"
    files = {"blackbox": ALONE + WHOLE + good, "python": ALONE + WHOLE + bad, "packages": good, "blackbox/durability": good, "blackbox/calls": good,
             "blackbox/exports": good, "blackbox/limits": ALONE}
    names = {"blackbox/durability": "test_helpers", "blackbox/calls": "test_turn_cancel", "blackbox/exports": "test_long_exports",
             "blackbox/limits": "test_images_cost"}
    for folder, source in files.items():
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / f"{names.get(folder, 'test_' + folder)}.py").write_text(source)
    (tmp_path / "tests/conftest.py").write_text(OPTIONS)
    for name, text in (("setup", ""), ("fuzz", "echo 3 passed, 0 failed")):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        (tmp_path / f"scripts/{name}").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / f"scripts/{name}").chmod(0o755)
    for name in ("progress", "beside"):
        shutil.copy(g.ROOT / "scripts" / name, tmp_path / "scripts" / name)
    status, said = run_of_tests(tmp_path, "true", good, parts=())
    assert "FAILED tests/python/test_python.py::test_bad" in said and "== Python package, side by side: exit status 1" in said, said
    # side 4, alone 1, python alone 1, measured 1, attack 1; beside them packages 1, ASan 4, TSan 3, fuzz 3
    assert (status, said.splitlines()[-1]) == (1, "19 passed, 1 failed, 0 skipped"), said


class Case:
    """A case of a test function, as pytest's items are."""

    def __init__(self, **params):
        self.callspec = types.SimpleNamespace(params=params)


def test_some_cases_of_a_product_have_each_value_then_each_pair():
    product = [Case(stream=a, end=b, history=c) for a in (False, True) for b in "xyz" for c in ("tree", "chains", "linear", "timelines")]
    chosen = [list(case.callspec.params.items()) for case in conftest.choose_varied(product, 12)]
    assert len({value for case in chosen[:4] for value in case}) == 2 + 3 + 4
    assert len({pair for case in chosen for pair in itertools.combinations(case, 2)}) == 2 * 3 + 2 * 4 + 3 * 4
    assert len(conftest.choose_varied(product, 99)) == 24


@pytest.mark.parametrize("ci,source,closing", [
    ("true", "def test_bad():\n    assert not 'ever'\n", "0 passed, 1 failed, 0 skipped"),
    ("", ONCE.format("shaky", "here"), "0 passed, 1 failed, 0 skipped"),
    ("true", ONCE.format("asan", "ERROR: AddressSanitizer: heap-use-after-free"), "0 passed, 1 failed, 0 skipped"),
    ("true", "".join(ONCE.format(name, "all at once") for name in "abcde"), "0 passed, 5 failed, 0 skipped"),
], ids=["always", "at home", "sanitizer", "five"])
def test_what_gets_no_second_try_or_fails_it(tmp_path, ci, source, closing):
    status, said = run_of_tests(tmp_path, ci, source)
    assert status == 1 and said.splitlines()[-1] == closing, said
    assert "FLAKY" not in said
