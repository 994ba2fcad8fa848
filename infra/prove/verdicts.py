"""What is expected of each check, other than pass. A verdict that is another one fails
make prove: either the service, the list or this table has changed.

FAILS has who is right by the specification of x402 v2, and why: "we", or "open" where the
list has a point and the service does not follow it yet. NOT_JUDGED are checks to which
the list gives no verdict, with what there is to say beside what the list says."""

NO_HEADERS = ("x402 v2 has one header, PAYMENT-REQUIRED, with base64 JSON; the list wants X-Payment-Amount and four more, "
              "which neither version of the specification has")
NO_OATR = "an OATR attestation is not a part of x402 v2; the service has signed receipts, a did.json and signed origins"

FAILS = {
    "R2": ("we", "the second answer is the stored one, and nothing is settled: R14, R20b and R23 of the same list ask for it, and so does the draft §5.3.5"),
    "R5": ("open", "the service believes a success that names a transaction at any status; the documented answer of /settle is a 2xx, and doubt would cost one resend"),
    "R15": ("we", "the offer declares paymentFlow upfront, for which R19 and §6.1 ask to settle first; the payer is owed the answer and gets it by the same request"),
    "R18": ("open", "nothing is served before it is final, and then once; but the 503 does not name the transaction that the facilitator named"),
    "X4-001": ("we", NO_HEADERS),
    "X4-004": ("we", NO_HEADERS),
    "X4-017": ("we", "X-Request-Id is a random name for a request, which support needs; it says nothing about the service"),
    "X4-021": ("we", NO_OATR),
    "X4-022": ("we", NO_OATR),
    "X4-023": ("we", NO_OATR),
    "X4-055": ("we", "the body of a 402 has the offer, which every 402 of x402 may have; no other payment follows from it"),
    "MCP-008": ("we", "the one without a reply is a notification, which JSON-RPC 2.0 forbids to answer: 202, as MCP's transport has it"),
    **{check + era: ("we", why) for era in ("", " (2026-07-28)") for check, why in (
        ("MCP-014", "the URL is https://{domain}/, which says what the tool asks; nothing is to be fetched from it"),
        ("MCP-018", "it is refused with 413 and the connection is closed before 10 MB were read; the list's client goes on writing and misses the answer"),
    )},
}

FAILS.update({
    **{"server-stateless: sep-2575-" + check: ("we", "it needs tools for diagnosis, which a server for money does not have") for check in (
        "server-rejects-undeclared-capability", "missing-capability-http-400", "http-server-no-independent-requests-on-stream", "server-no-log-without-loglevel")},
    **{"caching: sep-2549-%s-caching-hints" % what: ("we", "there are no prompts and no resources, and none are declared")
       for what in ("prompts-list", "resources-list", "resources-templates-list")},
})

UNASKED = "x402 v2 has no GET /reconcile at a facilitator: the service holds, and sends the identical authorization again"

NOT_JUDGED = {
    "R11f": "", "R22": "",
    **{mode + who: UNASKED for who in (", same signature", ", new signature")
       for mode in ("reconcile_unavailable", "reconcile_soft_404", "reconcile_oversized", "reconcile_truncated")},
    **{"X4-%03d" % n: "" for n in (7, 11, 42, 56, 57)},
    **{"MCP-RC-%03d" % n: "" for n in range(1, 13)},
    **{"MCP-RC-%03d (2026-07-28)" % n: "" for n in (2, 3, 4, 5, 6, 8, 9, 10, 11, 12)},
    **{"MCP-%03d%s" % (n, era): "" for era in ("", " (2026-07-28)") for n in (6, 7, 15, 17, 21, 22)},
}
