package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// initialParameters returns the parameters of a stack before one of them is changed.
func initialParameters() map[string]string {
	return map[string]string{"PayTo": testbed.Account(1), "FacilitatorUrl": facilitatorURL, "RpcUrl": "https://node.example"}
}

// changedValues returns, for each parameter, a value that differs from the value before the
// change (see initialParameters).
func changedValues() map[string]string {
	key := strings.Repeat("a", 43)
	return map[string]string{
		"BaseUrl": "https://other.example", "Selling": "no", "DefaultEndpoint": "no", "PayTo": testbed.Account(2), "FormerTerms": "none",
		"LedgerTableName": "another", "Network": "eip155:84532", "UsdcAsset": testbed.Account(3), "UsdcName": "Another", "UsdcVersion": "3",
		"FacilitatorUrl": "https://other.example", "FacilitatorKeyId": "another", "FacilitatorKeySecret": "another",
		"FacilitatorToken": "another", "FacilitatorSecretArn": testSecret, "FacilitatorFallbackUrl": "https://fallback.example",
		"FacilitatorFallbackKeyId": "another", "FacilitatorFallbackKeySecret": "another", "FacilitatorFallbackToken": "another",
		"FacilitatorFallbackSecretArn": testSecret, "RpcUrl": "https://other.example", "DnsResolvers": "9.9.9.10",
		"RdapBootstrapUrl": "https://other.example", "OwnershipProofs": "0xab", "Contact": "mailto:other@hostfacts.example",
		"WellKnownFiles": `{"x402-trust.txt":"a ${b} c"}`, "ReceiptKey": key, "ReceiptPublicKeys": key, "RateLimitPerMinute": "301",
		"ConcurrencySingle": "51", "ConcurrencyBundle": "21", "DuplicateWindowSeconds": "46", "LogLevel": "debug", "Release": "AllAtOnce",
	}
}

// parametersOfResources returns the names of the parameters that no function receives, each
// with the type of the resources that the parameter changes.
func parametersOfResources() map[string]string {
	return map[string]string{"DefaultEndpoint": "AWS::ApiGatewayV2::Api", "Release": "AWS::CodeDeploy::DeploymentGroup"}
}

// parameterSets returns sets of parameters, by name. The set with an empty name is the
// unchanged one. The set with the name of a parameter differs from the unchanged set only in
// that parameter.
func parameterSets() map[string]map[string]string {
	all := map[string]map[string]string{"": initialParameters()}
	for name, value := range changedValues() {
		all[name] = initialParameters()
		all[name][name] = value
	}
	return all
}

// deployBySAM deploys a template with the SAM CLI once for each set of parameters.
func deployBySAM(t *testing.T, path string, parameterSets map[string]map[string]string) map[string]deployment {
	t.Helper()
	inputs := map[string]input{}
	for name, values := range parameterSets {
		inputs[name] = input{path, values}
	}
	return deployEach(t, inputs)
}

// deployByCDK deploys with the CDK app once for each set of parameters. The app's context
// lacks the values of hidden parameters (those with NoEcho). The deployment gets these values.
func deployByCDK(t *testing.T, parameterSets map[string]map[string]string) map[string]deployment {
	t.Helper()
	parameters, contexts := template(t).Parameters, map[string]map[string]any{}
	for name, values := range parameterSets {
		if name != "" && parameters[name].NoEcho {
			continue // the template does not depend on a hidden parameter
		}
		contexts[name] = map[string]any{ctxNodes: nodesParameter, ctxAssets: assetsNone, ctxEmail: nobody}
		for parameter, value := range values {
			if !parameters[parameter].NoEcho {
				contexts[name][parameter] = value
			}
		}
	}
	paths := synthEach(t, contexts)
	inputs := map[string]input{}
	for name, values := range parameterSets {
		path, ok := paths[name]
		if !ok {
			path = paths[""]
		}
		inputs[name] = input{path, hiddenValues(parameters, values)}
	}
	return deployEach(t, inputs)
}

// input is a template with values for its parameters.
type input struct {
	path   string
	values map[string]string
}

