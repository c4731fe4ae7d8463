"""An engine that answers 200 to everything and remembers what it was asked, health probes aside."""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def any(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if self.path == "/slow":
            self.server.slow.acquire()
        answer = json.dumps({"path": self.path, "body": body.decode("latin-1"), "model_path": "m",
                             "key": self.headers.get("Authorization"),
                             "routing": self.headers.get("X-SMG-Routing-Key")}).encode()
        self.server.asked.append((self.command, self.path, body))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = any

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):     # who asked has left
        pass


class AnyEngine:
    def __enter__(self):
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.asked = []
        self.server.slow = threading.Semaphore(0)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.port = self.server.server_address[1]
        return self

    def __exit__(self, *_):
        self.server.slow.release(1000)
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def asked_at(self, path):
        """Requests for exactly this target."""
        return [a for a in self.server.asked if a[1] == path]
