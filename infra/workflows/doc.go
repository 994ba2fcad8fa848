// Package workflows checks .github with zizmor, which looks for holes in GitHub workflows. It has
// only tests.
package workflows
