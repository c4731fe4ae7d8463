"""--media-fetch: the gateway fetches pictures that requests name by URL, from the hosts that the operator allows."""
import gzip
import http.client
import json
import select
import socket
import ssl
import threading
from pathlib import Path

import pytest

import vision_kit as kit
from gateway import wait_until
from http_stub import Handler, HttpStub
from vision_kit import chat, files, session, text, user

SHOT, OTHER = kit.png(640, 480), kit.png(320, 200)
HERE = {"media_fetch_address": "127.0.0.1", "media_fetch_timeout": "100s"}
PROXY = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9"}


class Web(HttpStub):
    """A web server: `pages` has a function of the request's handler a path. `asked` has paths and headers."""

    def __init__(self, tls=None, host="127.0.0.1"):
        web = self

        class Pages(Handler):
            def do_GET(self):
                web.asked.append((self.path, dict(self.headers)))
                web.pages[self.path.split("?")[0]](self)
                self.close_connection = True

        self.pages, self.asked, self.over = {}, [], threading.Event()
        super().__init__(Pages, host, tls)

    def at(self, path, host="127.0.0.1", scheme="http"):
        return f"{scheme}://{host}:{self.port}{path}"

    def close(self):
        self.over.set()
        super().close()


@pytest.fixture
def web():
    made = Web()
    yield made
    made.close()


def page(data, status=200, **headers):
    def answer(h):
        h.send_response(status)
        for name, value in {"Content_Type": "image/png", "Content_Length": str(len(data)), **headers}.items():
            if value is not None:
                h.send_header(name.replace("_", "-"), value)
        h.end_headers()
        h.wfile.write(data)
    return answer


def chunked(data):
    def answer(h):
        page(b"", Content_Length=None, Transfer_Encoding="chunked")(h)
        for at in range(0, len(data), 1000):
            part = data[at:at + 1000]
            h.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        h.wfile.write(b"0\r\n\r\n")
    return answer


def to(location, status=302):
    return page(b"", status, Location=location)


def by(url):
    return {"type": "image_url", "image_url": {"url": url}}


def sent(engine, n=-1):
    """The pictures of the engine's n-th request."""
    return [kit.of_data_url(u) for u in engine.requests[n]["body"]["image_data"]]


def hosts(web, *names):
    return [f"http://{name}:{web.port}" for name in names or ("127.0.0.1",)]


def test_what_lies_at_a_url_is_fetched_once_and_stays_what_it_was(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), env=PROXY, **HERE)
    web.pages["/a"] = page(SHOT)
    sid, url = session(gateway), web.at("/a?key=secret")
    messages = [user(text("lo"), text("ok"), by(url), by(kit.url(OTHER)), by(url))]
    answer = chat(gateway, sid, messages)
    assert answer.status == 200, answer.body
    assert sent(engine) == [SHOT, OTHER, SHOT] and [p for p, _ in web.asked] == ["/a?key=secret"]
    headers = {k.lower(): v for k, v in web.asked[0][1].items()}
    assert headers["host"] == f"127.0.0.1:{web.port}" and headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & set(headers)
    assert files(gateway) == {kit.sha(SHOT): 1, kit.sha(OTHER): 1}
    web.pages["/a"] = page(kit.png(64, 64))
    messages += [answer.json()["choices"][0]["message"], user(text("again"))]
    assert chat(gateway, sid, messages).status == 200
    assert len(web.asked) == 1 and sent(engine) == [SHOT, OTHER, SHOT]
    first, second = (r["body"]["input_ids"] for r in engine.requests)
    assert second[:len(first)] == first
    fork = gateway.post(f"/sessions/{sid}/fork", {}).json()["session_id"]
    assert chat(gateway, fork, messages).status == 200 and len(web.asked) == 1
    other = session(gateway)
    assert chat(gateway, other, [user(by(url))]).status == 200
    assert len(web.asked) == 2 and sent(engine) == [kit.png(64, 64)]
    gateway.kill()
    gateway.start()
    assert chat(gateway, sid, messages + [user(text("more"))]).status == 200
    assert len(web.asked) == 2 and sent(engine) == [SHOT, OTHER, SHOT]
    t = gateway.post(f"/sessions/{sid}/finalize", {}).json()["trajectories"][0]
    assert [i["media"] for i in t["images"]] == [kit.sha(s) for s in (SHOT, OTHER, SHOT)]


