"""make prove: what is proven outside CI, because it needs the newest of what others
publish, or takes too long. It runs every part, or those that are named, and fails when a part does, or when
a check's verdict is not the one that verdicts.py expects.

    prove.py [linters] [lists] [printed] [lighthouse] [mutants] [campaign]

linters holds template.yaml to the newest SAM CLI and cfn-lint. lists runs the conformance
lists of others against the service, or as its facilitator. printed types what /docs prints,
with the registries that readers have. lighthouse marks the pages for people, mutants breaks
conditions one at a time, each of which a test must notice, and campaign plays
a million random schedules of faults over the payment layer. A further part is a function in PARTS:
it returns its section of table.md, and a list of what failed."""

import concurrent.futures
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import mutants as broken
import rules
import verdicts
from stage import DNS, PING, ROOT, Service, Signer, ask, pay, wallet

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.executable).parent


def output(*command, **settings):
    """What a program of others prints. It knows of this machine what is in settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": tempfile.mkdtemp(prefix="home-"), "NO_PROXY": "127.0.0.1", **settings}
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=environment, capture_output=True, text=True)


def conformance():
    """x402-conformance: P1 to P7 of every operation, S0 to S4 of the play-money facilitator."""
    with Service() as service:
        catalog = json.loads(ask(service, "/v1/catalog").body)
        urls = [service.url + tool["path"] for tool in catalog["tools"]] + [service.url + PING]
        seen = {}
        for command in (["resource", *sorted(set(urls))], ["live", service.facilitator]):
            for result in json.loads(output(BIN / "x402conf", *command).stdout)["results"]:
                for check in result["checks"]:
                    name, title = check["check"].split(" ", 1)
                    seen.setdefault((name, title), []).append(check["pass"])
    return [(name, title, "pass" if all(oks) else "fail", "%d of %d" % (sum(oks), len(oks))) for (name, title), oks in sorted(seen.items())]


# How long the battery's facilitator takes for silence, in seconds: as long as the service
# waits for a settlement.
SILENCE = 15


def buy(how, into):
    """The client of the battery: one purchase from a service with the battery's facilitator.
    make pay sends one signature while the service says that it may; the other makes a new signature
    for the same Idempotency-Key whenever it has no answer, up to four times."""
    key, heard = wallet(), []
    with Service(os.environ["FACILITATOR_URL"]) as service:
        if how == "same signature":
            done = pay(["-key-file", key, "-yes", service.url + PING], service.folder)
            heard = re.findall(r"^status: +(\d+)", done.stderr, re.M)
        else:
            with Signer(service) as signer:
                while len(heard) < 4 and heard[-1:] != ["200"]:
                    heard.append(str(ask(service, PING, signer.sign(PING, key), **{"Idempotency-Key": "one-purchase-0123"})))
    pathlib.Path(into).write_text(", ".join(heard))


def battery():
    """hostile-facilitator, as the facilitator of the service, in each of its modes."""
    from hostile_facilitator.adapter import ALL_MODES, run_client_command

    def mode(mode, how):
        with tempfile.NamedTemporaryFile("r") as heard:
            r = run_client_command([sys.executable, __file__, "buy", how, heard.name], mode=mode, client_timeout_s=SILENCE, run_timeout_s=300)
            said = heard.read()
        what = {"pass": "pass", "not_exercised": "n/a"}.get(r["verdict"], "fail")
        if not said.endswith("200") or r["distinct"] != 1:
            what = "fail"  # no more than one settlement is half of it: the purchase has to be answered
        return (mode + ", " + how, "", what, "%s; payments moved: %d, calls of /settle: %d" % (said, r["distinct"], r["settle_calls"]))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(mode, *zip(*[(m, how) for how in ("same signature", "new signature") for m in ALL_MODES])))


def harness(name, *arguments, era=""):
    """One of the harnesses of agent-security-harness. SERVICE is the service's origin."""
    with Service() as service, tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        done = output(BIN / "agent-security", "test", name, *(a.replace("SERVICE", service.url) for a in arguments), "--report", report.name)
        results = json.loads(report.read() or "{}").get("results")
    if not results:
        raise RuntimeError("agent-security-harness: %s\n%s" % (done.stdout, done.stderr))
    rows = []
    for r in results:
        about = r["details"].removeprefix("INCONCLUSIVE - ").removeprefix("Not applicable: ")
        about = re.sub(r" in \d+\.\d+s", "", about).split(". ")[0]
        unjudged = r.get("not_evaluated") or r["details"].startswith("INCONCLUSIVE")
        rows.append((r["test_id"] + era, r["name"], "pass" if r["passed"] else "n/a" if unjudged else "fail", "" if r["passed"] else about))
    return sorted(rows)


