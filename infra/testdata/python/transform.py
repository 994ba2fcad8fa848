"""Prints what CloudFormation's serverless transform makes of templates.

usage: transform.py NAME=VALUE... TEMPLATE

The values are of the template's parameters. The translator is the one that AWS
runs; it asks nobody. CodeUri may be local, as sam package would replace it.
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


def main(arguments):
    *pairs, path = arguments
    with open(path, encoding="utf-8") as f:
        template = yaml_parse(f.read())
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function" and isinstance(resource["Properties"]["CodeUri"], str):
            resource["Properties"]["CodeUri"] = "s3://bucket/key"
    values = {name: p["Default"] for name, p in template.get("Parameters", {}).items() if "Default" in p}
    values.update(pair.split("=", 1) for pair in pairs)
    try:
        out = transform(template, values, NoManagedPolicies())
    except InvalidDocumentException as e:
        sys.exit("\n".join(cause.message for cause in e.causes))
    json.dump(out, sys.stdout)


main(sys.argv[1:])
