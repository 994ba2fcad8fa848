package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
)

// cdkCLI is the npm package of the CDK's command line, at the version with which this program
// is tested.
const cdkCLI = "aws-cdk@2.1148.1"

// record is what a deployment writes into the stack's outputs: the commit of the deployed
// code, and the commit of the code that the stack had before.
type record struct{ commit, formerCommit string }

// job is a deployment that is to be built and released.
type job struct {
	desk
	root   string // the root of the checkout that is built
	file   stackfile.File
	record record
}

// tools are the two steps of a deployment with one toolchain: the build, and the release to
// AWS. Their output is shown to the person who deploys.
type tools struct{ build, release func(context.Context) error }

// tools returns the two steps for the toolchain that the stack's file names.
func (j job) tools() tools {
	if j.file.Toolchain == stackfile.CDK {
		return tools{j.buildForCDK, j.deployByCDK}
	}
	return tools{j.buildForSAM, j.deployBySAM}
}

// builtTemplate returns the path of the template that sam build writes and sam deploy reads,
// below the root of a checkout.
func builtTemplate() string { return filepath.Join(".aws-sam", "build", "template.yaml") }

func (j job) buildForSAM(ctx context.Context) error {
	if err := j.run(ctx, program{
		dir:       j.root,
		name:      "make",
		arguments: []string{"sam-build"},
	}); err != nil {
		return err
	}
	return j.record.addToOutputs(filepath.Join(j.root, builtTemplate()))
}

// deployBySAM deploys with the SAM CLI, which reads the stack's file itself.
func (j job) deployBySAM(ctx context.Context) error {
	return j.run(ctx, program{dir: j.root, name: "sam", arguments: []string{
		"deploy", "--template-file", builtTemplate(), "--config-file", j.file.Path, "--no-confirm-changeset",
	}})
}

func (j job) buildForCDK(ctx context.Context) error {
	return j.run(ctx, program{dir: j.root, name: "make", arguments: []string{"build", "ARCH=arm64"}})
}

// deployByCDK deploys with the CDK's command line. The CDK app reads the stack's file itself.
func (j job) deployByCDK(ctx context.Context) error {
	arguments := []string{"--yes", cdkCLI, "deploy", "--require-approval", "never"}
	for _, value := range j.context() {
		arguments = append(arguments, "-c", value)
	}
	return j.run(ctx, program{
		dir:       filepath.Join(j.root, "infra", "cdk"),
		env:       cdkEnvironment(j.file),
		name:      "npx",
		arguments: arguments,
	})
}

// context returns the CDK context values that the CDK app gets in addition to those in the
// stack's file. During a rollback, the app of an earlier release reads today's file. With
// unknown=ignore, that app ignores the settings that it does not have.
func (j job) context() []string {
	all := []string{"stack=" + j.file.Name, "commit=" + j.record.commit}
	if j.record.formerCommit != "" {
		all = append(all, "formerCommit="+j.record.formerCommit)
	}
	if j.root != j.desk.root {
		all = append(all, "unknown=ignore")
	}
	return all
}

// cdkEnvironment returns the environment variables that tell the CDK CLI to which account and
// region it deploys.
func cdkEnvironment(f stackfile.File) []string {
	env := []string{"AWS_REGION=" + f.Region, "AWS_DEFAULT_REGION=" + f.Region}
	if f.Profile != "" {
		env = append(env, "AWS_PROFILE="+f.Profile)
	}
	return env
}

// checkByCDKApp runs the CDK app before anything is built, so that the app checks its settings
// in the stack's file. Only the app can check them. If the file is not for the CDK,
// checkByCDKApp does nothing.
func (j job) checkByCDKApp(ctx context.Context) error {
	if j.file.Toolchain != stackfile.CDK {
		return nil
	}
	fmt.Fprintln(j.notes, "the CDK app is reading its settings; the first time, it is compiled, which takes a minute")
	out, err := os.MkdirTemp("", "synthesized-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out) //nolint:errcheck // at worst, a temporary folder stays
	settings := map[string]string{"stack": j.file.Name, "assets": "none"}
	if j.root != j.desk.root {
		settings["unknown"] = "ignore"
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	_, err = output(ctx, program{
		dir:       filepath.Join(j.root, "infra", "cdk"),
		env:       []string{"CDK_OUTDIR=" + out, "CDK_CONTEXT_JSON=" + string(text)},
		name:      "go",
		arguments: []string{"run", "."},
	})
	return err
}

// addToOutputs writes the record into the outputs of the built template at a path. The
// template in the checkout has no record. So a deployment by hand leaves no record, and cannot
// be mistaken for a recorded deployment.
func (r record) addToOutputs(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the built template: %w", err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return fmt.Errorf("the built template: %w", err)
	}
	outputs := member(&root, "Outputs")
	if outputs == nil {
		return errors.New("the built template has no outputs")
	}
	for _, o := range []struct{ name, description, value string }{
		{outputCommit, "Commit of the code that make deploy or make rollback deployed", r.commit},
		{outputFormer, "Commit of the code that ran before", r.formerCommit},
	} {
		if o.value == "" {
			continue
		}
		var value yaml.Node
		if err := value.Encode(map[string]string{"Description": o.description, "Value": o.value}); err != nil {
			return err
		}
		outputs.Content = append(outputs.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: o.name}, &value)
	}
	var written bytes.Buffer
	encoder := yaml.NewEncoder(&written)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&root), encoder.Close()); err != nil {
		return fmt.Errorf("the built template: %w", err)
	}
	return os.WriteFile(path, written.Bytes(), 0o644) //nolint:gosec // sam build gives the file this mode, too
}

// member returns the member of a document with the given name, or nil if there is none.
func member(root *yaml.Node, name string) *yaml.Node {
	if len(root.Content) == 0 {
		return nil
	}
	top := root.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value == name {
			return top.Content[i+1]
		}
	}
	return nil
}