// deployEach transforms all templates in one run of transform.py, and then deploys each of
// them.
func deployEach(t *testing.T, inputs map[string]input) map[string]deployment {
	t.Helper()
	var arguments []string
	names := slices.Sorted(maps.Keys(inputs))
	for _, name := range names {
		for parameter, value := range inputs[name].values {
			arguments = append(arguments, parameter+"="+value)
		}
		arguments = append(arguments, inputs[name].path)
	}
	out := json.NewDecoder(bytes.NewReader(programs.Run(t, deployed.Tool(t, "transform.py", arguments...))))
	all := map[string]deployment{}
	for _, name := range names {
		var d document
		check(t, out.Decode(&d))
		all[name] = deploy(t, d, inputs[name].values)
	}
	return all
}

// hiddenValues returns the values of the hidden parameters, which the CDK CLI gets with
// --parameters.
func hiddenValues(parameters map[string]sam.Parameter, values map[string]string) map[string]string {
	given := map[string]string{}
	for name, value := range values {
		if parameters[name].NoEcho {
			given[name] = value
		}
	}
	return given
}

// synthEach runs the app with each context and returns the paths of the templates. All runs
// share one other process (see synth), because the CDK takes seconds to start.
func synthEach(t *testing.T, contexts map[string]map[string]any) map[string]string {
	t.Helper()
	testbed.Find(t, "Node for the CDK", "node")
	dir := t.TempDir()
	list := filepath.Join(dir, "contexts.json")
	check(t, os.WriteFile(list, must(json.Marshal(contexts))(t), 0o600))
	cmd := exec.Command(must(os.Executable())(t))
	cmd.Env = append(os.Environ(), "SYNTH_CONTEXTS="+list, "GORACE=exitcode=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("synthesize: %v\n%s", err, said)
	}
	paths := map[string]string{}
	for name := range contexts {
		paths[name] = filepath.Join(synthesizedTo(list, name), defaultStack+".template.json")
	}
	return paths
}

// synthesizedTo returns the folder in which a context is synthesized, given the path of the list of
// contexts and the context's name in this list.
func synthesizedTo(list, name string) string { return filepath.Join(filepath.Dir(list), "of-"+name) }

// synthesizeEach is the main function of the process that synthEach starts.
func synthesizeEach(list string) {
	defer jsii.Close()
	var contexts map[string]map[string]any
	testbed.Check(json.Unmarshal(testbed.Must(os.ReadFile(list)), &contexts))
	for name, context := range contexts {
		out := synthesizedTo(list, name)
		app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false), TreeMetadata: jsii.Bool(false), Outdir: &out})
		NewStack(app, testbed.Must(parseSettings(filepath.Join("..", ".."), contextOf(context))))
		app.Synth(nil)
	}
}

// unchangedFunctions returns the functions that a deployment leaves as they were: the alias
// points to the same version, or Lambda publishes no new version because nothing in the
// function has changed.
func unchangedFunctions(before, after deployment) (same []string) {
	now := after.aliasVersions()
	for id, version := range before.aliasVersions() {
		if now[id] == version || gocmp.Equal(before.versionedProperties(id), after.versionedProperties(id)) {
			same = append(same, id)
		}
	}
	slices.Sort(same)
	return same
}

// TestEveryParameterTakesEffect checks that a change of any single parameter publishes every
// function and moves the aliases to the new versions, so that nobody gets an answer with the
// old value. A change of a parameter that no function receives must change the resources that
// the parameter is for. If nothing changes, nothing is published.
func TestEveryParameterTakesEffect(t *testing.T) {
	t.Parallel()
	parameters := template(t).Parameters
	if d := gocmp.Diff(slices.Sorted(maps.Keys(parameters)), slices.Sorted(maps.Keys(changedValues()))); d != "" {
		t.Fatalf("parameters (-template +here):\n%s", d)
	}
	for name, value := range changedValues() {
		if err := parameters[name].Check(value); err != nil || parameters[name].Default != nil && *parameters[name].Default == value {
			t.Errorf("%s=%s changes nothing: %v", name, value, err)
		}
	}
	for tool, deploys := range map[string]func() map[string]deployment{
		"SAM": func() map[string]deployment { return deployBySAM(t, templatePath, parameterSets()) },
		"CDK": func() map[string]deployment { return deployByCDK(t, parameterSets()) },
	} {
		all := deploys()
		if n := len(unchangedFunctions(all[""], all[""])); n != len(functionSlugs()) {
			t.Errorf("%s: nothing changes, and %d of %d functions are published", tool, len(functionSlugs())-n, len(functionSlugs()))
		}
		for name := range changedValues() {
			checkEffect(t, tool+": "+name, all[""], all[name], parametersOfResources()[name])
		}
	}
}

