// Package boot turns the environment into a running function: configuration,
// wired dependencies, the Lambda runtime. It is the only package that reads
// the environment, and the only one that knows that it runs on Lambda.
//
// Every fault of the configuration is reported at once, at init, in words that
// name the variable.
package boot
