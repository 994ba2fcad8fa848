package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/infra/sam"
)

const templateName = "template.yaml"

// Keys of the CDK context. The names of the template's parameters are keys as well.
const (
	ctxStack       = "stackName"
	ctxDomain      = "domain"
	ctxCertificate = "certificateArn"
	ctxBudget      = "budgetUsd"
	ctxRetention   = "logRetentionDays"
	ctxAssets      = "assets"
	ctxReserve     = "reserveConcurrency"
	ctxNodes       = "nodes"
)

// Values of the context key "nodes", which says where the nodes for RPC_URL are configured.
// The key has no default, because the template's default is the network's public node, which
// limits the rate of requests and guarantees nothing. "none" is refused: without a node, a
// payer whose payment was refused gets a free answer by cancelling the payment's nonce.
const (
	nodesSecret    = "secret"    // rpc_urls in the secret that FacilitatorSecretArn names
	nodesParameter = "parameter" // the parameter RpcUrl, given with cdk deploy --parameters RpcUrl=…
)

// Values of the context key "assets".
const (
	assetsBuild = "build" // build/<slug>, made by make build ARCH=arm64
	assetsNone  = "none"  // the template's CodeUri stays unchanged
)

const (
	defaultStack     = "hostfacts-production"
	defaultBudget    = 80
	defaultRetention = 90
)

// settings is the validated context.
type settings struct {
	template    string // the path of template.yaml
	build       string // directory of the built functions; empty means no code
	params      map[string]any
	stack       string
	domain      string // the API's custom domain; empty means none
	certificate string
	listeners
	budget    float64
	retention float64 // how many days logs are kept
	reserve   bool    // whether to reserve concurrency for the scheduled function

	// The keys of assume are the names of operators' roles. Each value has the principals that
	// may assume the role.
	assume map[string][]string

	released // which code is deployed, as make deploy records it
}

// contextParser parses the CDK context and collects every fault.
type contextParser struct {
	get    func(*string) any
	faults []error
}

func (c *contextParser) fault(key, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s %s", key, fmt.Sprintf(format, args...)))
}

// text returns the value of a key as text. In cdk.json the value may also be a number or a
// boolean.
func (c *contextParser) text(key, fallback string) string {
	switch v := c.get(&key).(type) {
	case nil:
		return fallback
	case string:
		return strings.TrimSpace(v)
	case float64, bool:
		return fmt.Sprint(v)
	}
	c.fault(key, "must be a string or a number")
	return fallback
}

func (c *contextParser) number(key string, fallback float64) float64 {
	n, err := strconv.ParseFloat(c.text(key, strconv.FormatFloat(fallback, 'g', -1, 64)), 64)
	if err != nil || !(n > 0 && n < 1e6) {
		c.fault(key, "must be a number above 0")
	}
	return n
}

func (c *contextParser) boolean(key string, fallback bool) bool {
	v, err := strconv.ParseBool(c.text(key, strconv.FormatBool(fallback)))
	if err != nil {
		c.fault(key, "must be true or false")
	}
	return v
}

