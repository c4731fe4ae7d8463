"""rollgate.testing: a real gateway and a scripted engine, by hand and as fixtures of pytest."""
import os
import pathlib
import subprocess
import sys

import pytest

import gateway as g
import rollgate
from rollgate.testing import Answer, Gateway, ScriptedEngine, find_binary, gateway

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def binary(monkeypatch):
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    monkeypatch.setenv("ROLLGATE", str(g.BINARY))


def test_answers_of_a_list_come_in_order_and_end():
    with gateway(["Hello.", Answer(ids=[104, 105, 257], logprobs=[-0.5, -1.5, -0.25], version=7), Answer("cut", finish="length")]) as at:
        s = at.client.create_session(history="tree")
        said = [s.chat(USER)["choices"][0] for _ in range(3)]
        assert [c["message"]["content"] for c in said] == ["Hello.", "hi", "cut"] and said[2]["finish_reason"] == "length"
        first, second, third = s.trajectories()
        assert second.response_ids.tolist() == [104, 105, 257] and second.response_logprobs.tolist() == [-0.5, -1.5, -0.25]
        assert second.response_versions.tolist() == [7] * 3 and first.response_versions is None
        assert at.engine.requests[1].prompt_ids == first.prompt_ids.tolist() and at.engine.requests[1].call == 1
        with pytest.raises(rollgate.errors.EngineRefused, match="the script has 3 answers, and this is call 4"):
            s.chat(USER)
        folder = at.folder
    assert not os.path.exists(folder)


def test_a_function_answers_what_it_sees():
    def answer(request):
        text = bytes(i for i in request.prompt_ids if i < 256).decode()
        if "fail" in text:
            raise KeyError("my mistake")
        return Answer("no", status=503) if "down" in text else text.split("user\n")[-1].split("\n")[0].upper()
    with gateway(answer, engine_retries=0) as at:
        client = rollgate.Client(at.url, retry_s=0)
        assert client.create_session().chat(USER)["choices"][0]["message"]["content"] == "HI"
        with pytest.raises(rollgate.errors.EngineRefused, match="the script failed: KeyError: 'my mistake'"):
            client.create_session().chat([{"role": "user", "content": "fail"}])
        with pytest.raises(rollgate.Retryable):
            client.create_session().chat([{"role": "user", "content": "down"}])
        client.close()


def test_streams_and_short_limits():
    with gateway(["Hello.", "Hello."]) as at:
        s = at.client.create_session()
        assert s.chat(USER, max_tokens=2)["choices"][0] | {"message": None, "logprobs": None} == {
            "index": 0, "message": None, "logprobs": None, "finish_reason": "length"}
        import json
        import urllib.request
        body = json.dumps({"messages": USER, "stream": True}).encode()
        asked = urllib.request.Request(f"{at.client.create_session().base_url}/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as stream:
            events = [json.loads(line[6:]) for line in stream if line.startswith(b"data: {")]
        assert "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]) == "Hello."


def test_texts_of_a_models_own_tokenizer():
    model = g.ROOT / "examples/tiny/model"
    with gateway(["ab"], model=str(model)) as at:
        s = at.client.create_session()
        s.chat(USER)
        assert s.trajectories()[0].response_ids.tolist() == at.engine.encode("ab") + [257] and len(at.engine.encode("ab")) == 1


def test_a_gateway_that_does_not_serve_shows_its_log():
    with pytest.raises(RuntimeError, match="unknown|no-such"):
        with gateway(engine="builtin:echo", tool_parser="no-such-parser"):
            pass
    with pytest.raises(ValueError, match="needs either answers or engine="):
        with gateway():
            pass


def test_recorded_sessions_are_answers_too(tmp_path):
    with gateway(["Hello."]) as at:
        s = at.client.create_session()
        s.chat(USER)
        (tmp_path / "record").write_bytes(s.finalize(raw=True))
    with gateway(engine=f"builtin:recorded:{tmp_path}/record") as at:
        assert at.engine is None and at.client.create_session().chat(USER)["choices"][0]["message"]["content"] == "Hello."


def test_the_program_is_found_or_named(monkeypatch, tmp_path):
    assert find_binary() == str(g.BINARY)
    monkeypatch.setenv("ROLLGATE", "/no/such")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rollgate.testing.__file__", str(tmp_path / "a/b/c.py"))
    with pytest.raises(FileNotFoundError, match="set ROLLGATE"):
        find_binary()


SUITE = '''
import pytest
import rollgate
import rollgate.testing

def test_right(rollgate_engine, rollgate_gateway):
    rollgate_engine.answers = ["Hello."]
    assert rollgate_gateway.client.create_session().chat([{"role": "user", "content": "hi"}])["choices"][0]["message"]["content"] == "Hello."

@pytest.mark.rollgate(engine="builtin:echo", workers=2)
def test_settings(rollgate_gateway):
    assert rollgate_gateway.client.create_session().chat([{"role": "user", "content": "hi"}])["choices"][0]["message"]["content"] == "hi"
    assert rollgate_gateway.client.health()["workers"]["total"] == 2

def test_wrong(rollgate_engine, rollgate_gateway):
    rollgate_engine.answers = [rollgate.testing.Answer("it broke", status=500)]
    client = rollgate.Client(rollgate_gateway.url, retry_s=0)
    client.create_session().chat([{"role": "user", "content": "hi"}])
'''


def test_fixtures_of_pytest_show_the_gateways_errors(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rollgate.pytest_plugin"]')
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "test_suite.py"], cwd=tmp_path,
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(g.ROOT / "python")})
    out = done.stdout
    assert "2 passed" in out and "1 failed" in out, out + done.stderr
    assert "rollgate: warnings and errors" in out and "it broke" in out.split("warnings and errors")[1] and "rollgate: end of the log" in out, out


