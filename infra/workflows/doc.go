// Package workflows checks .github with zizmor, which looks for security holes in GitHub
// workflows. It has only tests.
package workflows
