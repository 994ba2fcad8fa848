"""The rules R1 to R24 of x402-conformance for resource servers. Their probe is the npm
package x402-conformance-svm, which PyPI does not have; the rules are played here by the
text of the README in x402-conformance 1.6.0, which each title shortens."""

import concurrent.futures
import json
import secrets
import tempfile

from stage import DNS, PING, Facilitator, Service, Signer, ask, pay, transaction, wallet


class Play:
    """A service with a facilitator of one mode, and who signs. A rule is played on one of
    its own."""

    def __init__(self, mode):
        self.facilitator = Facilitator(mode)
        self.service = Service(self.facilitator.url)
        self.signer = Signer(self.service)
        self.wallet = wallet()

    def close(self):
        for part in (self.signer, self.service, self.facilitator):
            part.__exit__()

    def sign(self, path=PING, change=None):
        return self.signer.sign(path, self.wallet, change)

    def named(self, n):
        """n payments under one payment-identifier."""
        return [self.sign(PING, lambda s: s["extensions"]["payment-identifier"]["info"].update(id="identifier-0123456789")) for _ in range(n)]

    def ask(self, path=PING, *args, **kwargs):
        return ask(self.service, path, *args, **kwargs)

    def until_answered(self, signature):
        """The reply to a signature that make pay sends while the service says that it may."""
        folder = tempfile.mkdtemp(prefix="again-")
        with open(folder + "/p.json", "w") as f:
            json.dump({"url": self.service.url + PING, "payment_signature": signature, "payer": ""}, f)
        pay(["-again", folder + "/p.json"], folder)
        return self.ask(PING, signature)

    def seen(self, ok, *said):
        """A verdict, and what it rests on."""
        return "pass" if ok else "fail", "%s; payments moved: %d, calls of /settle: %d" % (
            ", ".join(map(str, said)), len(self.facilitator.moved), len(self.facilitator.calls))

    def unpaid(self, *replies, calls=0):
        """None of the replies is the answer, and /settle was called so often."""
        return self.seen(not any(r.served() for r in replies) and len(self.facilitator.calls) == calls, *replies)

    def settled_once(self, replies):
        """Every reply is the answer, and names the one settlement that there was."""
        names = {transaction(nonce) for nonce in self.facilitator.moved}
        return self.seen(len(names) == 1 and all(r.served() and {r.settlement.get("transaction")} == names for r in replies), *replies)


def at_once(*asked):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return [f.result() for f in [pool.submit(*a) for a in asked]]


def served(p):
    r = p.ask(PING, p.sign())
    return p.seen(r.served() and r.settlement.get("success") is True and len(p.facilitator.moved) == 1, r)


def served_again(p):
    s = p.sign()
    first, second = p.ask(PING, s), p.ask(PING, s)
    return p.seen(first.served() and not second.served(), first, "%s with Idempotent-Replayed: %s, the same bytes: %s" % (
        second, second.headers.get("idempotent-replayed"), first.body == second.body))


def not_served(p):
    r = p.ask(PING, p.sign())
    return p.seen(not r.served() and p.facilitator.calls, r)


def altered(p):
    offers = {"payTo": "0x" + "1" * 40, "asset": "0x" + "2" * 40, "network": "eip155:84532"}
    return p.unpaid(*(p.ask(PING, p.sign(PING, lambda s, o=o: s["accepted"].update([o]))) for o in offers.items()))


def other_query(p):
    s = p.sign(DNS)
    return p.unpaid(p.ask(DNS, s), p.ask(DNS + "&type=MX", s), calls=1)


def variants(p):
    paths = ["/v1/tools%2Fping", "/v1/tools/%2e/ping", "/v1/tools/x/%2e%2e/ping", "//v1/tools/ping", PING + "?probe=..%2f", PING + "%00"]
    return p.unpaid(*map(p.ask, paths))


def replicas(p):
    with Service(p.facilitator.url, folder=p.service.folder, BASE_URL=p.service.url) as twin:
        s = p.named(4)
        return p.settled_once([p.ask(PING, s[0]), ask(twin, PING, s[1]), *at_once((p.ask, PING, s[2]), (ask, twin, PING, s[3]))])


def crash(p):
    p.facilitator.during = lambda: (p.service.process.kill(), p.service.process.wait())
    s = p.sign()
    try:
        p.ask(PING, s)
    except OSError:
        pass  # killed in /settle
    p.facilitator.during = None
    p.service.restart()
    replies = [p.until_answered(s)]
    p.service.process.kill()  # after the answer
    p.service.restart()
    return p.settled_once([*replies, p.ask(PING, s)])


def failing(p):
    r = p.ask(DNS, p.sign(DNS))
    return p.seen(not p.facilitator.calls and not r.settlement, r)


def unpaid_head(p):
    head, get = p.ask(PING, method="HEAD"), p.ask(PING)
    return p.seen(head.status == get.status == 402 and head.headers.get("payment-required"), head)


