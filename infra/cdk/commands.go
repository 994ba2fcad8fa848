package main

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// concurrencyQuota is the Service Quotas code of the limit on concurrent Lambda invocations in
// an account and region. enoughAtOnce is the limit that the command RaiseConcurrency asks for.
// Most older accounts have that limit.
const (
	concurrencyQuota = "L-B99A9384"
	enoughAtOnce     = 1000
)

// commands adds outputs with AWS CLI commands for the operator to paste. The commands do what
// a deployment needs but a stack cannot do.
func (e *envelope) commands(page, ticket *string) {
	e.command("RaiseConcurrency", "Ask for more functions at once, which a new account has 10 of", fmt.Sprintf(
		"aws service-quotas request-service-quota-increase --region ${AWS::Region} --service-code lambda --quota-code %s --desired-value %d",
		concurrencyQuota, enoughAtOnce), nil)
	for _, topic := range []struct {
		id, what string
		arn      *string
	}{{"SubscribeToPages", "pages", page}, {"SubscribeToTickets", "tickets", ticket}} {
		e.command(topic.id, "Have somebody told of "+topic.what+", who then confirms it",
			"aws sns subscribe --region ${AWS::Region} --topic-arn ${Topic} --protocol email --notification-endpoint you@example.com",
			map[string]*string{"Topic": topic.arn})
	}
	if e.domain != "" {
		e.command("AliasRecord", "Point the domain, which is in a public zone of Route 53 in this account, to the service", e.aliasRecord(), map[string]*string{
			"Target": e.domainAttribute("RegionalDomainName"), "Zone": e.domainAttribute("RegionalHostedZoneId"),
		})
	}
}

// aliasRecord returns the command that creates the domain's DNS record, in the most specific
// public zone that contains the domain.
func (e *envelope) aliasRecord() string {
	zone := fmt.Sprintf("aws route53 list-hosted-zones --output text --query "+
		"'max_by(HostedZones[?Config.PrivateZone==`false` && ends_with(`\".%s.\"`, join(`\"\"`, [`\".\"`, Name]))], &length(Name)).Id'", e.domain)
	return fmt.Sprintf(`aws route53 change-resource-record-sets --hosted-zone-id "$(%s)" --change-batch '{"Changes":[{"Action":"UPSERT",`+
		`"ResourceRecordSet":{"Name":"%s","Type":"A","AliasTarget":{"DNSName":"${Target}","HostedZoneId":"${Zone}","EvaluateTargetHealth":false}}}]}'`,
		zone, e.domain)
}

// command adds an output that contains a command. The map has a value for each placeholder in
// the command, by the placeholder's name.
func (e *envelope) command(id, description, text string, words map[string]*string) {
	var values *map[string]*string
	if words != nil {
		values = &words
	}
	e.output(id, description, awscdk.Fn_Sub(jsii.String(text), values))
}

// domainAttribute returns an attribute of the custom domain.
func (e *envelope) domainAttribute(attribute string) *string {
	return awscdk.Fn_GetAtt(jsii.String(idDomain), &attribute).ToString()
}
