"""Prints for types of resources which of their properties cannot be changed.

usage: replaced.py TYPE...

CloudFormation makes a new resource when one of them has another value. The schemas are
those that AWS publishes, as cfn-lint has them. A property is a path, such as
["Properties", "Description"] without its first element.
"""

import json
import sys

from cfnlint.schema import PROVIDER_SCHEMA_MANAGER


def main(types):
    found = {}
    for name in types:
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", name).schema
        found[name] = [path.removeprefix("/properties/").split("/") for path in schema.get("createOnlyProperties", [])]
    json.dump(found, sys.stdout)


main(sys.argv[1:])
