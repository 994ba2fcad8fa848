"""Stands for npx aws-cdk: carries out its command deploy, as the CDK's command line does.

It runs the app of the folder that it is called in, with the context of its -c, puts the
template where CloudFormation finds it, and makes and carries out a change set. What it leaves
out are the assets. A parameter keeps its value, or has that of the variable HIDDEN_<NAME>, as
--parameters would give it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import boto3


def main(arguments):
    if arguments[:1] != ["--yes"] or not arguments[1].startswith("aws-cdk@") or arguments[2:5] != ["deploy", "--require-approval", "never"]:
        sys.exit(f"npx {arguments} is not what this stands for")
    rest = arguments[5:]
    if rest[::2] != ["-c"] * (len(rest) // 2):
        sys.exit(f"{rest} are not all contexts")
    context = dict(pair.split("=", 1) for pair in rest[1::2])
    out = tempfile.mkdtemp()
    environment = {**os.environ, "CDK_OUTDIR": out, "CDK_CONTEXT_JSON": json.dumps(context)}
    subprocess.run(["go", "run", "."], check=True, env=environment)
    (path,) = pathlib.Path(out).glob("*.template.json")
    stack = path.name.removesuffix(".template.json")
    deploy(stack, path.read_text(encoding="utf-8"))


def deploy(stack, template):
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    boto3.client("s3").put_object(Bucket="code-of-functions", Key=stack, Body=template.encode())
    cloudformation = boto3.client("cloudformation")
    try:
        had = {p["ParameterKey"] for p in cloudformation.get_template_summary(StackName=stack)["Parameters"]}
        kind = "UPDATE"
    except cloudformation.exceptions.ClientError:
        had, kind = set(), "CREATE"
    given = []
    for name in json.loads(template)["Parameters"]:
        if name in had:
            given.append({"ParameterKey": name, "UsePreviousValue": True})
        elif "HIDDEN_" + name in os.environ:
            given.append({"ParameterKey": name, "ParameterValue": os.environ["HIDDEN_" + name]})
    change_set = cloudformation.create_change_set(
        StackName=stack, ChangeSetName="cdk-deploy-change-set", ChangeSetType=kind, TemplateURL=f"{endpoint}/code-of-functions/{stack}",
        Parameters=given, Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"])["Id"]
    cloudformation.get_waiter("change_set_create_complete").wait(ChangeSetName=change_set, StackName=stack)
    cloudformation.execute_change_set(ChangeSetName=change_set, StackName=stack)
    cloudformation.get_waiter(f"stack_{kind.lower()}_complete").wait(StackName=stack)


main(sys.argv[1:])
