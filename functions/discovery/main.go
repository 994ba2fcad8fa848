// Command discovery is the Lambda function that serves the static documents and answers
// requests for unknown paths.
package main

import "github.com/hostfacts/hostfacts/pkg/boot"

func main() { boot.Documents() }
