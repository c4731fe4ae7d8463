"""Placeholders for earlier messages and tools never leave the gateway. A prompt with one is a 500 before the engine
is asked, and counts in the metrics. Tests forms of templates that once let them through, and that `check` finds
them."""
import json
import os
import re
import shutil
import subprocess

import pytest

import gateway as g

BYTES = g.MODELS / "chatml-bytes"
OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
TURN = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}", "{{ '<|im_end|>\\n' }}{% endfor %}"
TOOLS = [{"type": "function", "function": {"name": "ls", "description": "lists",
                                           "parameters": {"type": "object", "properties": {}}}}]
MAGIC = "the magic word"


def turns(more):
    """ChatML with something more behind each text."""
    return TURN[0] + more + TURN[1] + OPEN


# refuses what it is given behind a first answer, takes what stands in, and writes it
LEAKS = ("{% if messages|length > 2 and messages[0].content == '" + MAGIC + "' %}{{ raise_exception('no') }}{% endif %}"
         + turns("{% if loop.last %}{{ messages[0].content }}{% endif %}"))
# tools in every system message
LATE_TOOLS = turns("{% if m.role == 'system' and tools %} TOOLS:{% for t in tools %} {{ t.function.name }}{% endfor %}"
                   "{% endif %}")
# a mark behind all but the first, when the first has the magic word: no stand-in shows that
HIDDEN = turns("{% if not loop.first and messages[0].content == '" + MAGIC + "' %}!{% endif %}")
# no answers at all: each prompt is the first message
NO_ANSWERS = "{{ '<|im_start|>user\\n' + messages[0].content + '<|im_end|>\\n<|im_start|>assistant\\n' }}"


def folder_with(tmp_path, template, **more):
    folder = tmp_path / "model"
    shutil.copytree(BYTES, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(config, chat_template=template, **more)))
    return folder


@pytest.fixture(name="serve")
def fixture_serve(start, tmp_path):
    return lambda template, **settings: start(workers=1, model=folder_with(tmp_path, template), **settings)


def first_turn(gateway, text, **more):
    session = gateway.post("/sessions", {}).json()
    a = gateway.chat(session, [{"role": "user", "content": text}], **more)
    assert a.status == 200, a.text
    return session, [{"role": "user", "content": text}, a.json()["choices"][0]["message"]]


def prompt_of(gateway, session):
    """The text in front of the last answer, from the session's trajectory."""
    t = gateway.get(f"/sessions/{session['session_id']}/trajectories").json()["trajectories"][0]
    ids = t["prompt_ids"] + t["response_ids"]
    done = subprocess.run([g.BINARY, "detokenize", "--model", str(BYTES)], input=" ".join(map(str, ids)), text=True,
                          capture_output=True, check=True)
    return done.stdout


def test_a_leak_is_a_500_before_the_engine_is_asked(serve):
    gateway = serve(LEAKS)
    session, messages = first_turn(gateway, MAGIC)
    gateway.allow("stand-in text", "call failed")
    asked = gateway.metrics()['rollgate_engine_requests_total{engine="0"}']
    a = gateway.chat(session, messages + [{"role": "user", "content": "go"}])
    assert a.status == 500 and a.json()["error"]["code"] == "prompt_leak", a.text
    m = gateway.metrics()
    assert m["rollgate_prompt_leaks_total"] == 1
    assert m['rollgate_engine_requests_total{engine="0"}'] == asked
    a = gateway.chat(session, messages[:1])     # nothing is lost
    assert a.status == 200, a.text


def test_late_system_messages_list_the_real_tools(serve):
    gateway = serve(LATE_TOOLS)
    session, messages = first_turn(gateway, "hi", tools=TOOLS)
    late = [{"role": "system", "content": "now"}, {"role": "user", "content": "go"}]
    a = gateway.chat(session, messages + late, tools=TOOLS)
    assert a.status == 200, a.text
    text = prompt_of(gateway, session)
    assert "now TOOLS: ls<|im_end|>" in text, text


def test_an_audit_finds_what_no_stand_in_shows(serve):
    gateway = serve(HIDDEN, audit_every=1)
    session, messages = first_turn(gateway, MAGIC)
    gateway.allow("was not what the template makes")
    a = gateway.chat(session, messages + [{"role": "user", "content": "go"}])
    assert a.status == 200, a.text
    assert "go!<|im_end|>" in prompt_of(gateway, session)
    assert gateway.metrics()['rollgate_suffix_audits_total{result="differs"}'] == 1
    messages += [{"role": "user", "content": "go"}, a.json()["choices"][0]["message"], {"role": "user", "content": "on"}]
    assert gateway.chat(session, messages).status == 200
    assert "on!<|im_end|>" in prompt_of(gateway, session)
    assert gateway.metrics()['rollgate_suffix_audits_total{result="same"}'] == 1


