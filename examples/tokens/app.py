"""An application with the interface of a language model: it writes as many words as `max_tokens`, and reports its usage."""

import json
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LISTEN = ("127.0.0.1", 8000)
DONE = "http://127.0.0.1:9001/done"
KEYS = ("secret-of-acme", "secret-of-globex")
TOKENS_MAX = 100_000
TOKENS_PER_SECOND = 2_000
TOKENS_PER_CHUNK = 20


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") not in [f"Bearer {key}" for key in KEYS]:
            return self.answer(401, {"error": "unknown key"}, 0)
        if self.path != "/v1/chat/completions":
            return self.answer(404, {"error": "unknown path"}, 0)
        try:
            request = json.loads(body)
            prompt = sum(len(message["content"].split()) for message in request["messages"])
            wanted = max(0, min(int(request.get("max_tokens", 100)), TOKENS_MAX))
        except (ValueError, TypeError, KeyError, AttributeError):
            return self.answer(400, {"error": "no chat"}, 0)
        if request.get("stream"):
            return self.stream(prompt, wanted)
        text = "".join(words(wanted))
        self.answer(200, {"choices": [{"message": {"content": text}}], "usage": usage(prompt, wanted)}, prompt + wanted)

    def answer(self, status, answer, tokens):
        """The usage is known before the response begins: the proxy takes it from the header."""
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-usage-total-tokens", str(tokens))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, prompt, wanted):
        """The usage is known at the end: the application itself reports it, also if the client has disconnected."""
        written = 0
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for text in words(wanted):
                written += len(text.split())
                self.event(json.dumps({"choices": [{"delta": {"content": text}}]}))
            self.event(json.dumps({"choices": [], "usage": usage(prompt, written)}))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            report(self.headers.get("X-Slowlane-Ticket"), prompt + written)

    def event(self, data):
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))


def words(count):
    """Pieces of a text, as fast as the model writes."""
    for begin in range(0, count, TOKENS_PER_CHUNK):
        piece = min(TOKENS_PER_CHUNK, count - begin)
        time.sleep(piece / TOKENS_PER_SECOND)
        yield "word " * piece


def usage(prompt, completion):
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def report(ticket, tokens):
    """Tells slowlane the cost of a request. Without a report, the request has cost its reservation."""
    if not ticket:
        return
    headers = {"X-Slowlane-Ticket": ticket, "X-Slowlane-Cost": str(tokens)}
    try:
        urllib.request.urlopen(urllib.request.Request(DONE, headers=headers, method="POST"), timeout=1).close()
    except OSError as error:
        print(f"no report of {tokens} tokens: {error}", flush=True)


ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(LISTEN, Model).serve_forever()
