// Command read reads two answers with the client that ogen generates from the service's
// description. The second answer is a charged error with a status that the description does
// not declare. For such an answer, the client returns an error that has the whole response.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ogen-go/ogen/validate"

	"read/api"
)

// refusal has the fields of an error response.
type refusal struct {
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Charged bool   `json:"charged"`
}

func main() {
	client, err := api.NewClient(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	answer, err := client.DNSLookup(context.Background(), api.DNSLookupParams{
		Domain: "example.com", Type: api.NewOptDNSLookupType(api.DNSLookupTypeMX), PAYMENTSIGNATURE: api.NewOptString(os.Getenv("SIGNATURE")),
	})
	if err != nil {
		log.Fatal(err)
	}
	found, ok := answer.(*api.DnsResultHeaders)
	if !ok {
		log.Fatalf("not a result: %+v", answer)
	}
	var exchanges []string
	for _, record := range found.Response.Records {
		if mail, ok := record.GetMxRecord(); ok {
			exchanges = append(exchanges, mail.Exchange)
		}
	}
	_, err = client.DNSLookup(context.Background(), api.DNSLookupParams{
		Domain: "gone.example.com", PAYMENTSIGNATURE: api.NewOptString(os.Getenv("SECOND_SIGNATURE")),
	})
	gone, err := undeclared(err)
	if err != nil {
		log.Fatal(err)
	}
	said, err := json.Marshal(map[string]any{"result": &found.Response, "exchanges": exchanges, "gone": gone})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", said)
}

// undeclared returns the error in a response whose status the description does not declare.
func undeclared(err error) (refusal, error) {
	var unexpected *validate.UnexpectedStatusCodeError
	if !errors.As(err, &unexpected) {
		return refusal{}, fmt.Errorf("not a status that is not declared: %w", err)
	}
	var body struct{ Error refusal }
	err = json.NewDecoder(unexpected.Payload.Body).Decode(&body)
	body.Error.Status = unexpected.StatusCode
	return body.Error, err
}