// checkEffect checks that a change of a parameter has taken effect. If kind is empty, the
// change must publish every function. Otherwise kind is a type of resources: the change must
// affect all resources of this type, and must publish no function.
func checkEffect(t *testing.T, what string, before, after deployment, kind string) {
	t.Helper()
	same := unchangedFunctions(before, after)
	if kind == "" {
		if len(same) > 0 {
			t.Errorf("%s changes, and these go on as they were: %v", what, same)
		}
		return
	}
	if len(same) != len(functionSlugs()) {
		t.Errorf("%s changes, and functions are published for it", what)
	}
	now := after.resources(kind)
	for id, was := range before.resources(kind) {
		if gocmp.Equal(was, now[id]) {
			t.Errorf("%s changes, and %s is as it was", what, id)
		}
	}
}

// TestAParameterIsMissed checks that TestEveryParameterTakesEffect would detect two mistakes
// in the template. The template joins the values of the parameters into the document Settings.
// When a value changes, the document gets a new number. The description of every function
// contains this number, so every function is published again. The first mistake: the document
// lacks the payee. Then a change of the payee publishes no function. The second mistake: the
// descriptions lack the number. Then a change of ReceiptKey publishes only the functions that
// receive ReceiptKey.
func TestAParameterIsMissed(t *testing.T) {
	t.Parallel()
	path := changeTemplate(t, templatePath, "[PayTo, !Ref PayTo]", "[PayTo, PayTo]")
	all := deployBySAM(t, path, map[string]map[string]string{"": initialParameters(), "PayTo": parameterSets()["PayTo"]})
	if same := unchangedFunctions(all[""], all["PayTo"]); len(same) != len(functionSlugs()) {
		t.Errorf("the payee is no part of the settings, and only these go on as they were: %v", same)
	}
	text := string(must(os.ReadFile(changeTemplate(t, templatePath, " (settings ${Settings})", "")))(t))
	all = deployBySAM(t, saveText(t, text), map[string]map[string]string{"": initialParameters(), "ReceiptKey": parameterSets()["ReceiptKey"]})
	want := []string{sam.LogicalID(sam.Discovery), sam.LogicalID(sam.Reconcile)} // these functions do not receive ReceiptKey
	if same := unchangedFunctions(all[""], all["ReceiptKey"]); !slices.Equal(same, want) {
		t.Errorf("functions that Lambda does not publish: %v, want %v", same, want)
	}
}

// TestStopIsAtOnce checks changes that stop selling, or that narrow which payments are
// accepted. Such a change must reach every request at once, whatever the parameter Release
// says, and no alarm may roll it back. A change of the payee is released as Release says, and
// alarms watch it.
func TestStopIsAtOnce(t *testing.T) {
	t.Parallel()
	alarms := len(releaseAlarms(t))
	stands := initialParameters()
	stands["Release"] = "Canary10Percent30Minutes"
	with := func(name, value string) map[string]string {
		values := maps.Clone(stands)
		values[name] = value
		return values
	}
	cases := map[string]map[string]string{
		"": stands, "Selling": with("Selling", "no"), "FormerTerms": with("FormerTerms", "none"),
		"PayTo": with("PayTo", testbed.Account(2)), "Release": with("Release", "AllAtOnce"),
	}
	want := map[string]string{"": stands["Release"] + " " + strconv.Itoa(alarms), "Selling": "AllAtOnce 0", "FormerTerms": "AllAtOnce 0", "Release": "AllAtOnce 0"}
	want["PayTo"] = want[""]
	for tool, all := range map[string]map[string]deployment{"SAM": deployBySAM(t, templatePath, cases), "CDK": deployByCDK(t, cases)} {
		for name, d := range all {
			groups := d.resources("AWS::CodeDeploy::DeploymentGroup")
			if len(groups) != len(functionSlugs())-1 { // reconcile has no group: its alias always moves at once
				t.Fatalf("%s: %d groups", tool, len(groups))
			}
			for id, group := range groups {
				watched, _ := group.(document)["AlarmConfiguration"].(document)
				list, _ := watched["Alarms"].([]any)
				way := strings.TrimPrefix(fmt.Sprint(group.(document)["DeploymentConfigName"]), "CodeDeployDefault.Lambda")
				if got := way + " " + strconv.Itoa(len(list)); got != want[name] {
					t.Errorf("%s, %s changes: %s is released by %s alarms, want %s", tool, name, id, got, want[name])
				}
			}
		}
	}
}
