"""Prints what CloudFormation's serverless transform makes of templates, one a line.

usage: transform.py NAME=VALUE... TEMPLATE [NAME=VALUE... TEMPLATE]...

The values are of the parameters of the template behind them. The translator is the
one that AWS runs; it asks nobody. CodeUri may be local, as sam package would replace
it.
"""

import json
import sys

from samtranslator.public.exceptions import InvalidDocumentException
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse


class NoManagedPolicies:
    """The template names no managed policy."""

    def load(self):
        return {}


def transformed(path, given):
    with open(path, encoding="utf-8") as f:
        template = yaml_parse(f.read())
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function" and isinstance(resource["Properties"]["CodeUri"], str):
            resource["Properties"]["CodeUri"] = "s3://bucket/key"
    values = {name: p["Default"] for name, p in template.get("Parameters", {}).items() if "Default" in p}
    values.update(given)
    try:
        return transform(template, values, NoManagedPolicies())
    except InvalidDocumentException as e:
        sys.exit("\n".join(cause.message for cause in e.causes))


def main(arguments):
    given = {}
    for argument in arguments:
        name, is_value, value = argument.partition("=")
        if is_value:
            given[name] = value
            continue
        print(json.dumps(transformed(argument, given)))
        given = {}


main(sys.argv[1:])
