"""Servers of plain HTTP for tests, each in a thread of its own."""
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Keeps its connection, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, body, **headers):
        """Sends a whole answer, as JSON unless a header says otherwise."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class HttpStub:
    """Serves with a class of handlers until close() or the end of its `with`."""

    def __init__(self, handler, host="127.0.0.1", tls=None):
        self.server = http.server.ThreadingHTTPServer((host, 0), handler)
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
