// Package npmproxy is an npm registry that has only the packages that a package-lock.json
// pins. With this registry, a test can run a documented "npm install" in an empty folder, and
// npm always installs the pinned versions.
package npmproxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"

	"golang.org/x/mod/semver"
)

// registry has the documents of packages, by the name of the package.
type registry struct {
	packages map[string]*document
	upstream string
}

// document describes a package for npm. It has the dependencies of each version, and the URL
// of the version's file.
type document struct {
	Name     string                    `json:"name"`
	Tags     map[string]string         `json:"dist-tags"`
	Versions map[string]map[string]any `json:"versions"`
}

// New returns a registry with the packages of a package-lock.json of version 2 or 3. The
// registry does not have the packages' files. npm usually has a file in its cache, where it
// finds the file by the digest in package-lock.json. Otherwise the registry redirects npm to the
// real registry at upstream, and npm compares the file with that digest.
func New(lock []byte, upstream string) (http.Handler, error) {
	var locked struct {
		Packages map[string]map[string]any `json:"packages"`
	}
	if err := json.Unmarshal(lock, &locked); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	r := registry{map[string]*document{}, strings.TrimSuffix(upstream, "/")}
	for place, entry := range locked.Packages {
		if entry["integrity"] != nil { // the entry of the folder itself has no digest
			r.add(place, entry)
		}
	}
	return r, nil
}

// add adds one version of one package: an entry of the lock file. The place of the entry is a
// path such as node_modules/a/node_modules/@b/c.
func (r registry) add(place string, entry map[string]any) {
	name, ok := entry["name"].(string) // only the entry of an alias contains a name
	if !ok {
		const folder = "node_modules/"
		name = place[strings.LastIndex(place, folder)+len(folder):]
	}
	version := fmt.Sprint(entry["version"])
	d := r.packages[name]
	if d == nil {
		d = &document{name, map[string]string{"latest": version}, map[string]map[string]any{}}
		r.packages[name] = d
	}
	if semver.Compare("v"+version, "v"+d.Tags["latest"]) > 0 {
		d.Tags["latest"] = version
	}
	published := map[string]any{"name": name}
	for _, member := range []string{
		"version", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta",
		"bundleDependencies", "bin", "engines", "os", "cpu", "libc", "hasInstallScript",
	} {
		if value, ok := entry[member]; ok {
			published[member] = value
		}
	}
	published["dist"] = map[string]any{"integrity": entry["integrity"]}
	d.Versions[version] = published
}

// ServeHTTP answers with the document of a package, or redirects to the file of a version.
func (r registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	name, _, isFile := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/-/")
	d := r.packages[name]
	if d == nil {
		http.Error(w, "{}", http.StatusNotFound)
		return
	}
	if isFile {
		for version := range d.Versions {
			if file := d.filePath(version); file == q.URL.Path {
				http.Redirect(w, q, r.upstream+file, http.StatusFound)
				return
			}
		}
		http.Error(w, "{}", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")                     // another lock file may later be served at this address
	_ = json.NewEncoder(w).Encode(d.withOrigin("http://" + q.Host)) // fails if npm has ended
}

// filePath returns the path at which a registry has the file of a version.
func (d *document) filePath(version string) string {
	return "/" + d.Name + "/-/" + path.Base(d.Name) + "-" + version + ".tgz"
}

// withOrigin returns a copy of the document in which the URLs of the files begin with an origin.
func (d *document) withOrigin(origin string) document {
	here := document{d.Name, d.Tags, map[string]map[string]any{}}
	for version, published := range d.Versions {
		placed := map[string]any{}
		for member, value := range published {
			placed[member] = value
		}
		dist, _ := published["dist"].(map[string]any)
		placed["dist"] = map[string]any{
			"integrity": dist["integrity"],
			"tarball":   origin + d.filePath(version),
		}
		here.Versions[version] = placed
	}
	return here
}