def test_every_dialect_names_pictures_by_url(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    web.pages.update({"/a": page(SHOT), "/c": chunked(SHOT), "/u": page(SHOT, Content_Length=None, Connection="close")})
    for path, body in (
            ("chat/completions", {"messages": [user(text("look"), by(web.at("/a")))]}),
            ("messages", {"max_tokens": 9, "messages": [user(text("look"), {
                "type": "image", "source": {"type": "url", "url": web.at("/c")}})]}),
            ("responses", {"input": [{"role": "user", "content": [
                {"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": web.at("/u")}]}]})):
        sid = session(gateway)
        answer = gateway.post(f"/sessions/{sid}/v1/{path}", body)
        assert answer.status == 200, (path, answer.body)
        assert sent(engine) == [SHOT]
    assert len({tuple(r["body"]["input_ids"]) for r in engine.requests}) == 1
    sid = session(gateway)
    body = {"max_tokens": 9, "messages": [user(text("look"), {"type": "image", "source": {"type": "url", "url": web.at("/a")}})]}
    count = gateway.post(f"/sessions/{sid}/v1/messages/count_tokens", body).json()["input_tokens"]
    assert gateway.post(f"/sessions/{sid}/v1/messages", body).json()["usage"]["input_tokens"] == count
    big = [user(by(web.at("/a")), by(kit.url(kit.big(300))))]     # read by a helper, with a picture lifted
    assert chat(gateway, session(gateway), big).status == 200
    assert sent(engine) == [SHOT, kit.big(300)]


def refused(gateway, url, words, status=400, code="invalid_image"):
    answer = chat(gateway, session(gateway), [user(text("a"), by(url))])
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (status, code), (url, error)
    assert words in error["message"] and "messages[0].content[1]" in error["message"], (url, error)
    assert error["param"] == "messages[0].content[1]", error
    return error["message"]


def test_redirections_are_held_to_the_same_rules(vision, web):
    engine, gateway = vision(media_fetch=hosts(web, "127.0.0.1", "127.0.0.2", "localhost", "169.254.169.254"), **HERE)
    web.pages.update({"/3": to("/2", 301), "/2": to(web.at("/1"), 307), "/1": to("a?b"), "/a": page(SHOT), "/4": to("3", 308)})
    assert chat(gateway, session(gateway), [user(by(web.at("/3")))]).status == 200
    assert sent(engine) == [SHOT] and web.asked[-1][0] == "/a?b"
    refused(gateway, web.at("/4"), "redirected more than 3 times")
    seen, public = len(web.asked), "one that is not public"
    for n, (location, words) in enumerate((
            (web.at("/a", "127.0.0.2"), public), (web.at("/a", "localhost"), public), (web.at("/a", "169.254.169.254"), public),
            (web.at("/a", "[::1]"), "not one that images"), ("http://127.0.0.1:1/a", "another scheme or port"),
            (web.at("/a", scheme="https"), "connection"), ("file:///etc/passwd", "no http"), ("ftp://127.0.0.1/a", "no http"),
            (kit.url(SHOT), "no http"), (web.at("/a", "2130706433"), "no plain IPv4"), (web.at("/a", "x@127.0.0.1"), "user name"),
            ("", "redirected more than"))):
        web.pages["/r"] = to(location)
        said = refused(gateway, web.at(f"/r?{n}"), words) if words != "connection" else \
            chat(gateway, session(gateway), [user(text("a"), by(web.at("/r")))]).json()["error"]["message"]
        assert "127.0.0.2" not in said and "169.254" not in said, said      # where it leads is not told
    assert not [p for p, _ in web.asked[seen:] if p == "/a"] and len(engine.requests) == 1


@pytest.mark.parametrize("url,words", [
    ("http://127.0.0.2:{port}/a", "not public"), ("http://localhost:{port}/a", "not public"),
    ("http://a.localhost:{port}/a", "not public"), ("http://[::ffff:127.0.0.2]:{port}/a", "not public"),
    ("http://[::1]:{port}/a", "not public"), ("http://0.0.0.0:{port}/a", "not public"),
    ("http://169.254.169.254:{port}/latest/meta-data", "not public"), ("http://10.0.0.1:{port}/", "not public"),
    ("http://[64:ff9b::7f00:1]:{port}/", "not public"), ("http://[fe80::1]:{port}/", "not public"),
    ("http://[2002:7f00:1::]:{port}/", "not public"), ("http://224.0.0.1:{port}/", "not public"),
    ("http://0177.0.0.1:{port}/", "no plain IPv4"), ("http://0x7f000001:{port}/", "no plain IPv4"),
    ("http://2130706433:{port}/", "no plain IPv4"), ("http://127.1:{port}/", "no plain IPv4"),
    ("http://127.0.0.1:80:{port}/", "port"), ("http://u:p@127.0.0.1:{port}/", "user name"),
    ("http://127.0.0.1\\@x:{port}/", "backslashes"), ("http://127.0.0.1:{port}/ü", "not ASCII"),
    ("http://127.0.0.1:1/a", "another scheme or port"), ("https://example.com/a", "another scheme or port"),
])
def test_the_table_of_addresses(vision, web, url, words):
    engine, gateway = vision(media_fetch=f"http://*:{web.port}", **HERE)
    said = refused(gateway, url.format(port=web.port) + "#part", words)
    assert "u:p" not in said and "#part" not in said, said
    assert not web.asked and not engine.requests and not files(gateway)


def test_a_name_of_this_machine_that_is_not_public(vision, web):
    name = socket.gethostname()
    try:
        at = {a[4][0] for a in socket.getaddrinfo(name, web.port, type=socket.SOCK_STREAM)}
    except OSError:
        pytest.skip("this machine's name does not resolve")
    if not all(a.startswith(("10.", "172.", "192.168.", "127.", "fd", "fe80", "::1")) for a in at):
        pytest.skip("this machine's name is a public one")
    _, gateway = vision(media_fetch=f"http://*:{web.port}", media_fetch_timeout="100s")
    refused(gateway, web.at("/a", name), "not public")


def test_a_name_that_nobody_has(vision, web):
    """Some name servers say so, others say nothing."""
    engine, gateway = vision(media_fetch=f"http://*:{web.port}", media_fetch_timeout="2s")
    said = refused(gateway, web.at("/a", "no-such-name.invalid"), "was not fetched: it")
    assert "has no address" in said or "takes too long" in said, said
    assert not engine.requests


def stall(web, first=b""):
    """Says so much and then nothing."""
    def answer(h):
        page(first, Content_Length="60000")(h)
        h.wfile.flush()
        web.over.wait()
    return answer


@pytest.mark.parametrize("first", [b"", SHOT], ids=["nothing", "some"])
def test_what_is_too_slow(vision, web, first):
    engine, gateway = vision(media_fetch=hosts(web), **{**HERE, "media_fetch_timeout": "500ms"})
    web.pages["/a"] = stall(web, first)
    refused(gateway, web.at("/a"), "takes too long")
    assert not engine.requests and not files(gateway)


def test_what_is_no_picture_or_too_large(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), max_image_bytes="65536", **HERE)
    large = kit.png(64, 64) + b"x" * 70000
    web.pages.update({
        "/html": page(b"<html></html>", Content_Type="image/png"), "/none": page(b""), "/gone": page(b"", 404),
        "/gzip": page(gzip.compress(SHOT), Content_Encoding="gzip"), "/cut": page(SHOT[:-9], Content_Length=str(len(SHOT))),
        "/half": page(SHOT[:-9]), "/large": page(large), "/chunks": chunked(large), "/open": page(large, Content_Length=None),
        "/huge": page(b"", Content_Length=str(1 << 40)),
        "/bad": lambda h: h.wfile.write(b"junk\r\n\r\n"), "/shut": lambda h: None, "/loop": to("/loop"),
        "/error": page(b"", 503), "/back": page(b"", 302)})
    for path, words in (("/html", "Could not process image"), ("/none", "Could not process image"), ("/gone", "answers 404"),
                        ("/gzip", "compressed"), ("/cut", "cut off"), ("/half", "cut off"), ("/bad", "no HTTP"),
                        ("/shut", "without an answer"), ("/loop", "redirected"),
                        ("/error", "answers 503"), ("/back", "answers 302")):
        refused(gateway, web.at(path), words)
    for path in ("/large", "/chunks", "/open", "/huge"):
        refused(gateway, web.at(path), "65536 bytes", 413, "body_too_large")
    web.pages["/a"] = page(kit.png(64, 64))
    assert not engine.requests and not files(gateway)
    assert chat(gateway, session(gateway), [user(by(web.at("/a")))]).status == 200