// days returns how many days logs are kept. CloudWatch Logs accepts only certain numbers.
func (c *contextParser) days(key string, fallback float64) float64 {
	known := []float64{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
	n := c.number(key, fallback)
	if n > 0 && !slices.Contains(known, n) {
		c.fault(key, "must be a number of days, one of %v", known)
	}
	return n
}

// matchingText returns a value that must match a regular expression. An empty value is always
// allowed.
func (c *contextParser) matchingText(key, pattern, help string) string {
	v := c.text(key, "")
	if v != "" && !regexp.MustCompile(pattern).MatchString(v) {
		c.fault(key, "must be %s", help)
	}
	return v
}

// parseSettings parses the context. The error contains every fault.
func parseSettings(root string, get func(*string) any) (settings, error) {
	c := &contextParser{get: get}
	s := settings{
		template:    filepath.Join(root, templateName),
		stack:       c.text(ctxStack, defaultStack),
		domain:      c.matchingText(ctxDomain, `^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`, "a lower-case domain name"),
		certificate: c.matchingText(ctxCertificate, `^arn:[^:]+:acm:[^:]+:[0-9]{12}:certificate/.+$`, "the ARN of an ACM certificate in the stack's region"),
		listeners:   c.listeners(),
		budget:      c.number(ctxBudget, defaultBudget),
		retention:   c.days(ctxRetention, defaultRetention),
		reserve:     c.boolean(ctxReserve, true),
		assume:      c.rolePrincipals(),
	}
	if (s.domain == "") != (s.certificate == "") {
		c.fault(ctxDomain, "and %s go together", ctxCertificate)
	}
	s.params = c.parameters(s)
	c.nodes(s.params)
	switch assets := c.text(ctxAssets, assetsBuild); assets {
	case assetsNone:
	case assetsBuild:
		s.build = filepath.Join(root, "build")
		c.checkBuilt(root, s.build)
	default:
		c.fault(ctxAssets, "must be %s or %s", assetsBuild, assetsNone)
	}
	if len(c.faults) > 0 {
		return s, fmt.Errorf("the CDK context has %d fault(s):\n%w", len(c.faults), errors.Join(c.faults...))
	}
	return s, nil
}

// nodes parses where the nodes of the chain are configured. If the value is "secret", nodes
// sets the template's parameter RpcUrl to "secret". If the value is "parameter", RpcUrl
// remains a parameter of the stack.
func (c *contextParser) nodes(params map[string]any) {
	switch v := c.text(ctxNodes, ""); {
	case v != nodesParameter && v != nodesSecret:
		c.fault(ctxNodes, "must be %s (rpc_urls in the secret of FacilitatorSecretArn) or %s (cdk deploy --parameters RpcUrl=…): production needs its own nodes. The network's public node promises nothing, and without any node a refused payer can get an answer free", nodesSecret, nodesParameter)
	case v == nodesSecret && params["FacilitatorSecretArn"] == "":
		c.fault(ctxNodes, "is %s, and FacilitatorSecretArn is not set", nodesSecret)
	case v == nodesSecret:
		params["RpcUrl"] = nodesSecret
	}
}

// parameters returns the values that replace the template's parameters. The app checks the
// values here, because CloudFormation gets them as constants and cannot check them. Parameters
// that have their default value are replaced as well: the CDK CLI keeps the value of a
// parameter from one deployment to the next, so a new default in the template would have no
// effect. A NoEcho parameter is not replaced, because its value would be visible in the
// synthesized template.
func (c *contextParser) parameters(s settings) map[string]any {
	values := make(map[string]any)
	t, err := sam.Read(s.template)
	if err != nil {
		c.fault(templateName, "cannot be used: %v", err)
		return values
	}
	texts := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(t.Parameters)) {
		if v, ok := c.parameter(name, t.Parameters[name], s.domain); ok {
			values[name] = v
			texts[name] = v
		}
	}
	broken, err := t.Broken(texts)
	if err != nil {
		c.fault(templateName, "cannot be used: %v", err)
	}
	for _, description := range broken {
		c.faults = append(c.faults, errors.New(description))
	}
	return values
}

// parameter returns the value of one parameter. It returns false if the app has no value for
// the parameter: the parameter is NoEcho, or has neither a value in the context nor a default.
func (c *contextParser) parameter(name string, p sam.Parameter, domain string) (string, bool) {
	const absent = "\x00"
	v := c.text(name, absent)
	switch {
	case p.NoEcho && v != absent:
		c.fault(name, "would stand in the template for all to read: use FacilitatorSecretArn, or cdk deploy --parameters")
		return "", false
	case p.NoEcho:
		return "", false
	case name == "BaseUrl" && domain != "":
		if v != absent && v != "https://"+domain {
			c.fault(name, "contradicts %s", ctxDomain)
		}
		v = "https://" + domain
	case name == "DefaultEndpoint" && domain != "" && v == absent:
		v = "no"
	case v == absent && p.Default == nil:
		c.fault(name, "is not set, and has no default")
		return "", false
	case v == absent:
		v = *p.Default
	}
	if err := p.Check(v); err != nil {
		c.fault(name, "%v", err)
	}
	return v, true
}

// checkBuilt checks that every function was built for Lambda. A binary for another processor
// could be deployed, but every request would fail.
func (c *contextParser) checkBuilt(root, build string) {
	functions, err := os.ReadDir(filepath.Join(root, "functions"))
	if err != nil {
		c.fault("functions", "cannot be read: %v", err)
	}
	for _, f := range functions {
		path := filepath.Join(build, f.Name(), "bootstrap")
		binary, err := elf.Open(path)
		if err == nil {
			const others = 0o005 // the archive keeps the mode, and Lambda runs the file as a user who does not own it
			if info, _ := os.Stat(path); info == nil || info.Mode().Perm()&others != others {
				err = errors.New("others may not run it (chmod 755, or umask 022)")
			} else if binary.Machine != elf.EM_AARCH64 {
				err = errors.New("it is for another machine")
			}
			_ = binary.Close()
		}
		if err != nil {
			c.fault(path, "cannot be deployed: %v (make build ARCH=arm64)", err)
		}
	}
}
