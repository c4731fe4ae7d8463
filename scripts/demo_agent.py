#!/usr/bin/python3
"""The agent that scripts/run lets `rollgate runner` run: it finds something in files with two tools, over the
OpenAI API of its attempt's session. With --score it is the scorer. Standard library only.
The first attempt of the demonstration dies on the way, to show that it is tried again."""
import json
import os
import signal
import sys
import urllib.request

FILES = {"notes.txt": "The key is under the mat.", "todo.txt": "water the plants"}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
         for name in ("list_files", "read_file")]


def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages, "tools": TOOLS}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["message"]


def use(function):
    if function["name"] == "list_files":
        return "\n".join(sorted(FILES))
    return FILES.get(json.loads(function["arguments"]).get("path"), "no such file")


def crash_once():
    try:
        os.close(os.open(os.environ["CRASH_ONCE"], os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass


def main():
    with open(os.environ["ROLLGATE_INPUT"], encoding="utf-8") as f:
        task = json.load(f)
    if "--score" in sys.argv:
        with open("answer", encoding="utf-8") as f:
            print(1.0 if task["expected"] in f.read() else 0.0)
        return
    messages = [{"role": "user", "content": task["question"]}]
    while True:
        message = ask(messages)
        messages.append(message)
        crash_once()
        if not message.get("tool_calls"):
            break
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": use(c["function"])} for c in message["tool_calls"]]
    print(message["content"])
    with open("answer", "w", encoding="utf-8") as f:
        f.write(message["content"])


main()