def private(p):
    said = p.ask(PING, p.sign()).headers.get("cache-control", "")
    return p.seen("private" in said or "no-store" in said, "Cache-Control: " + said)


def pending(p):
    s = p.sign()
    first = p.ask(PING, s)
    name = transaction(p.facilitator.calls[0])
    p.facilitator.mode = "settles"
    final = p.until_answered(s)
    names = name in first.body.decode() or first.settlement.get("transaction") == name
    return p.seen(not first.served() and final.served() and names, "%s, which names the transaction: %s" % (first, names), final)


def flows(p):
    escrow = p.ask(PING, p.sign(PING, lambda s: s["accepted"]["extra"].update(paymentFlow="escrow")))
    refused = not escrow.served() and not p.facilitator.calls
    return p.seen(refused and not p.ask(DNS, p.sign(DNS)).served() and p.facilitator.moved, "escrow: %s; upfront before a lookup that failed" % escrow)


def gives_up(fresh):
    def rule(p):
        first, second = p.named(2)
        try:
            p.ask(PING, first, timeout=1)
        except TimeoutError:
            pass
        p.facilitator.arrived.wait(10)
        p.facilitator.slow.set()
        return p.settled_once([p.until_answered(second if fresh else first), p.until_answered(first)])
    return rule


def malformed(p):
    replies = [p.ask(PING, v) for v in ("%%%", "bm8ganNvbg==", "W10=", "IjQwMiI=", secrets.token_hex(16))]
    return p.seen(all(r.status in (400, 402) and b'"code"' in r.body for r in replies), *replies)


def never(why):
    return lambda p: ("n/a", why)


# Name, what is asked, the facilitator's mode, and the rule.
RULES = [
    ("R1, R10", "a settled payment is served, with PAYMENT-RESPONSE, and the facilitator was asked", "settles", served),
    ("R2", "the same payment is served at most once", "settles", served_again),
    ("R3", "/settle never answers: not served", "never", not_served),
    ("R4", "/settle answers an HTML 502: not served", "html 502", not_served),
    ("R5", "/settle answers 503 with a success body: not served", "success in a 503", not_served),
    ("R6", "/settle answers a page that is no JSON: not served", "no JSON", not_served),
    ("R7", "/settle's body is cut: not served", "cut", not_served),
    ("R8", "/settle answers settlement_pending: not served", "settlement_pending", not_served),
    ("R9", "/settle answers invalid_transaction_state: not served", "invalid_transaction_state", not_served),
    ("R11a", "a payment for a cheap route is refused on a dearer one", "settles", lambda p: p.unpaid(p.ask(DNS, p.sign(PING)))),
    ("R11b", "another payTo, asset or network is refused before /settle", "settles", altered),
    ("R11c", "a payment for one method is refused on another", "settles", lambda p: p.unpaid(*(p.ask(PING, p.sign(), m) for m in ("POST", "PUT")))),
    ("R11d", "a payment for one query is refused on another", "settles", other_query),
    ("R11e", "an encoded separator or dot segment reaches no handler unpaid", "settles", variants),
    ("R11f", "sign-in-with-x is recorded for the route that was paid", "settles", never("the service has no sign-in-with-x")),
    ("R12", "eight payments at once under one payment-identifier: one settlement", "settles",
     lambda p: p.settled_once(at_once(*((p.ask, PING, s) for s in p.named(8))))),
    ("R13", "the same over two replicas, in turn and at once", "settles", replicas),
    ("R14", "a crash in /settle, and one after the answer: settled once, then answered", "settles", crash),
    ("R15", "no settlement when the handler answers 5xx", "settles", failing),
    ("R16", "a paid HEAD is not settled", "settles", lambda p: p.unpaid(p.ask(PING, p.sign(), "HEAD"))),
    ("R16a", "an unpaid HEAD is the 402 of GET", "settles", unpaid_head),
    ("R17", "the paid answer is private or no-store", "settles", private),
    ("R18", "nothing while pending, the answer when final, the transaction named", "settlement_pending", pending),
    ("R19", "upfront settles before the resource runs; a flow that is not offered is refused", "settles", flows),
    ("R20a", "client gives up and pays again under its payment-identifier: one settlement", "slow", gives_up(True)),
    ("R20b, R23", "client disconnects in /settle and resends its payment: one settlement, and its answer", "slow", gives_up(False)),
    ("R22", "the handler's 201 or 202 and its headers are kept", "settles", never("every paid answer is a 200")),
    ("R24", "five malformed PAYMENT-SIGNATUREs are 400 or 402 with a structured error", "settles", malformed),
]


def play(name, title, mode, rule):
    p = Play(mode)
    try:
        return (name, title, *rule(p))
    finally:
        p.close()


def play_all():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(play, *zip(*RULES)))
