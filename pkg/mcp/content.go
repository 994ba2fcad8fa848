package mcp

import (
	"mime"
	"strings"
	"unicode/utf8"
)

// content is a content block of a result (revision 2025-11-25, tools, tool result). Data is
// encoded in base64.
type content struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text,omitempty"`
	Data     []byte    `json:"data,omitempty"`
	MimeType string    `json:"mimeType,omitempty"`
	Resource *resource `json:"resource,omitempty"`
}

// resource is the content of a block of type resource. Blob is encoded in base64.
type resource struct {
	URI      string `json:"uri"`
	MimeType string `json:"mimeType,omitempty"`
	Blob     []byte `json:"blob"`
}

// content returns the body as a content block. A body that is text becomes a text block. Any
// other body becomes an image, audio or resource block, according to its media type.
func (r Result) content() content {
	mediaType, _, err := mime.ParseMediaType(r.MediaType)
	if err != nil {
		mediaType = ""
	}
	kind, _, _ := strings.Cut(mediaType, "/")
	switch {
	case isText(mediaType) && utf8.Valid(r.Body):
		return content{Type: "text", Text: new(string(r.Body))}
	case kind == "image", kind == "audio":
		return content{Type: kind, Data: r.Body, MimeType: mediaType}
	}
	return content{Type: "resource", Resource: &resource{
		URI:      r.URI,
		MimeType: mediaType,
		Blob:     r.Body,
	}}
}

// isText reports whether a body with this media type is text. Vector images count as text,
// because they are XML.
func isText(mediaType string) bool {
	switch mediaType {
	case "",
		"application/json",
		"application/xml",
		"application/yaml",
		"application/javascript",
		"application/x-ndjson",
		"application/x-www-form-urlencoded":
		return true
	}
	return strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "+json") || strings.HasSuffix(mediaType, "+xml")
}