def test_who_leaves_ends_the_fetch(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **{**HERE, "media_fetch_timeout": "1h"})
    gone = threading.Event()

    def answer(h):
        h.connection.recv(1)        # nothing comes but the connection's end
        gone.set()
    web.pages.update({"/a": answer, "/b": page(SHOT)})
    sid, other = session(gateway), session(gateway)
    c = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    c.request("POST", f"/sessions/{sid}/v1/chat/completions", json.dumps({"messages": [user(by(web.at("/a")))]}))
    wait_until(lambda: web.asked, what="it is fetched")
    assert chat(gateway, other, [user(by(web.at("/b")))]).status == 200, "others go on meanwhile"
    c.close()
    assert gone.wait(60)
    assert chat(gateway, sid, [user(text("x"))]).status == 200
    assert len(engine.requests) == 2


def test_a_worker_ends_in_the_middle_of_a_fetch(vision, web):
    _, gateway = vision(media_fetch=hosts(web), grace="100ms", **{**HERE, "media_fetch_timeout": "1h"})
    web.pages["/a"] = stall(web)
    c = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    c.request("POST", f"/sessions/{session(gateway)}/v1/chat/completions", json.dumps({"messages": [user(by(web.at("/a")))]}))
    wait_until(lambda: web.asked, what="it is fetched")
    assert gateway.stop(60) == 0
    c.close()


