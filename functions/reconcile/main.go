// The scheduled reconciler as a Lambda function. It decides, by evidence, about the payments
// that requests left in doubt.
package main

import "github.com/hostfacts/hostfacts/pkg/boot"

func main() { boot.Reconcile() }
