"""Creates and deletes stacks on an emulator of AWS, and prints what there is then.

usage: stack.py URL create NAME TEMPLATE [NAME=VALUE...]
       stack.py URL delete NAME

TEMPLATE is what the transform made. It goes through S3, because it is too long to
be sent with the call.
"""

import io
import json
import sys
import zipfile

import boto3


def main(url, verb, name, *arguments):
    def client(service):
        return boto3.client(service, endpoint_url=url, aws_access_key_id="local", aws_secret_access_key="local")

    formation, s3 = client("cloudformation"), client("s3")
    if verb == "create":
        path, *pairs = arguments
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("bootstrap", "")
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="key", Body=code.getvalue())
        with open(path, "rb") as template:
            s3.put_object(Bucket="bucket", Key=name, Body=template.read())
        # What "cdk bootstrap" leaves, and the CDK's template looks for.
        client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String", Overwrite=True)
        parameters = [dict(zip(("ParameterKey", "ParameterValue"), pair.split("=", 1))) for pair in pairs]
        formation.create_stack(
            StackName=name, TemplateURL=f"https://bucket.s3.amazonaws.com/{name}", Parameters=parameters, Capabilities=["CAPABILITY_IAM"]
        )
    else:
        formation.delete_stack(StackName=name)
    stacks = {s["StackName"]: s["StackStatus"] for s in formation.list_stacks()["StackSummaries"]}
    functions = {
        f["FunctionName"]: f["Environment"]["Variables"]
        for page in client("lambda").get_paginator("list_functions").paginate()
        for f in page["Functions"]
    }
    json.dump({"Stacks": stacks, "Tables": client("dynamodb").list_tables()["TableNames"], "Functions": functions}, sys.stdout)


main(*sys.argv[1:])
