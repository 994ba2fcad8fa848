package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

func (a *account) createChangeSet(form url.Values) (string, *refusal) {
	name := form.Get("StackName")
	text := form.Get("TemplateBody")
	if templateURL := form.Get("TemplateURL"); templateURL != "" { // a template above 51,200 bytes is not in the request, but in S3
		r := testbed.Must(http.NewRequestWithContext(a.t.Context(), http.MethodGet, templateURL, nil))
		r.Header.Set("Authorization", authorization("s3"))
		reply := testbed.Must(http.DefaultClient.Do(r))
		text = string(testbed.Must(io.ReadAll(reply.Body)))
		testbed.Check(reply.Body.Close())
	}
	existing, missing := a.find(name)
	reviewed := missing == nil && existing.status == inReview
	switch kind := form.Get("ChangeSetType"); {
	case kind == "CREATE" && missing == nil && !reviewed:
		return "", &refusal{"AlreadyExistsException", "Stack [" + name + "] already exists"}
	case kind != "CREATE" && (missing != nil || reviewed):
		return "", validationError("Stack [%s] does not exist", name)
	case form.Get("Capabilities.member.1") != "CAPABILITY_IAM":
		return "", &refusal{"InsufficientCapabilitiesException", "Requires capabilities : [CAPABILITY_IAM]"}
	}
	if reviewed {
		existing = nil
	}
	parameters, refused := a.parameterValues(form, a.read(text), existing)
	if refused != nil {
		return "", refused
	}
	set := changeSet{stack: name, template: text, parameters: parameters}
	if existing != nil && existing.template == text && fmt.Sprint(existing.parameters) == fmt.Sprint(parameters) {
		set.failure = "The submitted information didn't contain changes. Submit different information to create a change set."
	}
	broken := testbed.Must(a.read(text).Broken(parameters))
	if len(broken) > 0 {
		set.failure = "Template error: " + strings.Join(broken, ", ")
	}
	if missing != nil {
		a.stacks[name] = a.newStack(name)
	}
	a.sets[form.Get("ChangeSetName")] = set
	return element("Id", "arn:aws:cloudformation:us-east-1:111122223333:changeSet/"+form.Get("ChangeSetName")+"/1") + element("StackId", stackARN(name)), nil
}

func stackARN(stack string) string {
	return "arn:aws:cloudformation:us-east-1:111122223333:stack/" + stack + "/1"
}

// parameterValues returns the values of a template's parameters. Each value comes from the
// request, from the existing stack (if the request has UsePreviousValue), or from the
// parameter's default.
func (a *account) parameterValues(form url.Values, t *sam.Template, existing *stack) (map[string]string, *refusal) {
	values := map[string]string{}
	for name, p := range t.Parameters {
		if p.Default != nil {
			values[name] = *p.Default
		}
	}
	for i := 1; ; i++ {
		prefix := "Parameters.member." + strconv.Itoa(i) + "."
		name := form.Get(prefix + "ParameterKey")
		if name == "" {
			return values, checkParameters(t, values)
		}
		if _, known := t.Parameters[name]; !known {
			return nil, validationError("Parameters: [%s] do not exist in the template", name)
		}
		values[name] = form.Get(prefix + "ParameterValue")
		if form.Get(prefix+"UsePreviousValue") != "true" {
			continue
		}
		previous := ""
		had := false
		if existing != nil {
			previous, had = existing.parameters[name]
		}
		if !had {
			return nil, validationError("Invalid input for parameter key %s. Cannot specify usePreviousValue as true for a parameter key not in the previous template", name)
		}
		values[name] = previous
	}
}

// checkParameters returns a refusal if a parameter has no value, or a value that it does not
// accept.
func checkParameters(t *sam.Template, values map[string]string) *refusal {
	for name, p := range t.Parameters {
		value, has := values[name]
		if !has {
			return validationError("Parameters: [%s] must have values", name)
		}
		if err := p.Check(value); err != nil {
			return validationError("Parameter %s failed to satisfy constraint: %v", name, err)
		}
	}
	return nil
}

func (a *account) findChangeSet(form url.Values) (changeSet, *refusal) {
	name := form.Get("ChangeSetName")
	for known, s := range a.sets {
		if known == name || strings.Contains(name, ":changeSet/"+known+"/") {
			return s, nil
		}
	}
	return changeSet{}, &refusal{"ChangeSetNotFound", "ChangeSet [" + name + "] does not exist"}
}

func (a *account) describeChangeSet(form url.Values) (string, *refusal) {
	s, refused := a.findChangeSet(form)
	if refused != nil {
		return "", refused
	}
	status := element("Status", "CREATE_COMPLETE") + element("ExecutionStatus", "AVAILABLE")
	if s.failure != "" {
		status = element("Status", "FAILED") + element("StatusReason", s.failure) + element("ExecutionStatus", "UNAVAILABLE")
	}
	return element("StackName", s.stack) + element("StackId", stackARN(s.stack)) + status + "<Changes><member>" + element("Type", "Resource") + "<ResourceChange>" +
		element("Action", "Modify") + element("LogicalResourceId", "PingFunction") + element("ResourceType", "AWS::Lambda::Function") + element("Replacement", "False") +
		"</ResourceChange></member></Changes>", nil
}

func (a *account) events(form url.Values) (string, *refusal) {
	s, refused := a.find(form.Get("StackName"))
	if refused != nil {
		return "", refused
	}
	return "<StackEvents><member>" + element("EventId", "e"+s.updatedAt.String()) + element("StackId", s.id) + element("StackName", form.Get("StackName")) +
		element("LogicalResourceId", form.Get("StackName")) + element("PhysicalResourceId", s.id) + element("ResourceType", "AWS::CloudFormation::Stack") +
		element("ResourceStatus", s.status) + timeElement("Timestamp", s.updatedAt) + "</member></StackEvents>", nil
}

// executeChangeSet changes the stack as the change set says.
func (a *account) executeChangeSet(form url.Values) (string, *refusal) {
	set, refused := a.findChangeSet(form)
	if refused != nil {
		return "", refused
	}
	if set.failure != "" {
		return "", &refusal{"InvalidChangeSetStatus", "ChangeSet cannot be executed in its current status of [FAILED]"}
	}
	s, missing := a.find(set.stack)
	if missing != nil {
		return "", missing
	}
	done := "UPDATE_COMPLETE"
	if s.status == inReview {
		done = "CREATE_COMPLETE"
		testbed.Check(dynamo.Create(a.t.Context(), dynamo.NewClient(a.emulator.Config()), ownTable(set.stack)))
	}
	s.status = done
	s.template = set.template
	s.parameters = set.parameters
	s.updatedAt = time.Now()
	table := set.parameters["LedgerTableName"]
	if table == "" {
		table = ownTable(set.stack)
	}
	s.outputs = map[string]string{outputOrigin: s.url, outputLedger: table}
	for name, value := range literalOutputs(set.template) {
		s.outputs[name] = value
	}
	if !a.isLagging || s.handler == nil {
		s.handler = a.runFunctions(set.stack, a.read(set.template), set.parameters)
	}
	return "", nil
}
