"""The mutants: conditions that are broken one at a time, each of which a test must notice.

    mutants.py [name ...]

Each file mutants/NAME.toml lists the mutants of some packages: what the change means, the
file, a text that occurs in it once, what stands in its place, and the arguments of the
go test that must fail. The tree is not touched: go test reads the changed file by -overlay."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def mutants(names=()):
    """The mutants of the named files, or of all, each with the name of its file as its room."""
    files = [HERE / "mutants" / (name + ".toml") for name in names] or sorted(HERE.glob("mutants/*.toml"))
    return [dict(m, room=file.stem) for file in files for m in tomllib.loads(file.read_text())["mutant"]]


def verdict(mutant):
    """killed, survived, or why the mutant is not one; and what go test printed."""
    source = ROOT / mutant["file"]
    text = source.read_text() if source.exists() else ""
    if text.count(mutant["old"]) != 1:
        return "occurs %d times" % text.count(mutant["old"]), ""
    with tempfile.TemporaryDirectory() as folder:
        changed, overlay = pathlib.Path(folder, source.name), pathlib.Path(folder, "overlay.json")
        changed.write_text(text.replace(mutant["old"], mutant["new"]))
        overlay.write_text(json.dumps({"Replace": {str(source): str(changed)}}))
        command = ["go", "test", *mutant["test"].split(), "-vet=off", "-count=1", "-timeout=5m"]  # -C stands first
        # The programs that a suite has built have the mutant too, and are kept apart.
        flags = os.environ.get("GOFLAGS", "") + f" -overlay={overlay}"
        environment = os.environ | {"GOFLAGS": flags.strip(), "HOSTFACTS_PROGRAMS": folder}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace")
    printed = done.stdout + done.stderr
    if done.returncode == 0:
        return "no test ran" if "[no tests to run]" in printed else "survived", printed
    # A mutant that does not compile proves nothing; a test that hangs has noticed it.
    noticed = re.search(r"^\s*--- FAIL|^panic: |^fatal error: ", printed, re.M)
    return ("killed" if noticed else "does not run"), printed


def report(mutant, result):
    """One line for each mutant, and the end of what was printed where it is not killed."""
    kind, printed = result
    print("%-14s %-12s %s: %s" % (kind, mutant["room"], mutant["file"], mutant["what"]), flush=True)
    if kind != "killed":
        print("    go test " + mutant["test"], *printed.splitlines()[-8:], sep="\n    ", flush=True)


def play(names=()):
    """Plays the mutants, two at a time, and gives each with its verdict, in the files' order."""
    chosen, kinds = mutants(names), []
    with concurrent.futures.ThreadPoolExecutor(2) as two:
        for mutant, result in zip(chosen, two.map(verdict, chosen)):
            report(mutant, result)
            kinds.append(result[0])
    return list(zip(chosen, kinds))


if __name__ == "__main__":
    played = play(sys.argv[1:])
    alive = [m for m, kind in played if kind != "killed"]
    print("%d mutants, %d killed" % (len(played), len(played) - len(alive)))
    sys.exit(1 if alive else 0)
