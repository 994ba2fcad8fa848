package main

import (
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3assets"
	"github.com/aws/aws-cdk-go/awscdk/v2/cloudformationinclude"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// Logical ids of the template that the app adds to.
const (
	idAPI = "Api"
	idLog = "ApiAccessLog"
	// idDomain is the custom domain, which the app adds.
	idDomain = "Domain"
	// idFunctionsLog is the log group that all functions share.
	idFunctionsLog = "FunctionsLog"
	// idStage is the logical id that SAM gives the $default stage of Api. The stage exists
	// only after CloudFormation's SAM transform, so DependsOn can name it, but Ref cannot
	// refer to it.
	idStage = idAPI + "ApiGatewayDefaultStage"
)

// envelope is the stack with the production additions, while it is being built.
type envelope struct {
	awscdk.Stack
	settings
	include cloudformationinclude.CfnInclude
}

// NewStack creates the stack: the included template and everything that the app adds to it.
func NewStack(scope constructs.Construct, s settings) {
	e := &envelope{settings: s}
	e.Stack = awscdk.NewStack(scope, &s.stack, &awscdk.StackProps{
		Description: jsii.String(catalog.Service + ": template.yaml with its production envelope"),
	})
	if s.params["RpcUrl"] == nil {
		e.demandNodes()
	}
	e.include = cloudformationinclude.NewCfnInclude(e.Stack, jsii.String("Application"), &cloudformationinclude.CfnIncludeProps{
		TemplateFile: &s.template, Parameters: &s.params,
	})
	if s.reserve { // reconcile must run even while requests use up the account's concurrency
		e.resource(sam.LogicalID(sam.Reconcile)).AddPropertyOverride(jsii.String("ReservedConcurrentExecutions"), 1)
	}
	if e.build != "" {
		for _, slug := range functionSlugs() {
			e.code(slug)
		}
	}
	for _, id := range []string{idLog, idFunctionsLog} {
		e.resource(id).AddPropertyOverride(jsii.String("RetentionInDays"), s.retention)
	}
	page, ticket, policy := e.topics()
	e.alarms(page, ticket)
	e.dashboard()
	e.queries()
	e.budgetAlarm(ticket).AddDependency(policy)
	if s.domain != "" {
		e.addDomain()
	}
	e.commands(page, ticket)
	e.roles(page, ticket)
	e.record()
}

// demandNodes replaces the parameter RpcUrl with one that has no default and accepts only
// URLs, so a deployment without a node fails.
func (e *envelope) demandNodes() {
	p := awscdk.NewCfnParameter(e.Stack, jsii.String("RpcUrl"), &awscdk.CfnParameterProps{
		Type:                  jsii.String("String"),
		NoEcho:                jsii.Bool(true),
		AllowedPattern:        jsii.String(`^https://[^ ]+$`),
		ConstraintDescription: jsii.String("https URLs of nodes, separated by commas. none is refused: without a node a refused payer can get an answer free. Any node of the network serves, such as one of a provider's free plan"),
		Description:           jsii.String("JSON-RPC nodes that payments in doubt are looked up on; see template.yaml."),
	})
	e.settings.params["RpcUrl"] = p.ValueAsString()
}

// object is a JSON object in a template.
type object = map[string]any

// add creates a resource of an AWS type.
func (e *envelope) add(id, kind string, properties object) awscdk.CfnResource {
	return awscdk.NewCfnResource(e.Stack, &id, &awscdk.CfnResourceProps{Type: jsii.String("AWS::" + kind), Properties: &properties})
}

func (e *envelope) output(id, description string, value *string) {
	awscdk.NewCfnOutput(e.Stack, &id, &awscdk.CfnOutputProps{Description: &description, Value: value})
}

func (e *envelope) resource(id string) awscdk.CfnResource { return e.include.GetResource(&id) }

// code replaces the template's CodeUri of a function with the built binary.
func (e *envelope) code(slug string) {
	asset := awss3assets.NewAsset(e.Stack, jsii.String(sam.Pascal(slug)+"Code"), &awss3assets.AssetProps{
		Path: jsii.String(filepath.Join(e.build, slug)),
	})
	function := e.resource(sam.LogicalID(slug))
	function.AddPropertyOverride(jsii.String("CodeUri"), map[string]any{"Bucket": asset.S3BucketName(), "Key": asset.S3ObjectKey()})
	// SAM must not build the function again.
	function.AddDeletionOverride(jsii.String("Metadata.BuildMethod"))
}

// addDomain adds a domain name for the API. The operator creates the DNS record of this name.
// That record is an alias, and the outputs DomainTarget and DomainZone give its values.
func (e *envelope) addDomain() {
	name := e.add(idDomain, "ApiGatewayV2::DomainName", object{"DomainName": e.domain, "DomainNameConfigurations": []any{
		object{
			"CertificateArn": e.certificate,
			"EndpointType":   "REGIONAL",
			"SecurityPolicy": "TLS_1_2",
		},
	}})
	mapping := e.add("DomainMapping", "ApiGatewayV2::ApiMapping", object{
		"ApiId":      e.resource(idAPI).Ref(),
		"DomainName": name.Ref(),
		"Stage":      "$default",
	})
	// SAM creates the stage, so Ref cannot refer to it. Without DependsOn, CloudFormation
	// might create the mapping before the stage, and fail.
	mapping.AddOverride(jsii.String("DependsOn"), []string{idStage})
	e.output("DomainTarget", "Where the domain's alias record points to", e.domainAttribute("RegionalDomainName"))
	e.output("DomainZone", "Hosted zone of that target", e.domainAttribute("RegionalHostedZoneId"))
}

// functionSlugs returns the slugs of the functions of a deployment: one for each operation in
// the catalog, and the functions that serve no operation.
func functionSlugs() []string {
	var all []string
	for _, o := range catalog.All() {
		all = append(all, o.Slug)
	}
	return append(all, sam.Discovery, sam.Health, sam.MCP, sam.Reconcile)
}