# What of the official suite is for a server with tools, and the revision that it is played
# by where it has several.
SCENARIOS = (
    ("server-initialize", ""), ("ping", ""), ("tools-list", "2025-11-25"), ("tools-list", "2026-07-28"), ("server-sse-multiple-streams", "2026-07-28"),
    ("input-required-result-unsupported-methods", ""), ("http-header-validation", ""), ("server-stateless", ""), ("caching", ""), ("dns-rebinding-protection", ""),
)


def suite():
    """The official conformance suite of the Model Context Protocol, which needs the Node
    that it is installed with."""
    programs, seen = ROOT / "infra/clients/node_modules/.bin", {}
    with Service() as service, tempfile.TemporaryDirectory() as folder:
        for scenario, revision in SCENARIOS:
            into = pathlib.Path(folder, scenario + revision)
            output(programs / "node", programs / "conformance", "server", "--url", service.url + "/mcp", "--scenario", scenario, "-o", into,
                   *(("--spec-version", revision) if revision else ()))
            for report in into.glob("*/checks.json"):
                for check in json.loads(report.read_text()):
                    if check["status"] not in ("INFO", "SKIPPED"):
                        name = scenario + (" (%s)" % revision if revision else "") + ": " + check["id"]
                        seen.setdefault(name, []).append(check["status"] == "SUCCESS")
    return [(name, "", "pass" if all(oks) else "fail", "%d of %d" % (sum(oks), len(oks))) for name, oks in sorted(seen.items())]


def lists():
    """The conformance lists. A verdict that is not the one of verdicts.py has failed."""
    version = {p: "%s %s" % (p, importlib.metadata.version(p)) for p in ("x402-conformance", "hostile-facilitator", "agent-security-harness")}
    pinned = json.loads((ROOT / "infra/clients/package.json").read_text())["dependencies"]
    security, era = version["agent-security-harness"], "2026-07-28"
    # With how many checks each has: one that is missing has no verdict that could change.
    sections = [
        (version["x402-conformance"] + ": `x402conf resource` for each operation, `x402conf live` for the play-money facilitator", 11, conformance()),
        (version["x402-conformance"] + ": the rules R, played by `infra/prove/rules.py`", 28, rules.play_all()),
        (version["hostile-facilitator"] + ": as the service's facilitator", 20, battery()),
        (security + ": `agent-security test x402`", 54, harness("x402", "--url", "SERVICE", "--paid-path", PING)),
        (security + ": `agent-security test mcp`", 34, harness("mcp", "--url", "SERVICE/mcp")),
        (security + ": `agent-security test mcp --protocol-version " + era + "`", 34,
         harness("mcp", "--url", "SERVICE/mcp", "--protocol-version", era, era=" (%s)" % era)),
        ("@modelcontextprotocol/conformance " + pinned["@modelcontextprotocol/conformance"] + ": for a server with tools", 51, suite()),
    ]
    text, failed, met = LISTS, [], set()
    for title, number, rows in sections:
        if len(rows) != number:
            failed.append("%s has %d checks, not %d" % (title, len(rows), number))
        count = [sum(r[2] == v for r in rows) for v in ("pass", "fail", "n/a")]
        text += "\n### %s\n\n%d checks: %d pass, %d fail, %d not judged.\n\n| Check | Verdict | Right | Seen |\n|---|---|---|---|\n" % (title, len(rows), *count)
        for name, what, verdict, seen in rows:
            met.add(name)
            wanted = "fail" if name in verdicts.FAILS else "n/a" if name in verdicts.NOT_JUDGED else "pass"
            if verdict != wanted:
                failed.append("%s %s: %s, not %s (%s)" % (name, what, verdict, wanted, seen))
            right, why = verdicts.FAILS.get(name, ("", verdicts.NOT_JUDGED.get(name, "")))
            if why and name.startswith(("X4", "MCP")):
                seen = ""  # why answers the sentence of the list
            cells = (name + " " + what).strip(), verdict, right, "; ".join(filter(None, (seen, why)))
            text += "| %s |\n" % " | ".join(c.replace("|", "\\|") for c in cells)
    failed += ["%s is in verdicts.py, and in no list" % n for n in {*verdicts.FAILS, *verdicts.NOT_JUDGED} - met]
    return text, failed