def test_the_plugin_is_an_entry_point():
    text = pathlib.Path(g.ROOT / "python/pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nrollgate = "rollgate.pytest_plugin"' in text


def test_a_stopped_gateway_leaves_nothing():
    with ScriptedEngine(["Hello."]) as engine:
        at = Gateway(engine)
        with at:
            assert at.client.ready()
        assert at.stop() == (0, "")


def test_new_answers_begin_at_their_first():
    with gateway(["Hello."]) as at:
        s = at.client.create_session(history="tree")

        def say():
            return s.chat(USER)["choices"][0]["message"]["content"]
        assert say() == "Hello."
        at.engine.answers = iter(["Bye.", "Again."])
        assert [say(), say()] == ["Bye.", "Again."] and [r.call for r in at.engine.requests] == [0, 1, 2]
        with pytest.raises(rollgate.errors.EngineRefused, match="the script has 2 answers, and this is call 3"):
            say()


def test_mistakes_of_a_test_are_named():
    with pytest.raises(ValueError, match="finish must be stop, length or abort, not 'lenght'"):
        Answer("x", finish="lenght")
    for settings, why in (({"listen": "127.0.0.1:1"}, "has its own listen"), ({"state_dir": "/tmp"}, "has its own state_dir"), ({"model": None}, "model is None")):
        with pytest.raises(ValueError, match=why):
            with gateway(engine="builtin:echo", **settings):
                pass


def test_a_failure_of_the_test_is_not_hidden_by_the_gateways_end():
    with pytest.raises(KeyboardInterrupt) as caught:
        with gateway(engine="builtin:echo") as at:
            at._process.kill()
            raise KeyboardInterrupt
    assert "the gateway ended with status -9" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="the gateway ended with status -9"):
        with gateway(engine="builtin:echo") as at:
            at._process.kill()


KILLED = """
import os, signal, sys
from rollgate.testing import gateway
with gateway(engine="builtin:echo") as at:
    print(at._process.pid, at.folder, flush=True)
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    signal.pause()
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_a_killed_test_leaves_no_gateway(how):
    done = subprocess.run([sys.executable, "-c", KILLED, how], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(g.ROOT / "python")})
    pid, folder = done.stdout.split()
    g.wait_until(lambda: not os.path.exists(f"/proc/{pid}") and not os.path.exists(folder), what="the end of the gateway")


def test_a_marker_takes_settings_by_name(tmp_path):
    (tmp_path / "test_suite.py").write_text('import pytest\n\n@pytest.mark.rollgate("hermes")\ndef test_it(rollgate_gateway):\n    pass\n')
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rollgate.pytest_plugin"]')
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py"], cwd=tmp_path, capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(g.ROOT / "python")})
    assert "takes settings by name, not 'hermes'" in done.stdout and done.returncode, done.stdout
