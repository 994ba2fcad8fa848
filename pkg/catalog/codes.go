package catalog

import (
	"net/http"
	"slices"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// UnknownPath is the code of every path that is not in the catalog.
const UnknownPath fault.Code = "unknown_path"

// NoSuchPath is what is known about UnknownPath.
func NoSuchPath() fault.Info {
	return fault.Info{
		Code: UnknownPath, Status: http.StatusNotFound, Class: fault.NoCharge,
		Message: "No such path. The catalog is at " + PathCatalog + " and the documentation at " + PathDocs + ".",
		Remedy:  "Take a path that is listed there, spelt exactly so.",
	}
}

// Codes returns every code that the service answers with, in the order of spec §7 and
// those of our own last: the payments', the lookups', and that of the paths.
func Codes() []fault.Info { return slices.Clone(codes()) }

// codes is made once, as all is.
var codes = sync.OnceValue(func() []fault.Info {
	payments := fault.All()
	own := slices.IndexFunc(payments, func(i fault.Info) bool { return i.Code == fault.InternalError })
	return slices.Concat(payments[:own], lookup.Codes(), payments[own:own+1], []fault.Info{NoSuchPath()}, payments[own+1:])
})

// CodeOf returns what is known about a code; ok is false for one that the service does
// not answer with.
func CodeOf(c fault.Code) (info fault.Info, ok bool) {
	if i := slices.IndexFunc(codes(), func(i fault.Info) bool { return i.Code == c }); i >= 0 {
		return codes()[i], true
	}
	return fault.Info{}, false
}