LISTS = """## Conformance lists

Of a check that fails, *Right* has who is, by the specification of x402 v2: we, or *open*
where the list has a point. A verdict that is not the one of `verdicts.py` fails `make
prove`. The service runs alone on loopback with play money, without a node of a chain; its
resolvers do not answer.

The probe of the rules R is an npm package that could not be had, so that they are played
by the text of the list's README. The x402 harness of agent-security-harness sends
`X-Payment-Authorization`, which x402 does not have, and no signature: its passes say that
nothing is served unpaid, and no more.
"""


def linters():
    """The newest SAM CLI and cfn-lint that PyPI has must pass template.yaml, as the pinned
    ones do (infra/testbed/deployed/testdata/python/requirements.txt, TestValidate and TestLint)."""
    newest = ROOT / "build" / "newest" / "bin"
    for command in ([sys.executable, "-m", "venv", "--clear", newest.parent],
                    [newest / "pip", "install", "--quiet", "--disable-pip-version-check", "aws-sam-cli", "cfn-lint"]):
        if (done := output(*command)).returncode:
            return "", [done.stderr]
    text, failed = "## Newest linters\n\n| Command | Newest | Pinned | template.yaml |\n|---|---|---|---|\n", []
    pins = (ROOT / "infra/testbed/deployed/testdata/python/requirements.txt").read_text()
    for name, command in ("aws-sam-cli", ("sam", "validate", "--lint")), ("cfn-lint", ("cfn-lint", "template.yaml")):
        found = re.search(r"^Version: (\S+)", output(newest / "pip", "show", name).stdout, re.M)[1]
        pinned = re.search(r"^%s==(\S+)" % name, pins, re.M)[1]
        done = output(newest / command[0], *command[1:], AWS_DEFAULT_REGION="us-east-1", SAM_CLI_TELEMETRY="0")
        if done.returncode:
            failed.append("%s %s:\n%s%s" % (name, found, done.stdout, done.stderr))
        text += "| `%s` | %s | %s | %s |\n" % (" ".join(command), found, pinned, "fail" if done.returncode else "pass")
    return text, failed


