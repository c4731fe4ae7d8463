"""A state folder whose sessions a different model made: a different tokenizer is refused, or its sessions are kept
for export. A different template, or other special tokens, are reported. The folder of an older program is refused."""
import json
import shutil
import signal
import subprocess

import pytest

import gateway as g
from test_faults import faulty  # noqa: F401

BYTES = g.MODELS / "chatml-bytes"


def copy_of(tmp_path, name, tokenizer=None, config=None, indent=None):
    """The model folder with changes."""
    folder = tmp_path / name
    shutil.copytree(BYTES, folder)
    for file, change in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        value = json.loads((folder / file).read_text())
        if change:
            change(value)
        (folder / file).write_text(json.dumps(value, indent=indent))
    return folder


def one_more_token(tokenizer):
    tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=len(tokenizer["model"]["vocab"]) + 3, content="<|more|>"))


def other_normalizer(tokenizer):
    tokenizer["normalizer"] = {"type": "NFC"}


def other_template(config):
    config["chat_template"] = config["chat_template"].replace("<|im_start|>", "<|im_start|>@")


def other_special(config):
    config["eos_token"] = "<|endoftext|>"


def user(text):
    return [{"role": "user", "content": text}]


def talk(gateway, session, messages):
    a = gateway.chat(session, messages)
    assert a.status == 200, a.text
    return messages + [a.json()["choices"][0]["message"]]


@pytest.fixture(name="made")
def fixture_made(start):
    """A gateway that has stopped, with an open session of one turn."""
    gateway = start(workers=1, model=BYTES)
    session = gateway.post("/sessions", {}).json()
    messages = talk(gateway, session, user("Hello"))
    assert gateway.stop() == 0
    return gateway, session, messages


def serve(gateway, model, **settings):
    gateway.settings.update({"model": model, **{k.replace("_", "-"): v for k, v in settings.items()}})
    return gateway.start()


@pytest.mark.parametrize("change", [one_more_token, other_normalizer])
def test_another_tokenizer_is_refused(made, tmp_path, change):
    gateway, session, messages = made
    gateway.settings["model"] = copy_of(tmp_path, "other", tokenizer=change)
    gateway.start(wait=False)
    assert gateway.wait() != 0
    log = gateway.log()[gateway.log_start:]
    for word in ("another tokenizer than this --model's: 1 (", "chat template: same", "--model", "--state-dir",
                 "--foreign-sessions export"):
        assert word in log, log
    gateway.allow("another tokenizer", "worker", "cannot start")
    serve(gateway, BYTES)       # nothing was changed: the right model goes on
    talk(gateway, session, messages + user("again"))


def test_the_builtin_model_is_another_too(start, tmp_path):
    gateway = start(workers=1)
    session = gateway.post("/sessions", {}).json()
    talk(gateway, session, user("Hello"))
    assert gateway.stop() == 0
    gateway.settings["model"] = copy_of(tmp_path, "other", tokenizer=one_more_token)
    gateway.start(wait=False)
    assert gateway.wait() != 0 and "another tokenizer" in gateway.log()
    gateway.allow("another tokenizer", "worker", "cannot start")


def test_foreign_sessions_are_kept_for_export(made, tmp_path):
    gateway, session, messages = made
    serve(gateway, BYTES)
    want = gateway.request("GET", f"/sessions/{session['session_id']}/trajectories").json()
    assert gateway.stop() == 0
    serve(gateway, copy_of(tmp_path, "other", tokenizer=one_more_token), foreign_sessions="export")
    assert gateway.has_line("sessions of another tokenizer are kept for export only.*sessions=1")
    path = f"/sessions/{session['session_id']}"
    assert gateway.get(path).json()["foreign"] is True
    for body in (messages + user("again"), user("Hello"), user("anew")):     # also what was answered already
        a = gateway.chat(session, body)
        assert a.status == 409 and a.json()["error"]["code"] == "foreign_session", a.text
        assert "another tokenizer" in a.json()["error"]["message"]
    got = gateway.get(f"{path}/trajectories").json()
    for t in (*got["trajectories"], *want["trajectories"]):
        t.pop("drift", None)
    assert [t["response_ids"] for t in got["trajectories"]] == [t["response_ids"] for t in want["trajectories"]]
    mine = gateway.post("/sessions", {}).json()
    talk(gateway, mine, user("Hello"))
    assert gateway.post(f"{path}/complete", {"reward_info": {"reward": 1.0}}).status == 200
    assert gateway.post(f"{path}/finalize", {}).status == 200
    assert gateway.stop() == 0
    gateway.settings.pop("foreign-sessions")    # what has ended refuses no start; ours is of this tokenizer
    gateway.start()
    talk(gateway, mine, user("Hello again"))


