// Command echo is a function for the tests of invoke. Its event tells it what to do.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"slices"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(event struct{ Do string }) (any, error) {
		switch event.Do {
		case "env":
			body, err := json.Marshal(slices.Sorted(slices.Values(os.Environ())))
			return map[string]any{"statusCode": 200, "headers": map[string]string{"content-type": "text/plain"}, "body": string(body)}, err
		case "fail":
			return nil, errors.New("as asked")
		case "exit":
			os.Exit(4)
		}
		return json.RawMessage(event.Do), nil // any other text is the answer
	})
}
