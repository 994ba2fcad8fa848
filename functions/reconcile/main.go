// The scheduled reconciler as a Lambda function: it settles by evidence what
// requests left in doubt.
package main

import "github.com/hostfacts/hostfacts/pkg/boot"

func main() { boot.Reconcile() }
