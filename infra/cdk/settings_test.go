package main

import (
	"debug/elf"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// contextOf returns a function that looks up keys in the values of a CDK context.
func contextOf(values map[string]any) func(*string) any {
	return func(key *string) any { return values[*key] }
}

const (
	facilitatorURL = "https://facilitator.example"
	testSecret     = "arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf"
)

// parseContext returns the settings of a context with the given values. By default, the
// context names a payee and a facilitator, takes the nodes from a parameter, deploys no code,
// and notifies nobody.
func parseContext(values map[string]any) (settings, error) {
	context := map[string]any{"PayTo": boot.LocalPayTo, "FacilitatorUrl": facilitatorURL, ctxNodes: nodesParameter, ctxAssets: assetsNone, ctxEmail: nobody}
	maps.Copy(context, values)
	return parseSettings("../..", contextOf(context))
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := must(parseContext(nil))(t)
	if s.stack != defaultStack || s.budget != defaultBudget || s.retention != defaultRetention || s.domain != "" || s.pageEmail+s.ticketEmail != "" || s.build != "" || !s.reserve {
		t.Errorf("%+v", s)
	}
	// The app replaces every parameter that has a default, except hidden ones.
	want := map[string]any{"PayTo": boot.LocalPayTo, "FacilitatorUrl": facilitatorURL}
	for name, p := range template(t).Parameters {
		if !p.NoEcho && p.Default != nil && want[name] == nil {
			want[name] = *p.Default
		}
	}
	if d := cmp.Diff(want, s.params); d != "" {
		t.Errorf("parameters (-want +got):\n%s", d)
	}
	if s := must(parseContext(map[string]any{"Selling": "no", "FacilitatorUrl": nil}))(t); s.params["Selling"] != "no" {
		t.Errorf("%v", s.params["Selling"])
	}
	// With a domain, the default endpoint is off unless the context says otherwise.
	domain := map[string]any{ctxDomain: "api.example.com", ctxCertificate: "arn:aws:acm:us-east-1:111122223333:certificate/a"}
	if s := must(parseContext(domain))(t); s.params["DefaultEndpoint"] != "no" || s.params["BaseUrl"] != "https://api.example.com" {
		t.Errorf("%v", s.params)
	}
	domain["DefaultEndpoint"] = "yes"
	if s := must(parseContext(domain))(t); s.params["DefaultEndpoint"] != "yes" {
		t.Errorf("%v", s.params)
	}
	// Values may be numbers in cdk.json.
	s = must(parseContext(map[string]any{"RateLimitPerMinute": 20.0, ctxBudget: 12.5}))(t)
	if s.params["RateLimitPerMinute"] != "20" || s.budget != 12.5 {
		t.Errorf("%v, %v", s.params["RateLimitPerMinute"], s.budget)
	}
	// The nodes come from the secret, or from a parameter without a default.
	s = must(parseContext(map[string]any{ctxNodes: nodesSecret, "FacilitatorSecretArn": testSecret}))(t)
	p := section(section(exampleTemplate(t), "Parameters"), "RpcUrl")
	if _, ok := p["Default"]; s.params["RpcUrl"] != "secret" || ok || p["NoEcho"] != true || p["AllowedPattern"] != `^https://[^ ]+$` {
		t.Errorf("RpcUrl is %v or %v", s.params["RpcUrl"], p)
	}
}

// TestListeners checks that somebody is notified of pages and of tickets, unless the context
// says "none". An invalid recipient must be a fault.
func TestListeners(t *testing.T) {
	t.Parallel()
	const tenant, team = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	const channel = "19%3a0123abcd%40thread.tacv2"
	const nobodyHears, noTickets = "alarmEmail is not set, so that nobody would hear of a page", "ticketEmail is not set, so that nobody would hear of a ticket"
	for name, c := range map[string]struct {
		context map[string]any
		want    listeners
		says    string
	}{
		"nobody":               {map[string]any{}, listeners{}, nobodyHears},
		"nobody of pages":      {map[string]any{ctxTickets: "t@example.com"}, listeners{}, nobodyHears},
		"nobody, by intent":    {map[string]any{ctxEmail: nobody}, listeners{}, ""},
		"one for both":         {map[string]any{ctxEmail: "a@example.com"}, listeners{pageEmail: "a@example.com", ticketEmail: "a@example.com"}, ""},
		"one for each":         {map[string]any{ctxEmail: "a@example.com", ctxTickets: "t@example.com"}, listeners{pageEmail: "a@example.com", ticketEmail: "t@example.com"}, ""},
		"pages alone":          {map[string]any{ctxEmail: "a@example.com", ctxTickets: nobody}, listeners{pageEmail: "a@example.com"}, ""},
		"tickets alone":        {map[string]any{ctxEmail: nobody, ctxTickets: "t@example.com"}, listeners{ticketEmail: "t@example.com"}, ""},
		"a telephone":          {map[string]any{ctxPhone: "+4915112345678"}, listeners{}, noTickets},
		"a telephone, a mail":  {map[string]any{ctxPhone: "+4915112345678", ctxTickets: "t@example.com"}, listeners{phone: "+4915112345678", ticketEmail: "t@example.com"}, ""},
		"a service on call":    {map[string]any{ctxURL: "https://events.example/k", ctxTickets: nobody}, listeners{url: "https://events.example/k"}, ""},
		"Slack":                {map[string]any{ctxSlack: "T0123ABCD/C0123ABCD"}, listeners{slack: []string{"T0123ABCD", "C0123ABCD"}}, ""},
		"Teams":                {map[string]any{ctxTeams: tenant + "/" + team + "/" + channel}, listeners{teams: []string{tenant, team, channel}}, ""},
		"a number at home":     {map[string]any{ctxPhone: "0151 12345678"}, listeners{}, "alarmPhone must be"},
		"a URL in the open":    {map[string]any{ctxURL: "http://events.example/k"}, listeners{}, "alarmUrl must be"},
		"a name of a channel":  {map[string]any{ctxSlack: "#ops"}, listeners{}, "slackChannel must be"},
		"two parts of three":   {map[string]any{ctxTeams: tenant + "/" + team}, listeners{}, "teamsChannel must be"},
		"a channel, decoded":   {map[string]any{ctxTeams: tenant + "/" + team + "/19:0123@thread.tacv2"}, listeners{}, "teamsChannel must be"},
		"what is not a mail":   {map[string]any{ctxEmail: "nobody"}, listeners{}, "alarmEmail must be an e-mail address, or none"},
		"a word for the other": {map[string]any{ctxEmail: nobody, ctxTickets: "me"}, listeners{}, "ticketEmail must be an e-mail address, or none"},
	} {
		r := &contextParser{get: contextOf(c.context)}
		got, err := r.listeners(), errors.Join(r.faults...)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if err == nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestSettingsFaults checks that all faults are reported at once, each with the name of the
// setting, and that no error contains a secret.
func TestSettingsFaults(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:acm:us-east-1:111122223333:certificate/c"
	for name, c := range map[string]struct {
		context map[string]any
		says    []string
	}{
		"nothing":               {map[string]any{"PayTo": nil}, []string{"PayTo is not set"}},
		"a wrong payee":         {map[string]any{"PayTo": "me"}, []string{"PayTo does not match"}},
		"a secret":              {map[string]any{"FacilitatorToken": "s3cr3t", "RpcUrl": "https://rpc.example/s3cr3t"}, []string{"FacilitatorToken would stand", "RpcUrl would stand"}},
		"a domain alone":        {map[string]any{ctxDomain: "api.example.com"}, []string{"domain and certificateArn go together"}},
		"a URL as domain":       {map[string]any{ctxDomain: "https://api.example.com", ctxCertificate: arn}, []string{"domain must be"}},
		"no certificate":        {map[string]any{ctxDomain: "api.example.com", ctxCertificate: "mine"}, []string{"certificateArn must be"}},
		"two origins":           {map[string]any{ctxDomain: "api.example.com", ctxCertificate: arn, "BaseUrl": "https://other.example.com"}, []string{"BaseUrl contradicts domain"}},
		"no e-mail address":     {map[string]any{ctxEmail: "ops", ctxTickets: "me"}, []string{"alarmEmail must be", "ticketEmail must be"}},
		"no budget":             {map[string]any{ctxBudget: 0.0}, []string{"budgetUsd must be"}},
		"a fortnight and a day": {map[string]any{ctxRetention: 15.0}, []string{"logRetentionDays must be a number of days, one of"}},
		"half a day":            {map[string]any{ctxRetention: 0.5}, []string{"logRetentionDays must be a number of days, one of"}},
		"perhaps":               {map[string]any{ctxReserve: "perhaps"}, []string{"reserveConcurrency must be true or false"}},
		"a list":                {map[string]any{ctxStack: []any{"a"}}, []string{"stackName must be a string"}},
		"other assets":          {map[string]any{ctxAssets: "docker"}, []string{"assets must be"}},
		"a high rate":           {map[string]any{"RateLimitPerMinute": "1000001"}, []string{"RateLimitPerMinute is not a number within"}},
		"no rate":               {map[string]any{"RateLimitPerMinute": "many"}, []string{"RateLimitPerMinute is not a number within"}},
		"a loud level":          {map[string]any{"LogLevel": "loud"}, []string{"LogLevel must be one of"}},
		"the public node":       {map[string]any{ctxNodes: nil}, []string{"nodes must be secret (rpc_urls in the secret of FacilitatorSecretArn) or parameter (cdk deploy --parameters RpcUrl=…): production needs its own nodes"}},
		"no node at all":        {map[string]any{ctxNodes: "none", "RpcUrl": "none"}, []string{"nodes must be secret", "without any node a refused payer can get an answer free", "RpcUrl would stand"}},
		"no secret":             {map[string]any{ctxNodes: nodesSecret}, []string{"nodes is secret, and FacilitatorSecretArn is not set"}},
		"nobody who settles":    {map[string]any{"FacilitatorUrl": nil}, []string{"FacilitatorUrl is empty. It is required while Selling is yes"}},
		"a fallback alone": {map[string]any{"Selling": "no", "FacilitatorUrl": "", "FacilitatorFallbackUrl": "https://fallback.example"},
			[]string{"1 fault(s)", "FacilitatorUrl is empty"}},
		"all of it": {map[string]any{"PayTo": "me", ctxEmail: "ops", ctxDomain: "api.example.com", "LogLevel": "loud"},
			[]string{"4 fault(s)", "PayTo", "alarmEmail", "domain", "LogLevel"}},
	} {
		_, err := parseContext(c.context)
		for _, s := range c.says {
			if err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q is not said in:\n%v", name, s, err)
			}
		}
	}
}

// TestRules checks the template's rule on facilitators. CloudFormation evaluates this rule
// before it changes anything. The rule must refuse the same settings as the CDK app.
func TestRules(t *testing.T) {
	t.Parallel()
	var holds func(v any) bool
	holds = func(v any) bool {
		for name, of := range v.(document) {
			parts := of.([]any)
			switch name {
			case "Fn::Equals":
				return parts[0] == parts[1]
			case "Fn::Not":
				return !holds(parts[0])
			case "Fn::Or":
				return holds(parts[0]) || holds(parts[1])
			}
		}
		t.Fatalf("%v is not known here", v)
		return false
	}
	const one, other = "https://one.example", "https://other.example"
	type rules struct {
		selling, primary, fallback, network string
		passes                              bool
	}
	cases := []rules{
		{"yes", one, "", x402.Base, true}, {"yes", one, other, x402.Base, true}, {"yes", "", "", x402.Base, false}, {"yes", "", other, x402.Base, false},
		{"no", one, "", x402.Base, true}, {"no", one, other, x402.Base, true}, {"no", "", "", x402.Base, true}, {"no", "", other, x402.Base, false},
	}
	for _, n := range x402.Networks() {
		cases = append(cases, rules{"yes", "", "", n.USDC.Network, n.Facilitator != ""}, rules{"yes", one, other, n.USDC.Network, true})
	}
	for _, c := range cases {
		values := map[string]any{
			"Selling": c.selling, "FacilitatorUrl": c.primary, "FacilitatorFallbackUrl": c.fallback, "Network": c.network,
		}
		rule := section(sourceTemplate(t, values), "Rules")["Facilitator"].(document)
		assert := rule["Assertions"].([]any)[0].(document)["Assert"]
		if passes := !holds(rule["RuleCondition"]) || holds(assert); passes != c.passes {
			t.Errorf("%+v: passes %v", c, passes)
		}
		if _, err := parseContext(values); (err == nil) != c.passes {
			t.Errorf("%+v: the CDK app says %v", c, err)
		}
	}
}

// TestCodeIsForLambda checks that a function is not deployed if it is not built, is built for
// another machine, or may not be run by other users.
func TestCodeIsForLambda(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	build := func(slug string, machine elf.Machine) {
		t.Helper()
		write(t, filepath.Join(root, "functions", slug, "main.go"), nil)
		write(t, filepath.Join(root, "build", slug, "bootstrap"), header(machine))
	}
	bootstrap := filepath.Join(root, "build", "dns", "bootstrap")
	for _, c := range []struct {
		machine elf.Machine
		mode    os.FileMode // 0 means that the file is missing
		says    string
	}{
		{elf.EM_AARCH64, 0o755, ""},
		{elf.EM_X86_64, 0o755, "dns/bootstrap cannot be deployed: it is for another machine (make build ARCH=arm64)"},
		{elf.EM_AARCH64, 0o700, "others may not run it (chmod 755"},
		{elf.EM_AARCH64, 0o644, "others may not run it (chmod 755"},
		{elf.EM_AARCH64, 0, "no such file or directory (make build ARCH=arm64)"},
	} {
		build("dns", c.machine)
		check(t, os.Chmod(bootstrap, c.mode))
		if c.mode == 0 {
			check(t, os.Remove(bootstrap))
		}
		r := &contextParser{get: contextOf(nil)}
		r.checkBuilt(root, filepath.Join(root, "build"))
		if err := errors.Join(r.faults...); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, mode %o: %v; want %q", c.machine, c.mode, err, c.says)
		}
	}
}

// header returns the beginning of an ELF binary for a machine.
func header(machine elf.Machine) []byte {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x01\x01")
	h[16], h[18], h[20] = byte(elf.ET_EXEC), byte(machine), 1
	h[52], h[54], h[58] = 64, 56, 64
	return h
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o700))
	if err := errors.Join(os.WriteFile(path, text, 0o755), os.Chmod(path, 0o755)); err != nil { // unlike WriteFile, Chmod ignores the umask
		t.Fatal(err)
	}
}

