// Package samcheck holds template.yaml, and what the CDK app makes of it,
// against the tools that a deployment goes through: cfn-lint, the SAM
// translator, sam validate and sam build, without credentials; against cdk-nag; and
// on moto, an emulator of AWS, which creates the stacks and restores the ledger. It
// is tests and nothing else.
//
// The tools are Python: they are installed once into .venv beside this file,
// by the versions of requirements.txt.
//
// sam local invoke needs Docker and is not run here. make local-invoke runs
// the same event through the same binary without it, and so does the suite in
// infra.
package samcheck
