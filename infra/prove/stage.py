"""The service, a facilitator and clients for the rules that are played here. Everything
listens on loopback, on ports that the system chooses, and pays with play money."""

import base64
import hashlib
import http.client
import json
import os
import pathlib
import secrets
import subprocess
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORK = "eip155:8453"
PING, DNS = "/v1/tools/ping", "/v1/tools/dns?domain=example.com"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass  # a peer that was killed, or gave up, is a part of several rules


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status=200, body=b"{}", headers=(), cut=False):
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = True


class Listening:
    """A server on a free port, until the with statement ends."""

    def serve(self, handler):
        self.server = Server(("127.0.0.1", 0), handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Facilitator(Listening):
    """Settles every authorization once. mode says how /settle answers, or is the reason of
    its refusal; calls has the nonce of each call, and moved those whose money moved."""

    ANSWERS = {
        "html 502": {"status": 502, "body": b"<html>Bad Gateway</html>"},
        "success in a 503": {"status": 503},
        "no JSON": {"body": b"<html>Welcome</html>"},
        "cut": {"cut": True},
    }

    def __init__(self, mode):
        self.mode, self.during, self.calls, self.moved = mode, None, [], set()
        self.closed, self.arrived, self.slow = threading.Event(), threading.Event(), threading.Event()
        outer = self

        class H(Handler):
            def do_POST(self):
                payment = json.loads(self.body())["paymentPayload"]["payload"]["authorization"]
                if self.path.endswith("/settle"):
                    return outer.settle(self, payment["from"], payment["nonce"])
                self.answer(body=json.dumps({"isValid": True, "payer": payment["from"]}).encode())

        self.serve(H)

    def __exit__(self, *_):
        self.closed.set()
        super().__exit__()

    def settle(self, h, payer, nonce):
        self.calls.append(nonce)
        reply = {"success": True, "transaction": transaction(nonce), "network": NETWORK, "payer": payer}
        if "_" in self.mode:
            reply.update(success=False, errorReason=self.mode)
        else:
            self.moved.add(nonce)
        self.arrived.set()
        if self.during:
            self.during()
        if self.mode in ("never", "slow"):
            {"never": self.closed, "slow": self.slow}[self.mode].wait(60)
        h.answer(**{"body": json.dumps(reply).encode(), **self.ANSWERS.get(self.mode, {})})


def transaction(nonce):
    return "0x" + hashlib.sha256(nonce.encode()).hexdigest()


class Service:
    """The local runner. Without a facilitator it has its own, which settles play money."""

    def __init__(self, facilitator=None, folder=None, addr="127.0.0.1:0", **settings):
        self.folder = folder or tempfile.mkdtemp(prefix="prove-")
        self.settings = {
            "PATH": os.environ["PATH"], "HOME": self.folder, "LEDGER_FILE": self.folder + "/ledger.db", "LOCAL_ADDR": addr,
            "RPC_URL": "none", "RATE_LIMIT_PER_MINUTE": "0", "DNS_RESOLVERS": "127.0.0.1:9",
            "RDAP_BOOTSTRAP_URL": "http://127.0.0.1:9/", **({"FACILITATOR_URL": facilitator} if facilitator else {}), **settings,
        }
        self.start()

    def start(self):
        self.process = subprocess.Popen([ROOT / "build/local"], cwd=self.folder, env=self.settings, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, self.url, self.facilitator = [], "", ""
        for line in self.process.stdout:
            said.append(line)
            words = line.split()
            if " is ready on " in line:
                self.url = words[-1]
            elif words[:1] == ["facilitator"]:
                self.facilitator = words[-1]
                break
        if not self.facilitator:
            raise RuntimeError("the service did not start:\n" + "".join(said))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def restart(self):
        """Starts it again after a kill, at the same address and with the same ledger."""
        self.process.wait()
        self.settings["LOCAL_ADDR"] = self.url.removeprefix("http://")
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body
        receipt = self.headers.get("payment-response")
        self.settlement = json.loads(base64.b64decode(receipt)) if receipt else {}

    def served(self):
        return self.status == 200

    def __str__(self):
        try:
            return "%d %s" % (self.status, json.loads(self.body)["error"]["code"])
        except (ValueError, KeyError, TypeError):
            return str(self.status)


def ask(service, path, signature=None, method="GET", timeout=60, **headers):
    """One request. A client that gives up is a TimeoutError."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(service.url).netloc, timeout=timeout)
    if signature is not None:
        headers["PAYMENT-SIGNATURE"] = signature
    try:
        connection.request(method, path, headers={"Accept": "application/json", **headers})
        r = connection.getresponse()
        return Reply(r.status, r.getheaders(), r.read())
    finally:
        connection.close()


def wallet():
    """A file with a new private key."""
    with tempfile.NamedTemporaryFile("w", prefix="wallet-", delete=False) as f:
        f.write(secrets.token_hex(32))
    return f.name


def pay(arguments, folder):
    """make pay, which sends its signature again while the service says that it may."""
    return subprocess.run([ROOT / "build/pay", "-dir", folder, *arguments], cwd=folder, capture_output=True, text=True)


class Signer(Listening):
    """Signs without paying: make pay reads the service's offer here, and its signature
    stays here."""

    def __init__(self, service):
        class H(Handler):
            def do_GET(self):
                if self.headers.get("PAYMENT-SIGNATURE"):
                    return self.answer(500)
                r = ask(service, self.path)
                self.answer(r.status, r.body, [("PAYMENT-REQUIRED", r.headers["payment-required"])])

        self.serve(H)

    def sign(self, path, key, change=None):
        """The header of a payment. change may alter its JSON: what is signed is the
        authorization alone."""
        folder = tempfile.mkdtemp(prefix="signed-")
        done = pay(["-key-file", key, "-yes", self.url + path], folder)
        kept = list(pathlib.Path(folder).glob("*.json"))
        if len(kept) != 1:
            raise RuntimeError("nothing was signed: " + done.stderr)
        payment = json.loads(base64.b64decode(json.loads(kept[0].read_text())["payment_signature"]))
        if change:
            change(payment)
        return base64.b64encode(json.dumps(payment).encode()).decode()
