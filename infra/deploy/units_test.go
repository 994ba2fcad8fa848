package main

import (
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// TestAgreed checks that only the answers y and yes confirm a deployment. If desk.skipConsent
// is set (YES=1), the deployment must need no answer.
func TestAgreed(t *testing.T) {
	t.Parallel()
	for typed, agrees := range map[string]bool{"y\n": true, "Yes\n": true, "y": true, "": false, "\n": false, "n\n": false, "yesterday\n": false} {
		if err := (desk{in: strings.NewReader(typed), notes: io.Discard}).askForConsent(); (err == nil) != agrees {
			t.Errorf("%q: %v", typed, err)
		}
	}
	if err := (desk{skipConsent: true, in: strings.NewReader("n\n"), notes: io.Discard}).askForConsent(); err != nil {
		t.Errorf("with YES=1: %v", err)
	}
}

// TestSettled checks that nothing can be deployed to a stack that is being changed, whose last
// change failed halfway, or that was never fully created. The error must say how to end that
// state.
func TestSettled(t *testing.T) {
	t.Parallel()
	id := stackARN("shop-stack")
	for status, wantErr := range map[types.StackStatus]string{
		types.StackStatusCreateComplete: "", types.StackStatusUpdateComplete: "", types.StackStatusUpdateRollbackComplete: "",
		types.StackStatusUpdateInProgress:                                "aws cloudformation cancel-update-stack --stack-name shop-stack --region us-east-1",
		types.StackStatusUpdateRollbackFailed:                            "aws cloudformation continue-update-rollback --stack-name shop-stack --region us-east-1",
		types.StackStatusRollbackComplete:                                "was never fully created (ROLLBACK_COMPLETE): delete it",
		types.StackStatusUpdateFailed:                                    "aws cloudformation rollback-stack --stack-name shop-stack --region us-east-1",
		types.StackStatusDeleteFailed:                                    "was not fully deleted (DELETE_FAILED): its events say why. Delete it again",
		types.StackStatusImportRollbackFailed:                            "is between two states (IMPORT_ROLLBACK_FAILED)",
		types.StackStatusRollbackInProgress:                              "is being changed (ROLLBACK_IN_PROGRESS): wait until that ends",
		types.StackStatusUpdateRollbackComplete + "_CLEANUP_IN_PROGRESS": "is being changed",
	} {
		err := checkDeployable("shop-stack", types.Stack{StackId: &id, StackStatus: status})
		if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: %v; want %q", status, err, wantErr)
		}
		// AWS accepts each of these commands in one state only.
		if err != nil && strings.Contains(err.Error(), "aws cloudformation") != strings.Contains(wantErr, "aws cloudformation") {
			t.Errorf("%s: %v names a command that AWS refuses in this state", status, err)
		}
	}
}

// TestValuesIn checks that valuesIn returns the value of each parameter for which the deployed
// template has a literal, and of no other parameter.
func TestValuesIn(t *testing.T) {
	t.Parallel()
	const source = `
Conditions: {Own: !Equals [!Ref Table, ""], Both: !Or [!Condition Own, !Equals [!Ref Selling, "no"]]}
Globals: {Function: {Environment: {Variables: {PAYEE: !Ref Payee, RATE: !Ref Rate, KEY: !Ref Key, MISSING: !Ref Missing, STACK: !Ref AWS::StackName}}}}
`
	const deployedText = `{"Conditions": {"Own": {"Fn::Equals": ["copy", ""]}, "Both": {"Fn::Or": [{"Condition": "Own"}, {"Fn::Equals": ["no", "no"]}]}},
		"Globals": {"Function": {"Environment": {"Variables": {"PAYEE": "0xab", "RATE": 300, "KEY": {"Ref": "Key"}, "STACK": {"Ref": "AWS::StackName"}}}}}}`
	got, err := valuesIn([]byte(source), []byte(deployedText))
	if err != nil || len(got) != 4 || got["Table"] != "copy" || got["Selling"] != "no" || got["Payee"] != "0xab" || got["Rate"] != "300" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := valuesIn([]byte(source), []byte("{")); err == nil {
		t.Error("a template that cannot be read is read")
	}
}
