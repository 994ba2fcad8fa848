"""Answers the parameter questions of sam deploy --guided, and prints the values.

usage: guided.py TEMPLATE BLANK NAME=VALUE...

The SAM CLI's own code asks. A hidden question is answered with BLANK, the
others by their default or by what is given; there is one answer for each, so
that one that is not taken is an error in the end.
"""

import contextlib
import json
import sys

import click.termui
from samcli.commands._utils.template import get_template_parameters
from samcli.commands.deploy.guided_context import GuidedContext


def main(template, blank, *pairs):
    given = dict(pair.split("=", 1) for pair in pairs)
    parameters = get_template_parameters(template_file=template)
    answers = iter([blank if p.get("NoEcho") else given.get(name, "") for name, p in parameters.items()])

    def answer(_):
        for a in answers:
            return a
        raise EOFError

    click.termui.visible_prompt_func = click.termui.hidden_prompt_func = answer
    context = GuidedContext.__new__(GuidedContext)
    with contextlib.redirect_stdout(sys.stderr):
        values = context.prompt_parameters(parameters, {}, "", "")
    json.dump({name: v["Value"] for name, v in values.items()}, sys.stdout)


main(*sys.argv[1:])