@pytest.mark.parametrize("change,said", [(other_template, "another chat template"), (other_special, "other special tokens")])
def test_what_is_no_tokenizer_is_said_and_goes_on(made, tmp_path, change, said):
    gateway, session, messages = made
    serve(gateway, BYTES)
    before = gateway.get(f"/sessions/{session['session_id']}").json()["accumulated_token_ids"]
    assert gateway.stop() == 0
    serve(gateway, copy_of(tmp_path, "other", config=change))
    assert gateway.has_line(f"sessions began with {said}.*sessions=1")
    talk(gateway, session, messages + user("again"))
    after = gateway.get(f"/sessions/{session['session_id']}").json()
    assert after["accumulated_token_ids"][:len(before)] == before and "foreign" not in after


def test_a_copy_that_was_cut_off_is_nobodys(faulty, tmp_path):  # noqa: F811
    """It is hidden, so nobody could end it: it refuses no start, and goes."""
    gateway, inject = faulty(model=BYTES, durability="process")
    gateway.allow("journal", "cannot", "copied in part")
    session = gateway.post("/sessions", {}).json()
    talk(gateway, session, user("Hello"))
    inject("writev", "5 after 2")
    assert gateway.post(f"/sessions/{session['session_id']}/fork", {}).status in (500, 503)
    inject("writev", None)
    assert gateway.request("DELETE", f"/sessions/{session['session_id']}").status == 204
    gateway.kill()
    serve(gateway, copy_of(tmp_path, "other", tokenizer=one_more_token))
    g.wait_until(lambda: gateway.metrics()['rollgate_sessions{phase="open"}'] == 0, what="it is deleted")
    assert gateway.get("/sessions").json()["sessions"] == []


def test_a_file_written_anew_is_the_same_tokenizer(made, tmp_path):
    """Spaces, the order of what has none, merges as pairs."""
    gateway, session, messages = made

    def pairs(tokenizer):
        tokenizer["model"]["merges"] = [m if isinstance(m, list) else m.split(" ") for m in tokenizer["model"]["merges"]]
        tokenizer["model"]["vocab"] = dict(reversed(tokenizer["model"]["vocab"].items()))
    serve(gateway, copy_of(tmp_path, "again", tokenizer=pairs, indent=3))
    talk(gateway, session, messages + user("again"))
    assert "tokenizer" not in gateway.log()[gateway.log_start:]


def test_a_folder_of_an_older_program_is_refused(start):
    """tests/data/journals/v1: the message names the way out, and nothing is changed."""
    gateway = g.Gateway(workers=1)
    shutil.copytree(g.ROOT / "tests/data/journals/v1", f"{gateway.folder}/state")
    gateway.allow("record is of version", "worker", "cannot start")
    gateway.start(wait=False)
    assert gateway.wait() != 0
    assert "version 1, this program reads" in gateway.log() and "rollgate export" in gateway.log() and "--state-dir" in gateway.log()
    worker = "state/worker-0"
    for name in ("MANIFEST", "seg-00000001"):
        assert open(f"{gateway.folder}/{worker}/{name}", "rb").read() == (g.ROOT / "tests/data/journals/v1/worker-0" / name).read_bytes()
    run = subprocess.run([g.BINARY, "export", f"{gateway.folder}/{worker}"], capture_output=True, text=True)
    assert run.returncode != 0 and "rollgate export" in run.stderr


def test_the_command_says_what_it_leaves_out(made, tmp_path):
    gateway, session, _ = made
    run = subprocess.run([g.BINARY, "export", f"{gateway.folder}/state/worker-0", "--model",
                          copy_of(tmp_path, "other", tokenizer=one_more_token)], capture_output=True, text=True, check=True)
    assert session["session_id"] in run.stderr and "another tokenizer" in run.stderr
    assert json.loads(run.stdout)["trajectories"]


def test_an_upgrade_does_not_change_the_tokenizer(start, tmp_path):
    """The settings name another model meanwhile: the upgrade is refused, and all goes on."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"model: {BYTES}\n")
    gateway = start(workers=1, config=str(settings))
    session = gateway.post("/sessions", {}).json()
    messages = talk(gateway, session, user("Hello"))
    settings.write_text(f"model: {copy_of(tmp_path, 'other', tokenizer=one_more_token)}\n")
    gateway.allow("another tokenizer")
    gateway.signal(signal.SIGUSR2)
    gateway.wait_line("an upgrade with another tokenizer .* would leave open sessions behind")
    messages = talk(gateway, session, messages + user("again"))
    settings.write_text(f"model: {BYTES}\n")
    gateway.signal(signal.SIGUSR2)
    g.wait_until(lambda: gateway.log().count(" serving ") == 2, 60, "the next upgrade is fine")
    talk(gateway, session, messages + user("and again"))
