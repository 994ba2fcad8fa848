// Command reconcile is the scheduled reconciler as a Lambda function. It looks for evidence
// about the payments that requests left in doubt, and decides by this evidence which of them
// are paid.
package main

import "github.com/hostfacts/hostfacts/pkg/boot"

func main() { boot.Reconcile() }
