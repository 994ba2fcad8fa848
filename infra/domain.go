package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/jsii-runtime-go"
)

// ownDomain gives the API a domain name. The operator makes its DNS record: an
// alias to the outputs.
func (e *envelope) ownDomain() {
	name := awsapigatewayv2.NewCfnDomainName(e.Stack, jsii.String("Domain"), &awsapigatewayv2.CfnDomainNameProps{
		DomainName: &e.domain,
		DomainNameConfigurations: []*awsapigatewayv2.CfnDomainName_DomainNameConfigurationProperty{{
			CertificateArn: &e.certificate, EndpointType: jsii.String("REGIONAL"), SecurityPolicy: jsii.String("TLS_1_2"),
		}},
	})
	mapping := awsapigatewayv2.NewCfnApiMapping(e.Stack, jsii.String("DomainMapping"), &awsapigatewayv2.CfnApiMappingProps{
		ApiId: e.resource(idAPI).Ref(), DomainName: name.Ref(), Stage: jsii.String("$default"),
	})
	// SAM makes the stage, so it cannot be referred to here. Without the dependency
	// CloudFormation may make the mapping first, and fail.
	mapping.AddOverride(jsii.String("DependsOn"), []string{idStage})
	output := func(id, description string, value *string) {
		awscdk.NewCfnOutput(e.Stack, &id, &awscdk.CfnOutputProps{Description: &description, Value: value})
	}
	output("DomainTarget", "Where the domain's alias record points to", name.AttrRegionalDomainName())
	output("DomainZone", "Hosted zone of that target", name.AttrRegionalHostedZoneId())
}
