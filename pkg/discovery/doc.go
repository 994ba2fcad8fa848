// Package discovery renders everything that a machine or a person reads before
// paying (spec §2.10, §4.1, §5): the tool catalog, the payment manifest, the
// OpenAPI description, the llms texts, the documentation page, the offer of
// each operation and the paywall page.
//
// All of it comes from package catalog, package fault and the deployment's
// Site, so a document cannot promise what the code does not know. A document is
// rendered at the first request for it. That is deterministic: the same Site gives
// the same bytes, hence the same ETags, in every execution environment.
//
// What is the same for every deployment is in assets: the sentences that several
// documents share (prose.txt.tmpl), and the frame of the OpenAPI description
// (openapi.json).
//
// Its templates are executed by a copy of the standard library's packages that calls
// no methods: a template that can name any method keeps the linker from dropping
// those that nobody calls, and the function was a third larger. What a template shows
// is therefore a field or a function.
//
// The package answers no request by itself: which methods a path takes, CORS,
// 404 and 405 belong to package service, which asks Documents.Find.
package discovery
