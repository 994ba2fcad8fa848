// Package workflows checks .github with zizmor, which looks for holes in GitHub workflows. All of
// it is tests.
package workflows