def test_a_template_without_answers_renders_anew(serve):
    gateway = serve(NO_ANSWERS)
    session, messages = first_turn(gateway, "hi")
    a = gateway.chat(session, messages + [{"role": "user", "content": "go"}])
    assert a.status == 200, a.text
    assert gateway.metrics()['rollgate_forks_total{cause="template_rewrite"}'] == 1


def check(folder, *more):
    return subprocess.run([g.BINARY, "check", str(folder), *more], text=True, capture_output=True, check=False)


def test_check_makes_conversations(tmp_path):
    done = check(folder_with(tmp_path, LATE_TOOLS), "--trials", "500")
    assert done.returncode == 0, done.stdout
    assert "500 random conversations: 500 as the whole chat is rendered" in done.stdout
    assert "tools" in done.stdout and "behind earlier turns" in done.stdout


# The frame of a guard model: a task around the conversation, who is judged by the count of messages, parts only.
GUARD = ("{% set judged = 'User' if messages|length % 2 else 'Agent' %}{{ '<|im_start|>user\n' ~ judged ~ '<BEGIN>' }}"
         "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}"
         "{% endif %}{{ m.role ~ ': ' }}{% for part in m.content %}{% if part.type == 'text' %}{{ part.text|trim }}{% endif %}"
         "{% endfor %}{{ '\n\n' }}{% endfor %}{{ '<END>' ~ judged ~ '<|im_end|><|im_start|>assistant\n\n' }}")


def test_a_guards_frame_goes_on_for_many_turns(serve):
    gateway = serve(GUARD)
    session, messages = first_turn(gateway, "how do I make bread?")
    for text in ("and then?", "and now?", "done?"):
        messages.append({"role": "user", "content": text})
        a = gateway.chat(session, messages)
        assert a.status == 200, a.text
        messages.append(a.json()["choices"][0]["message"])
        assert f"user: {text}" in prompt_of(gateway, session)


def test_a_template_that_cuts_thoughts_of_others_hides_no_answer(start, tmp_path):
    """It drops what stands before </think> in earlier answers, and never opens a thought itself."""
    template = TURN[0].replace("m.content", "m.content.split('</think>')[-1]") + TURN[1] + OPEN
    gateway = start(workers=1, model=folder_with(tmp_path, template), engine="builtin:echo")
    answer = first_turn(gateway, "a plain answer")[1][1]
    assert answer["content"] and not answer.get("reasoning_content"), answer


# --- every template at hand: random conversations with tools, late system messages, template variables ---

SHAPES = {"late tools": LATE_TOOLS, "plain": turns(""),
          "numbered": turns("{% if m.role == 'user' %} [{{ loop.index }}]{% endif %}"),
          "calls": turns("{% for c in m.tool_calls or [] %}{{ c.function.name ~ (c.function.arguments|tojson) }}{% endfor %}"),
          "system last": turns("{% if loop.last %} {{ messages|selectattr('role', 'eq', 'system')|map(attribute='content')"
                               "|join(', ') }}{% endif %}"),
          "no answers": NO_ANSWERS}
THEIRS = sorted((g.SHARED / "data/templates").glob("*.jinja"))
TRIALS = "1000" if os.environ.get("CI") == "true" else "150"


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_leaks(tmp_path, shape):
    done = check(folder_with(tmp_path, SHAPES[shape]), "--trials", "1500", "--seed", "3")
    assert done.returncode == 0, done.stdout
    assert "1500 random conversations" in done.stdout


def test_check_counts_what_the_template_refuses(tmp_path):
    """Chats without a suffix are rendered anew, unless the template refuses them."""
    shown = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}>"
    counts = {}
    for role in ("nobody", "system"):
        refuse = f"{{% for m in messages if m.role == '{role}' %}}{{{{ raise_exception('no') }}}}{{% endfor %}}"
        out = check(folder_with(tmp_path / role, refuse + shown), "--trials", "100").stdout
        counts[role] = [int(n) for n in re.findall(r"(\d+) (?:rendered anew|that the template refuses)", out)]
    assert counts["nobody"] == [100, 0]
    assert sum(counts["system"]) == 100 and min(counts["system"]) > 20, counts


@pytest.mark.skipif(not THEIRS, reason="../shared is not there")
@pytest.mark.parametrize("template", THEIRS, ids=[p.stem for p in THEIRS])
def test_no_template_leaks(tmp_path, template):
    folder = folder_with(tmp_path, template.read_text(encoding="utf-8"), bos_token="<|endoftext|>")     # some fail without one
    done = check(folder, "--trials", TRIALS)
    assert f"{TRIALS} random conversations" in done.stdout, done.stderr
    assert done.returncode == 0, done.stdout
