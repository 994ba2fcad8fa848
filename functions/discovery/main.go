// Every static document, and the response to unknown paths, as a Lambda function.
package main

import "github.com/hostfacts/hostfacts/pkg/boot"

func main() { boot.Documents() }