def played(title, *arguments):
    """Tests of Go that take too long for CI. Their own lines say what was played."""
    begun = time.monotonic()
    done = subprocess.run(["go", "test", "-vet=off", "-count=1", "-timeout", "0", "-v", *arguments], cwd=ROOT, capture_output=True, text=True)
    commit = subprocess.run(["git", "log", "-1", "--format=%h of %cs"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    version = subprocess.run(["go", "version"], capture_output=True, text=True).stdout.split()[2]
    text = "## %s\n\n`go test %s` on %s, %s: %s in %d s.\n" % (
        title, " ".join(arguments), commit, version, "fail" if done.returncode else "pass", time.monotonic() - begun)
    return text, [done.stdout[-8000:] + done.stderr] if done.returncode else []


def campaign():
    """Fifty times as many random schedules of faults as CI plays."""
    return played("A million schedules", "./pkg/x402", "-run", "^TestCampaign$", "-campaign.n=1000000")


def mutants():
    """The conditions of mutants/*.toml, broken one at a time."""
    played, text = broken.play(), ""
    for mutant, kind in played:
        text += "| `%s` | %s | `%s` | %s |\n" % (mutant["file"], mutant["what"], mutant["test"], kind)
    return MUTANTS % len(played) + text, [m["file"] + ": " + m["what"] for m, kind in played if kind != "killed"]


MUTANTS = """## Mutants

%d conditions are broken, one at a time (`infra/prove/mutants/*.toml`). The run of `go test` in
the third column must fail.

| File | With the change | Test | Verdict |
|---|---|---|---|
"""


def printed():
    """The commands and programs of /docs in empty folders, as CI types them, but with the
    registries that readers have: as they are printed, and with the newest versions in place
    of the printed ones."""
    text, failed = "", []
    for registries, title in ("public", "What is printed, with the public registries"), ("newest", "What is printed, with the newest versions"):
        section, wrong = played(title, "./infra/clients", "-run", "^TestPayingPrograms$", "-registries=" + registries)
        text += ("\n" if text else "") + section
        failed += wrong
    return text, failed


LIGHTHOUSE = "12.8.2"  # the last that runs on Node 20


def run_lighthouse(folder, chromium, url):
    """One report of Lighthouse. Some runs lose Chromium's trace (NO_NAVSTART) and have no score: they are repeated."""
    report = folder / "report.json"
    for _ in range(4):
        # Not from its standard output: a pipe loses what is not written when the process ends.
        report.unlink(missing_ok=True)
        output("node", folder / "node_modules/lighthouse/cli/index.js", url, "--quiet", "--ignore-status-code", "--output=json",
               f"--output-path={report}", "--only-categories=performance,accessibility",
               "--chrome-flags=--headless=new --no-sandbox --disable-gpu", CHROME_PATH=chromium)
        found = json.loads(report.read_text())
        if "runtimeError" not in found:
            return found
    raise RuntimeError(f"Lighthouse measured nothing at {url}: {found['runtimeError']['message']}")


MOST_SHIFT = 0.02


def run_answer(folder, chromium, url):
    """What Lighthouse says of paying on a page, and of the answer that it then shows."""
    done = output("node", HERE / "answer.mjs", chromium, url, folder)
    if done.returncode:
        raise RuntimeError("no answer was measured: " + done.stderr)
    return json.loads(done.stdout)


def lighthouse():
    """Lighthouse's marks for a phone, of the pages that people see: the median of five runs."""
    folder, chromium = ROOT / "build/prove/lighthouse", shutil.which("chromium") or shutil.which("google-chrome")
    subprocess.run(["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", "lighthouse@" + LIGHTHOUSE], check=True)
    text, failed = "", []
    with Service() as service:
        for path in "/docs", DNS:
            runs = [run_lighthouse(folder, chromium, service.url + path) for _ in range(5)]
            middle = sorted(runs, key=lambda r: r["categories"]["performance"]["score"])[2]
            marks = [middle["categories"][c]["score"] for c in ("performance", "accessibility")]
            seen = [middle["audits"][a]["displayValue"].replace("\xa0", " ") for a in ("largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift")]
            text += "| `%s` | %s |\n" % (path, " | ".join(map(str, marks + seen)))
            if marks[0] < 0.95 or marks[1] < 1:
                failed.append("%s: %s (the machine's mark is %d)" % (path, marks, middle["environment"]["benchmarkIndex"]))
        answers = [run_answer(folder, chromium, service.url + PING) for _ in range(5)]
        answer = sorted(answers, key=lambda a: a["shift"])[2]
        text += ANSWER % (PING, answer["accessibility"], answer["blocking"], answer["interaction"], answer["shift"])
        if answer["accessibility"] < 1 or answer["shift"] > MOST_SHIFT:
            failed.append("the answer of %s: %s" % (PING, answer))
    browser = subprocess.run([chromium, "--version"], capture_output=True, text=True).stdout.strip()
    return PAGES % (LIGHTHOUSE, browser, middle["environment"]["benchmarkIndex"]) + text, failed


PAGES = """## The pages on a phone

Lighthouse %s with its mobile settings, %s.
Its mark for this machine is %d; a loaded machine is marked lower, and its pages with it.
Of five runs the one in the middle. Performance must be 0.95 and accessibility 1.

| Page | Performance | Accessibility | Largest paint | Blocking | Shift |
|---|---|---|---|---|---|
"""

ANSWER = """
From the press on "Pay with play money" at `%s` to its answer and receipt, which have no mark for
performance because nothing is loaded: accessibility %s (must be 1), blocking %d ms, longest
interaction %d ms, shift %.3f (at most 0.02). Of five payments the one in the middle.
"""


PARTS = {"linters": linters, "lists": lists, "printed": printed, "lighthouse": lighthouse, "mutants": mutants, "campaign": campaign}

HEAD = "# What is proven outside CI\n\nWritten by `make prove`, part by part.\n"


def keep(name, text):
    """Puts the section of a part into table.md, beside those of the others."""
    table = HERE / "table.md"
    old = re.split(r"<!-- (\w+) -->\n", table.read_text() if table.exists() else "")[1:]
    sections = {**dict(zip(old[::2], (t.strip() + "\n" for t in old[1::2]))), name: text}
    table.write_text("\n".join([HEAD, *("<!-- %s -->\n%s" % (n, sections[n]) for n in PARTS if n in sections)]))


def main(arguments):
    if unknown := set(arguments) - set(PARTS):
        sys.exit("there is no part %s; there are: %s" % (", ".join(unknown), ", ".join(PARTS)))
    failed = []
    with tempfile.TemporaryDirectory(prefix="prove-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        for name in arguments or PARTS:
            print("== " + name, flush=True)
            text, wrong = PARTS[name]()
            failed += wrong
            if text:
                keep(name, text)
    if failed:
        sys.exit("\n".join(["make prove failed:", *failed]))
    print("infra/prove/table.md is written; every verdict is the expected one")


if __name__ == "__main__":
    if sys.argv[1:2] == ["buy"]:
        buy(*sys.argv[2:])
    else:
        main(sys.argv[1:])