@pytest.mark.parametrize("name,is_good", [("good", True), ("other", False), ("expired", False)])
def test_certificates_are_checked(vision, name, is_good):
    folder = Path(__file__).parents[2] / "data/tls"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    web = Web(tls)
    try:
        engine, gateway = vision(media_fetch=f"127.0.0.1:{web.port}", media_fetch_ca_file=folder / "ca.pem", **HERE)
        web.pages["/a"] = page(SHOT)
        if not is_good:
            refused(gateway, web.at("/a", scheme="https"), "certificate was refused")
            return
        assert chat(gateway, session(gateway), [user(by(web.at("/a", scheme="https")))]).status == 200
        assert sent(engine) == [SHOT]
        refused(gateway, web.at("/a"), "another scheme or port")
    finally:
        web.close()


@pytest.mark.parametrize("name", ["other", "expired"])
def test_whose_certificate_was_refused_is_not_told_after_a_redirection(vision, name):
    folder = Path(__file__).parents[2] / "data/tls"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    outer, inner = Web(host="127.0.0.3"), Web(tls)
    try:
        _, gateway = vision(media_fetch=[*hosts(outer, "127.0.0.3"), f"127.0.0.1:{inner.port}"],
                            media_fetch_ca_file=folder / "ca.pem", **{**HERE, "media_fetch_address": ["127.0.0.1", "127.0.0.3"]})
        outer.pages["/r"] = to(inner.at("/a", scheme="https"))
        said = refused(gateway, outer.at("/r", "127.0.0.3"), "certificate was refused")
        assert "127.0.0.1" not in said and str(inner.port) not in said and "expired" not in said, said
        assert not inner.asked
    finally:
        outer.close()
        inner.close()


