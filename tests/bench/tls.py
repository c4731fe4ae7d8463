#!/usr/bin/python3
"""TLS of the router (--listen ADDRESS,tls) against nginx, both with TLS 1.2, one process each, before the same stub workers.

    scripts/bench tls [--rounds 3] [--seconds 3]

Handshakes are full ones, without a request. Bodies have 5 MB, and go over four kept connections. The figures are counts and
megabytes per CPU second of a peer's processes; those of the clients do not count. Rounds interleave the peers.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from peers import BUILD, STUB_PORT, nginx, rollgate
from router import family

MB = 1 << 20
PATH = f"/sessions/w0-{'0123456789abcdef' * 2}"
KEYS = {"ecdsa": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"], "rsa": ["rsa:2048"]}
CIPHERS = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"


def certificate(folder, key):
    files = folder / f"{key}.crt", folder / f"{key}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", *KEYS[key], "-nodes", "-days", "9", "-subj", "/CN=bench", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", files[1], "-out", files[0]], check=True, capture_output=True)
    return files


def rollgate_tls(folder, port, files):
    words = rollgate(folder, port, workers=1)
    words[words.index("--listen") + 1] += ",tls"
    return [*words, "--tls-certificate", str(files[0]), "--tls-key", str(files[1])]


def nginx_tls(folder, port, files):
    words = nginx(folder, port, True, True, workers=1)
    conf = pathlib.Path(words[2])
    text = conf.read_text().replace("backlog=4096 reuseport;", "backlog=4096 reuseport ssl;\n        ssl_protocols TLSv1.2; "
                                    f"ssl_certificate {files[0]}; ssl_certificate_key {files[1]}; ssl_session_tickets off;")
    conf.write_text(text)
    return words


class Peer:
    def __init__(self, command, port, files):
        self.port, self.context = port, ssl.create_default_context(cafile=files[0])
        self.context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_ciphers(CIPHERS)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not self.serves():
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"{command[0]} does not serve")
            time.sleep(0.1)

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=30)

    def serves(self):
        try:
            c = self.connect()
            c.request("GET", PATH)
            return c.getresponse().status == 200
        except OSError:
            return False

    def cpu_seconds(self):
        return sum(int(path.read_text().split()[0]) for pid in family(self.process.pid)
                   for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def handshakes(peer, seconds):
    done = subprocess.run(["openssl", "s_time", "-connect", f"127.0.0.1:{peer.port}", "-new", "-tls1_2", "-cipher", CIPHERS, "-time", str(seconds)],
                          capture_output=True, text=True, check=True)
    return int(re.search(r"(\d+) connections in \d+ real seconds", done.stdout)[1])


def bodies(peer, seconds, method, query, size):
    """Megabytes that four connections have moved."""
    counts, end = [], time.monotonic() + seconds

    def work():
        c, n = peer.connect(), 0
        while time.monotonic() < end:
            c.request(method, PATH + query, b"x" * size if method == "POST" else None)
            answer = c.getresponse()
            got = len(answer.read())
            assert answer.status == 200 and (method == "POST" or got == size)
            n += size
        c.close()
        counts.append(n)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(counts) == 4, "a client has failed"
    return sum(counts) / 1e6


SCENES = {"handshakes": handshakes,
          "MB down": lambda peer, s: bodies(peer, s, "GET", f"?bytes={5 * MB}", 5 * MB),
          "MB up": lambda peer, s: bodies(peer, s, "POST", "", 5 * MB)}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seconds", type=int, default=3)
    ap.add_argument("--port", type=int, default=8660)
    ap.add_argument("--json")
    args = ap.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="rg-bench-") as tmp:
        folder = pathlib.Path(tmp)
        folder.chmod(0o755)
        stub = subprocess.Popen([str(BUILD / "tests/bench/bench_stub"), "8", tmp, str(STUB_PORT)])
        peers = {}
        try:
            time.sleep(0.3)
            for number, key in enumerate(KEYS):
                files = certificate(folder, key)
                for offset, (name, make) in enumerate({"rollgate": rollgate_tls, "nginx": nginx_tls}.items()):
                    port = args.port + 2 * number + offset
                    (folder / str(port)).mkdir()
                    peers[name, key] = Peer(make(folder, port, files), port, files)
            for round_ in range(args.rounds):
                for scene, run in SCENES.items():
                    for (name, key), peer in list(peers.items())[::-1 if round_ % 2 else 1]:
                        if key == "rsa" and scene != "handshakes":
                            continue
                        before = peer.cpu_seconds()
                        amount = run(peer, args.seconds)
                        results.setdefault(f"{scene} {key}", {}).setdefault(name, []).append(amount / (peer.cpu_seconds() - before))
                        print(f"round {round_} {scene} {name} {key}: {results[f'{scene} {key}'][name][-1]:,.0f}", file=sys.stderr, flush=True)
        finally:
            for peer in peers.values():
                peer.stop()
            stub.terminate()
            stub.wait()
    print("\nper CPU second, TLS 1.2, median (rollgate / nginx per round: least to greatest)")
    for scene, rows in results.items():
        ratios = [a / b for a, b in zip(rows["rollgate"], rows["nginx"])]
        print(f"{scene:20s}" + "".join(f"{name} {statistics.median(v):10,.0f}   " for name, v in rows.items()) + f"({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"bench": "tls", "when": time.strftime("%FT%TZ", time.gmtime()), "load": os.getloadavg(),
                                                       "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
