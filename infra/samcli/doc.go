// Package samcli tests template.yaml and README with the SAM CLI as pip installs it: validation,
// the questions of a guided deployment, the build, and the first deployment. It has only tests.
package samcli