def test_limits_count_pictures_by_url_too(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), max_images="2", **HERE)
    web.pages["/a"] = page(SHOT)
    answer = chat(gateway, session(gateway), [user(by(web.at("/a")), by(kit.url(OTHER)), by(web.at("/a")))])
    assert answer.status == 400 and "more than 2 images" in answer.json()["error"]["message"]
    assert not web.asked and not engine.requests


def changing(web, at="/a", gate=None):
    """Another picture each time; the first waits for the gate."""
    made = []

    def answer(h):
        made.append(kit.png(64 + 32 * len(made), 64))
        data = made[-1]
        if gate and len(made) == 1:
            gate.wait(60)
        page(data)(h)
    web.pages[at] = answer
    return made


def in_thread(call):
    ret = []
    t = threading.Thread(target=lambda: ret.append(call()))
    t.start()
    return t, ret


def test_calls_at_the_same_time_see_one_picture(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    gate = threading.Event()
    made = changing(web, gate=gate)
    sid, url = session(gateway), web.at("/a")
    calls = [in_thread(lambda n=n: chat(gateway, sid, [user(text(f"call {n}"), by(url))])) for n in range(6)]
    wait_until(lambda: web.asked, what="it is fetched")
    gate.set()
    for t, _ in calls:
        t.join()
    assert [a.status for _, (a,) in calls] == [200] * 6, [a.body for _, (a,) in calls]
    assert len(made) == 1
    assert [sent(engine, n) for n in range(6)] == [[made[0]]] * 6
    assert files(gateway) == {kit.sha(made[0]): 1}


def test_tokens_are_counted_of_the_picture_that_the_call_gets(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    made = []

    def answer(h):
        made.append(kit.png(640 * (1 + len(made)), 480))
        page(made[-1])(h)
    web.pages["/a"] = answer
    sid = session(gateway)
    body = {"max_tokens": 9, "messages": [user(text("look"), {"type": "image", "source": {"type": "url", "url": web.at("/a")}})]}
    count = gateway.post(f"/sessions/{sid}/v1/messages/count_tokens", body).json()["input_tokens"]
    assert gateway.post(f"/sessions/{sid}/v1/messages", body).json()["usage"]["input_tokens"] == count
    assert gateway.post(f"/sessions/{sid}/v1/messages/count_tokens", body).json()["input_tokens"] == count
    assert len(made) == 1 and sent(engine) == made


def note_of(gateway, sid):
    found = list((kit.media(gateway) / "sessions" / sid).glob("*.url"))
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("torn", [b"", b"\0" * 200, b'{"type":"image","med', b"{}"])
def test_a_note_that_was_cut_off_is_made_again(vision, web, torn):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    web.pages["/a"] = page(SHOT)
    sid, messages = session(gateway), [user(text("a"), by(web.at("/a")))]
    assert chat(gateway, sid, messages).status == 200
    note = note_of(gateway, sid)
    note.write_bytes(torn)
    for _ in range(3):
        assert chat(gateway, sid, messages + [user(text("more"))]).status == 200
    assert len(web.asked) == 2 and sent(engine) == [SHOT]
    assert json.loads(note.read_bytes())["media"] == kit.sha(SHOT)


def test_nothing_is_fetched_when_nobody_knows_what_the_session_had(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    web.pages["/a"] = page(SHOT)
    sid, messages = session(gateway), [user(text("a"), by(web.at("/a")))]
    assert chat(gateway, sid, messages).status == 200
    note = note_of(gateway, sid)
    whole = note.read_bytes()
    note.unlink()
    note.mkdir()
    answer = chat(gateway, sid, messages + [user(text("more"))])
    assert (answer.status, answer.json()["error"]["code"]) == (503, "storage_failed"), answer.body
    assert answer.headers["x-should-retry"] == "true" and len(web.asked) == 1 and len(engine.requests) == 1
    note.rmdir()
    note.write_bytes(whole)
    assert chat(gateway, sid, messages + [user(text("more"))]).status == 200 and len(web.asked) == 1


def test_a_session_takes_pictures_from_so_many_urls(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    web.pages.update({"/a": page(SHOT), "/b": page(OTHER)})
    sid, messages = session(gateway), [user(text("a"), by(web.at("/a")))]
    assert chat(gateway, sid, messages).status == 200
    whole = note_of(gateway, sid)
    for n in range(4095):
        whole.with_name(f"{n:064x}.url").write_text("{}")
    answer = chat(gateway, sid, messages + [user(by(web.at("/b")))])
    assert answer.status == 413 and "4096 URLs" in answer.json()["error"]["message"], answer.body
    assert len(web.asked) == 1 and len(engine.requests) == 1
    assert chat(gateway, sid, messages + [user(text("more"))]).status == 200


def test_nothing_is_fetched_for_sessions_that_are_no_more(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    web.pages["/a"] = page(SHOT)
    sid, messages = session(gateway), [user(text("a"), by(web.at("/a")))]
    gateway.post(f"/sessions/{sid}/finalize", {})
    unknown = sid[:-8] + ("0" * 8 if sid[-8:] != "0" * 8 else "1" * 8)
    for one, status in ((sid, 410), (unknown, 404)):
        answer = chat(gateway, one, messages)
        assert answer.status == status, answer.body
    assert not web.asked and not engine.requests


def test_a_new_session_of_a_call_keeps_what_was_fetched(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), reseed="any", **HERE)
    made = changing(web)
    messages = [user(text("a"), by(web.at("/a")))]
    answer = gateway.post("/v1/chat/completions", {"messages": messages})
    assert answer.status == 200, answer.body
    sid = answer.headers["rollgate-session"]
    assert chat(gateway, sid, messages + [user(text("more"))]).status == 200
    assert len(made) == 1 and sent(engine) == made


def results(gateway):
    head = 'rollgate_fetches_total{result="'
    return {k[len(head):-2]: v for k, v in gateway.metrics().items() if k.startswith(head) and v}


def test_who_waits_for_a_thread_is_told_to_ask_again(vision, web):
    """Threads that others' slow servers hold are our shortage, not the picture's fault. A machine that is slow to send the
    calls spreads their times out, so that none has waited long: then once more."""
    engine, gateway = vision(media_fetch=hosts(web), **{**HERE, "media_fetch_timeout": "4s"})
    web.pages["/slow"] = stall(web)
    sessions = [session(gateway) for _ in range(24)]
    for _ in range(8):
        calls = [in_thread(lambda sid=sid: chat(gateway, sid, [user(by(web.at("/slow")))])) for sid in sessions]
        for t, _ in calls:
            t.join()
        answers = [a for _, (a,) in calls]
        assert {a.status for a in answers} <= {400, 503}, [a.body for a in answers]
        busy = [a for a in answers if a.status == 503]
        if busy:
            break
    assert {a.json()["error"]["code"] for a in busy} == {"overloaded"} and {a.headers["x-should-retry"] for a in busy} == {"true"}
    assert not engine.requests


def test_base64_that_reads_like_a_url_is_not_fetched(vision, web):
    engine, gateway = vision(media_fetch=hosts(web), **HERE)
    web.pages["/a"] = page(SHOT)
    source = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": web.at("/a")}}
    answer = gateway.post(f"/sessions/{session(gateway)}/v1/messages", {"max_tokens": 9, "messages": [user(source)]})
    assert answer.status == 400 and "not base64" in answer.json()["error"]["message"], answer.body
    answer = chat(gateway, session(gateway), [user(by("data:;base64," + web.at("/a")))])
    assert answer.status == 400 and "not base64" in answer.json()["error"]["message"], answer.body
    assert not web.asked and not engine.requests


def test_fetches_are_counted_and_what_was_refused_is_in_the_log(vision, web):
    _, gateway = vision(media_fetch=f"http://*:{web.port}", max_image_bytes="65536", **HERE)
    web.pages.update({"/a": page(SHOT), "/large": page(b"x" * 70000), "/shut": lambda h: None})
    sid = session(gateway)
    for n in range(2):
        assert chat(gateway, sid, [user(text(f"call {n}"), by(web.at("/a")))]).status == 200
    refused(gateway, web.at("/a?key=secret", "127.0.0.2"), "not public")
    refused(gateway, web.at("/large"), "65536 bytes", 413, "body_too_large")
    refused(gateway, web.at("/shut"), "without an answer")
    assert results(gateway) == {"fetched": 1, "recorded": 1, "refused": 1, "too_large": 1, "failed": 1}
    wait_until(lambda: "127.0.0.2" in gateway.log(), what="the host is in the log")
    assert "secret" not in gateway.log()


def test_pictures_that_are_fetched_have_so_much_memory(vision, web):
    """The first may always be fetched; others only while there is room beside it."""
    engine, gateway = vision(media_fetch=hosts(web), max_request_memory="1m", **{**HERE, "media_fetch_timeout": "1h"})
    web.pages.update({"/slow": stall(web), "/a": page(SHOT)})
    c = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    c.request("POST", f"/sessions/{session(gateway)}/v1/chat/completions", json.dumps({"messages": [user(by(web.at("/slow")))]}))
    wait_until(lambda: web.asked, what="it is fetched")
    sid = session(gateway)
    answer = chat(gateway, sid, [user(by(web.at("/a")))])
    assert (answer.status, answer.json()["error"]["code"]) == (503, "memory_full"), answer.body
    assert answer.headers["x-should-retry"] == "true"
    c.close()
    wait_until(lambda: results(gateway).get("cancelled"), what="the slow one is given up")
    assert chat(gateway, sid, [user(by(web.at("/a")))]).status == 200 and sent(engine) == [SHOT]


def test_one_session_leaves_places_for_the_others(vision, web):
    """Its requests wait for a server that says nothing: of the 256 places of a worker they get half, and a thread."""
    engine, gateway = vision(media_fetch=hosts(web), **{**HERE, "media_fetch_timeout": "1h"})
    web.pages.update({"/slow": stall(web), "/a": page(SHOT)})
    sid, other = session(gateway), session(gateway)
    body = json.dumps({"messages": [user(by(web.at("/slow")))]})
    calls = [http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60) for _ in range(140)]
    for n, c in enumerate(calls):
        c.request("POST", f"/sessions/{sid}/v1/chat/completions", body.replace("slow", f"slow?{n}"))
    wait_until(lambda: results(gateway).get("unavailable") == 12, what="those beyond are sent away")
    answered = [c.getresponse() for c in calls if select.select([c.sock], [], [], 0)[0]]
    for a in answered:
        error = json.loads(a.read())["error"]
        assert (a.status, error["code"], a.headers["x-should-retry"]) == (503, "overloaded", "true"), error
        assert "of this session" in error["message"]
    assert len(answered) == 12 and len(web.asked) == 1
    assert chat(gateway, other, [user(by(web.at("/a")))]).status == 200 and sent(engine) == [SHOT]
    for c in calls:
        c.close()
    wait_until(lambda: results(gateway).get("cancelled"), what="they are given up")
    assert chat(gateway, sid, [user(by(web.at("/a")))]).status == 200