// TestRunbookContext checks that the runbook has a row for each key of the CDK context, with
// its default.
func TestRunbookContext(t *testing.T) {
	t.Parallel()
	text := must(os.ReadFile("../RUNBOOK.md"))(t)
	rows := map[string]string{} // the default in each row of the runbook, by the row's key
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			rows[strings.Trim(name, " `")] = strings.Trim(cells[3], " `")
		}
	}
	defaults := map[string]string{
		ctxStack: defaultStack, ctxDomain: "none", ctxCertificate: "none", ctxEmail: "required", ctxTickets: ctxEmail,
		ctxPhone: "none", ctxURL: "none", ctxSlack: "none", ctxTeams: "none",
		ctxBudget: strconv.Itoa(defaultBudget), ctxRetention: strconv.Itoa(defaultRetention),
		ctxReserve: "true", ctxAssets: assetsBuild, ctxNodes: "required",
		"mayRead": "none", "mayRefund": "none", "mayRestore": "none", "mayDeploy": "none",
	}
	parameters := template(t).Parameters
	_, _ = parseSettings("../..", func(key *string) any { // only the keys that parseSettings reads matter here
		if _, known := defaults[*key]; !known && parameters[*key].Type == "" {
			t.Errorf("%s is a key of the context, and not in this list", *key)
		}
		return nil
	})
	for key, fallback := range defaults {
		if got, ok := rows[key]; !ok || got != fallback {
			t.Errorf("%s: the runbook says %q (%v), want %q", key, got, ok, fallback)
		}
	}
}
