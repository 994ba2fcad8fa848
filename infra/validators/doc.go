// Package validators judges what the service says. OpenAPI holds live answers to the
// description: the status, the headers, the content type and every byte of the body,
// and the error code against the list of the operation; other suites use it too.
//
// Its tests hold the live documents of the service against public
// validators: of OpenAPI, JSON Schema, HTML, llms.txt, and the reader that
// x402scan is built on. Each of them is also shown a document that is broken on
// purpose, so that it is seen to fail.
//
// The validators are npm packages beside this file, at the versions of the lock
// file; make node-packages installs them.
package validators
