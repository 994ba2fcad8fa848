package registry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestOdd checks answers that break the rules of RDAP in ways in which some registries do. The
// meaning of these answers is clear, so they must give the same results as correct answers.
func TestOdd(t *testing.T) {
	const (
		registrant = `{"objectClassName":"entity","roles":["registrar"],"publicIds":[{"type":"IANA Registrar ID","identifier":"292"}],` +
			`"vcardArray":["vcard",[["version",{},"text","4.0"],["fn",{},"text","Reg Inc."]]]}`
		expiry = `{"eventAction":"expiration","eventDate":"2029-01-02T03:04:05Z"}`
		server = `{"objectClassName":"nameserver","ldhName":"ns1.x.com"}`
		named  = `"registrar":{"name":"Reg Inc.","iana_id":"292"}`
	)
	type row struct{ answer, want string }
	eachStage(t, map[string]row{
		"entities as one object":     {domainJSON(`"entities":` + registrant), named},
		"nested in one object":       {domainJSON(`"entities":{"roles":"reseller","entities":` + registrant + `}`), named},
		"events as one object":       {domainJSON(`"events":` + expiry), `"expires_at":"2029-01-02T03:04:05Z"`},
		"nameservers as one object":  {domainJSON(`"nameservers":` + server), `"nameservers":["ns1.x.com"]`},
		"publicIds as one object":    {domainJSON(`"entities":[` + strings.NewReplacer("[{", "{", "}]", "}").Replace(registrant) + `]`), named},
		"secureDNS in a list":        {domainJSON(`"secureDNS":[{"delegationSigned":true}]`), `"dnssec":true`},
		"a blank behind ldhName":     {domainJSONOf("example.com ", `"handle":"H1"`), `"handle":"H1"`},
		"blanks around ldhName":      {domainJSONOf(` example.com.\n`, `"handle":"H1"`), `"handle":"H1"`},
		"a blank behind a server":    {domainJSON(`"nameservers":[{"ldhName":"NS1.X.COM. "}]`), `"nameservers":["ns1.x.com"]`},
		"a tab in a string":          {domainJSON("\"handle\":\"H1\"", "\"remarks\":[{\"description\":[\"a\tb\nc\"]}]"), `"handle":"H1"`},
		"control bytes in a name":    {domainJSON("\"handle\":\"H\x001\""), `"handle":"H\u00001"`},
		"a tab behind a backslash":   {domainJSON("\"handle\":\"H\\\\\t1\""), `"handle":"H\\\t1"`},
		"tabs between tokens":        {strings.ReplaceAll(domainJSON(`"handle":"H1"`), ",", "\t,\n\t"), `"handle":"H1"`},
		"a number beside one object": {domainJSON(`"events":[1,` + expiry + `,null]`), `"expires_at":"2029-01-02T03:04:05Z"`},
	}, func(t *testing.T, s *stage, c row) {
		s.addRegistry("rdap.registry.com", respondOK(c.answer))
		got, err := s.lookup(t.Context(), "example.com", "")
		if text := string(testbed.Must(json.Marshal(got))); err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%s\ngave %s, %v\nwant %s", c.answer, text, err, c.want)
		}
	})
}
