"""The conclusions of `rollgate check` about a model: which turns stay unchanged, which parsers were chosen and why,
whether calls are read back, and what would be better."""
import json
import shutil
import subprocess

import pytest

import gateway as g

BYTES = g.MODELS / "chatml-bytes"
OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
HERMES = ("{% for c in m.tool_calls or [] %}<tool_call>\n"
          "{{ {'name': c.function.name, 'arguments': c.function.arguments}|tojson }}\n</tool_call>{% endfor %}")


def template(answer, before=""):
    """ChatML; how an assistant's message is written."""
    return (before + "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}" + answer
            + "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}" + OPEN)


PLAIN = "{{ m.content }}"
THOUGHT = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"


def test_check_first_says_what_the_verdict_means(check):
    for text, means in ((template(PLAIN), "ready: each turn is appended"),
                        (template(PLAIN + "{% if loop.last %} {% endif %}"), "usable, with a choice: the template rewrites"),
                        (template(PLAIN), "the template shows no tool calls"),
                        (template(PLAIN + HERMES), "ready")):
        first = check(text).split("\nmodel ")[0]
        assert first.startswith("result ") and means in first, first
    assert "no tool calls" not in check(template(PLAIN + HERMES)).split("\nmodel ")[0]


@pytest.fixture(name="check")
def fixture_check(tmp_path):
    def run(text, *flags):
        folder = tmp_path / "model"
        shutil.copytree(BYTES, folder, dirs_exist_ok=True)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(dict(config, chat_template=text)))
        done = subprocess.run([g.BINARY, "check", str(folder), "--trials", "20", *flags], text=True, capture_output=True,
                              check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return run


def line(told, label):
    lines = [x for x in told.splitlines() if x.startswith(label)]
    assert len(lines) == 1, (label, told)
    return lines[0][len(label):].strip()


def test_a_good_template(check):
    told = check(template(THOUGHT + PLAIN + HERMES))
    assert line(told, "append-only") == "yes"
    assert line(told, "  kept as written").endswith("answer, then system: yes")
    assert line(told, "tool parser") == 'hermes (the template has "<tool_call>")'
    assert line(told, "reasoning parser") == 'qwen3 (the template has "</think>")'
    assert line(told, "round trip") == "one call: exact; two parallel calls: exact"
    assert line(told, "verdict") == "append-only; tool calls are read back"
    assert "better with" not in told
    assert line(told, "generation prompt") == '"<|im_start|>assistant\\n"'
    assert line(told, "stop ids") == '257 "<|im_end|>", 258 "<|endoftext|>"'


def test_a_turn_that_no_stop_id_closes(check):
    good = template(THOUGHT + PLAIN + HERMES)
    assert "run on to max_tokens" not in check(good)
    said = check(good.replace("<|im_end|>", "\\n\\n"))
    assert "none of them stands where the template closes a turn" in said


@pytest.mark.parametrize("switch, value", [("keep_it_all", "true"), ("forget", "false")])
def test_a_variable_that_makes_it_append_only(check, switch, value):
    """Whatever it is called: the template asks for it by `is defined`, or by a default."""
    asked = f"{switch} is defined and {switch}" if value == "true" else f"not ({switch} | default(true))"
    answer = "{% if loop.last or (" + asked + ") %}" + THOUGHT + "{% endif %}" + PLAIN + HERMES
    told = check(template(answer))
    assert line(told, "append-only") == "no, see --on-template-rewrite"
    assert line(told, "verdict") == ("NOT append-only, rewritten: thought and call, then result; thought, then user; "
                                     "tool calls are read back")
    assert line(told, "  better with") == f'chat_template_kwargs {{"{switch}": {value}}}: append-only'


THINKS = ("{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n"
          "{% elif not loop.last %}(no thought){% endif %}")


@pytest.mark.parametrize("only, verdict", [
    (THINKS, "append-only"),
    ("{% if loop.last %}" + THINKS + "{% endif %}",
     "NOT append-only, rewritten: thought and call, then result; thought, then user")], ids=["kept", "lost"])
def test_answers_that_are_never_without_a_thought(check, only, verdict):
    """The prompt opens the thought: what the template makes of answers without one says nothing."""
    told = check(template(only + PLAIN + HERMES).replace("assistant\\n' }}", "assistant\\n<think>\\n' }}"))
    assert line(told, "  kept as written").startswith("answer, then user: never without a thought; "
                                                      "call, then result: never without a thought; thought and call")
    told_verdict = line(told, "verdict")
    assert told_verdict.startswith(verdict) and "; answer, then user" not in told_verdict


def test_two_variables_that_make_it_append_only_together(check):
    asked = "keep_it is defined and keep_it and not (forget | default(true))"
    told = check(template("{% if loop.last or (" + asked + ") %}" + THOUGHT + "{% endif %}{{ '' if no_use is defined }}"
                          + PLAIN + HERMES))
    assert line(told, "  better with") == 'chat_template_kwargs {"keep_it": true, "forget": false}: append-only'


def test_nothing_helps(check):
    told = check(template("{% if loop.last %}" + THOUGHT + "{% endif %}{{ '' if no_use is defined }}" + PLAIN + HERMES))
    assert "better with" in told
    assert line(told, "  no better with") == "template variables no_use; all families and tool parsers"


def test_a_late_system_message_alone_is_rewritten(check):
    before = "{% set s = messages[-1].role == 'system' and messages|length > 1 %}"
    told = check(template("{{ '(old) ' if s }}" + PLAIN + HERMES, before))
    assert line(told, "append-only") == "yes"
    assert line(told, "  kept as written").endswith("thought, then user: yes; answer, then system: no")


def test_the_operators_parser_that_reads_nothing(check):
    told = check(template(PLAIN + HERMES), "--tool-parser", "mistral", "--reasoning-parser", "kimi")
    assert line(told, "tool parser") == "mistral (named by --tool-parser)"
    assert line(told, "reasoning parser") == "kimi (named by --reasoning-parser)"
    assert line(told, "round trip") == "one call: NOT FOUND; two parallel calls: NOT FOUND"
    assert line(told, "  the template writes").startswith('"<tool_call>\\n{\\"name\\": \\"rg_round_trip\\"')
    assert line(told, "verdict") == "append-only; tool calls are NOT read back"
    assert line(told, "  better with") == "--tool-parser hermes: a call is read back, two calls are read back"


def test_a_family_that_does_not_fit(check):
    told = check(template(PLAIN + HERMES), "--tito-family", "kimi-k2.x")
    assert line(told, "tool parser") == "kimi_k2 (the family kimi-k2.x writes so)"
    assert "  better with        --tito-family default: a call is read back, two calls are read back\n" in told


def test_the_parser_that_reads_the_templates_own_call(check):
    told = check(template(PLAIN + HERMES, "{# [TOOL_CALLS] #}"))
    assert line(told, "tool parser") == ("hermes (it reads the template's own calls; mistral, which its marks suggest, "
                                         "does not)")
    assert line(told, "verdict") == "append-only; tool calls are read back"


def test_one_call_only_and_no_calls(check):
    first = HERMES.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
    told = check(template(PLAIN + first))
    assert line(told, "round trip") == "one call: exact; two parallel calls: not written by the template"
    told = check(template(PLAIN))
    assert line(told, "tool parser") == "none (the template has no mark of any known parser)"
    assert line(told, "verdict") == "append-only; the template writes no tool calls"


def test_a_call_that_is_read_otherwise(check):
    told = check(template(PLAIN + HERMES.replace("c.function.arguments}", "{'town': c.function.arguments.city}}")))
    assert line(told, "round trip") == "one call: DIFFERS; two parallel calls: DIFFERS"
    assert line(told, "verdict") == "append-only; tool calls are NOT read back"


def test_what_a_template_may_not_use_is_named(tmp_path):
    text, said = "{{ '\\N{BULLET}' }}", "\\N{NAME} is not supported, write the character or \\uXXXX"
    file = tmp_path / "t.jinja"
    file.write_text("{# a line #}\n" + text + template(PLAIN))
    done = subprocess.run([g.BINARY, "check", BYTES, "--chat-template", file], text=True, capture_output=True, check=False,
                          timeout=60)
    assert done.returncode == 1 and f"line 2: TemplateSyntaxError: {said}" in done.stderr, done.stderr


def test_autoescape_false_is_what_templates_run_under(check):
    told = check("{% autoescape false %}" + template(PLAIN + HERMES) + "{% endautoescape %}")
    assert line(told, "verdict") == "append-only; tool calls are read back"
