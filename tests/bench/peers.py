"""The routers that benches compare, each a function that writes its configuration into a folder and returns its command:
rollgate, nginx in its forms, HAProxy, and a loop that only relays. One process each."""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RG_BUILD", "build/release")
WORKERS = 4
STUB_PORT = 9300

def nginx(folder, port, unix, large, workers=WORKERS):
    """One nginx process: a map on the prefix, keep-alive upstreams, nothing buffered."""
    def server(i):
        return f"unix:{folder}/w{i}.sock" if unix else f"127.0.0.1:{STUB_PORT + i}"
    keep = "keepalive 1024; keepalive_requests 100000000; keepalive_timeout 300s;"
    ups = "".join(f"upstream w{i} {{ server {server(i)}; {keep} }}\n" for i in range(workers))
    ups += f"upstream any {{ {' '.join(f'server {server(i)};' for i in range(workers))} {keep} }}\n"
    table = "".join(f'"~^/sessions/w{i}-" w{i};\n' for i in range(workers))
    buffers = ("proxy_buffer_size 128k; proxy_buffers 4 128k; proxy_busy_buffers_size 256k; "
               "client_body_buffer_size 256k;" if large else
               "proxy_buffer_size 16k; proxy_buffers 8 32k; client_body_buffer_size 64k;")
    home = folder / f"nginx-{port}"
    home.mkdir()
    temps = "".join(f"{k}_temp_path {home}/{k};\n" for k in
                    ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = f"""
{"user root;" if os.geteuid() == 0 else ""}
worker_processes 1; worker_rlimit_nofile 20000; daemon off; pid {home}/pid; error_log {home}/log error;
pcre_jit on;
events {{ worker_connections 8192; use epoll; multi_accept on; }}
http {{
    access_log off; tcp_nodelay on; sendfile off; {temps}
    keepalive_requests 100000000; keepalive_timeout 300s; large_client_header_buffers 4 32k;
    map_hash_bucket_size 128;
    {ups} map $uri $to {{ default any; {table} }}
    server {{
        listen 127.0.0.1:{port} backlog=4096 reuseport;
        proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
        proxy_buffering off; proxy_request_buffering off; client_max_body_size 0; {buffers}
        proxy_read_timeout 600s; proxy_send_timeout 600s; proxy_next_upstream off;
        location / {{ proxy_pass http://$to; }}
    }}
}}
"""
    (home / "conf").write_text(config)
    return ["nginx", "-c", str(home / "conf"), "-e", str(home / "log")]


def haproxy(folder, port, unix, workers=WORKERS):
    def server(i):
        return f"unix@{folder}/w{i}.sock" if unix else f"127.0.0.1:{STUB_PORT + i}"
    lines = "".join(f"    use-server w{i} if {{ path_beg /sessions/w{i}- }}\n" for i in range(workers))
    lines += "".join(f"    server w{i} {server(i)} pool-max-conn 1024 pool-purge-delay 300s\n"
                     for i in range(workers))
    path = folder / f"haproxy-{port}.cfg"
    path.write_text(f"""
global
    maxconn 7500
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    timeout http-request 10s
    timeout http-keep-alive 300s
    http-reuse always
    option http-no-delay
frontend f
    bind 127.0.0.1:{port} backlog 4096
    default_backend pool
backend pool
    balance roundrobin
{lines}""")
    return ["haproxy", "-q", "-db", "-f", str(path)]


def rollgate(folder, port, unix=True, routers=1, workers=WORKERS):
    command = [str(BUILD / "rollgate"), "route", "--listen", f"127.0.0.1:{port}", "--routers",
               str(routers), "--state-dir", str(folder / "state"), "--log-level", "warn"]
    for i in range(workers):
        command += ["--upstream", f"unix:{folder}/w{i}.sock" if unix else f"127.0.0.1:{STUB_PORT + i}"]
    return command


def relay(folder, port):
    """No router, but the least that any relay in a process costs; scenes whose requests are small."""
    return [str(BUILD / "tests/bench/bench_relay"), str(port), str(folder)]


PEERS = {
    "relay": relay,
    "rollgate": lambda folder, port: rollgate(folder, port),
    "rollgate-tcp": lambda folder, port: rollgate(folder, port, False),
    "nginx-unix-128k": lambda folder, port: nginx(folder, port, True, True),
    "nginx-unix": lambda folder, port: nginx(folder, port, True, False),
    "nginx-tcp-128k": lambda folder, port: nginx(folder, port, False, True),
    "nginx-tcp": lambda folder, port: nginx(folder, port, False, False),
    "haproxy-unix": lambda folder, port: haproxy(folder, port, True),
    "haproxy-tcp": lambda folder, port: haproxy(folder, port, False),
}
