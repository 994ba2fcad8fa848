package discovery

import "github.com/hostfacts/hostfacts/pkg/catalog"

// manifest is the payment manifest of spec §2.10, served at /.well-known/x402.
type manifest struct {
	Version         int        `json:"version"`
	Resources       []string   `json:"resources"`
	Endpoints       []endpoint `json:"endpoints"`
	Instructions    string     `json:"instructions"`
	OwnershipProofs []string   `json:"ownershipProofs"`
}

// endpoint is one priced path of the manifest.
type endpoint struct {
	URL         string `json:"url"`
	Method      string `json:"method"`
	Description string `json:"description"`
	Price       string `json:"price"`
	Amount      string `json:"amount"`
	Network     string `json:"network"`
	Asset       string `json:"asset"`
	PayTo       string `json:"payTo"`
	Scheme      string `json:"scheme"`
	QueryParams object `json:"queryParams"`
	Example     string `json:"example"`
}

// manifestOf lists every operation as an endpoint, and all but the smoke test
// as a resource: resources are what crawlers put on sale.
func manifestOf(v *view) manifest {
	m := manifest{
		Version:         catalog.ManifestVersion,
		Resources:       []string{},
		Endpoints:       []endpoint{},
		Instructions:    v.Instructions,
		OwnershipProofs: append([]string{}, v.Site.OwnershipProofs...),
	}
	for _, op := range v.operations {
		terms := v.Site.Terms.Requirements(op.Amount)
		e := endpoint{
			URL: v.Site.Origin + op.Path, Method: catalog.Method, Description: op.Description,
			Price: op.Price(), Amount: terms.Amount, Network: terms.Network, Asset: terms.Asset,
			PayTo: terms.PayTo, Scheme: terms.Scheme, QueryParams: object{}, Example: op.ExampleURL(v.Site.Origin),
		}
		for _, p := range op.Params {
			e.QueryParams = append(e.QueryParams, member{p.Name, defaultOrExample(p)})
		}
		m.Endpoints = append(m.Endpoints, e)
		if op.Kind != catalog.SmokeTest {
			m.Resources = append(m.Resources, e.URL)
		}
	}
	return m
}
